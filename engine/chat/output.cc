// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/output.h"

namespace tally {

void ChatAnswer::Add(const std::vector<OutputPart>& parts) {
  for (const OutputPart& part : parts) {
    if (part.kind == OutputPart::Kind::kContent) content += part.text;
    if (part.kind == OutputPart::Kind::kReasoning) reasoning += part.text;
    if (part.call) calls.push_back(*part.call);
  }
}

}  // namespace tally
