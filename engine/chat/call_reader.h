// SPDX-License-Identifier: Apache-2.0
// The body of a call as a call.
#pragma once

#include <optional>
#include <string_view>

#include "engine/chat/call_format.h"
#include "engine/chat/message.h"
#include "engine/chat/tool_types.h"

namespace tally {

// None where no name can be read. `ended`: the body is all that comes. Of a body that has not ended, or is malformed, the arguments
// are what is there of them, as it stands. `types`: of arguments that are bare text.
std::optional<ToolCall> ReadCall(const CallFormat& format, const ToolTypes& types, CallBody body_kind, std::string_view body,
                                 bool ended);

}  // namespace tally
