// SPDX-License-Identifier: Apache-2.0
// The history and the settings of a conversation as JSON, in session files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/message.h"

namespace tally {

// {"messages": [{"role", "content", "reasoning", "tool_calls": [{"id", "name", "arguments"}], "tool_call_id", "name"}],
//  "settings": {"tools", "reasoning_effort", "thinking", "add_generation_prompt", "now", "variables"}}
// as in engine/chat/message.h; what is empty is left out. Bytes that are not UTF-8 become U+FFFD.
std::string SessionJson(const std::vector<ChatMessage>& messages, const ChatRequest& settings);

// The request that SessionJson wrote, messages included. kBadInput names the member that is not of its type.
Result<ChatRequest> ParseSessionJson(std::string_view text);

}  // namespace tally
