// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/message.h"

namespace tally {

std::string JoinSegments(const std::vector<PromptSegment>& segments) {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

}  // namespace tally
