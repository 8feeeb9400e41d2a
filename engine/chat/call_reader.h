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
//
// JSON names the function by "name" and holds the arguments in one member, "arguments" or the like; members beside that one, and where
// there is none all members but the id and the kind of call, are arguments. It may be in a "function" of its own, or Python's notation.
std::optional<ToolCall> ReadCall(const CallFormat& format, const ToolTypes& types, CallBody body_kind, std::string_view body,
                                 bool ended);

// Whether the JSON of a call has a member that holds the arguments.
bool NamesArguments(std::string_view json);

}  // namespace tally
