// SPDX-License-Identifier: Apache-2.0
// Messages and tools of a chat's body. Internal to serve.
#pragma once

#include <vector>

#include "engine/chat/message.h"
#include "engine/serve/api_object.h"

namespace tally {

// messages, tools, tool_choice, reasoning_effort, chat_template_kwargs. Content in several parts of text is joined by line feeds.
void ReadApiChat(ApiObject& body, ChatRequest* chat);
// input, instructions, tools, tool_choice, reasoning, text of /v1/responses: items that belong to one turn of the assistant are one message.
void ReadApiResponses(ApiObject& body, ChatRequest* chat);
// system, messages, tools, tool_choice, thinking, output_config of /v1/messages: neighbours of one role are one message. Blocks of thinking
// are the message's reasoning. The model is not told that a tool's result is an error, and is not held to a budget of thinking.
void ReadAnthropicChat(ApiObject& body, ChatRequest* chat);
// The value of tool_choice, whatever the endpoint: "none" takes the tools away, and calls are text.
void ReadToolChoice(ApiObject& body, ChatRequest* chat);
// low, medium or high. "none" and "minimal" are errors.
void ReadEffort(ApiObject& object, const char* name, ChatRequest* chat);
void NameResults(std::vector<ChatMessage>* messages);

}  // namespace tally
