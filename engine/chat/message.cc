// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/message.h"

#include <algorithm>

namespace tally {

bool MayCall(const ChatRequest& request) {
  const auto names_tools = [](const auto& variable) { return variable.first.ends_with("tools"); };
  return request.most_calls != 0 && (!request.tools.empty() || std::ranges::any_of(request.variables, names_tools));
}

std::string JoinSegments(const std::vector<PromptSegment>& segments) {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

}  // namespace tally
