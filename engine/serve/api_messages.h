// SPDX-License-Identifier: Apache-2.0
// Messages and tools of a chat's body. Internal to serve.
#pragma once

#include "engine/chat/message.h"
#include "engine/serve/api_object.h"

namespace tally {

// messages, tools, tool_choice, reasoning_effort, chat_template_kwargs. Content in several parts of text is joined by line feeds.
void ReadApiChat(ApiObject& body, ChatRequest* chat);

}  // namespace tally
