// SPDX-License-Identifier: Apache-2.0
// Messages and tools of a chat's body. Internal to serve.
#pragma once

#include <string>
#include <vector>

#include "engine/chat/message.h"
#include "engine/serve/api_format.h"
#include "engine/serve/api_object.h"

namespace tally {

// messages, tools, tool_choice, reasoning_effort, chat_template_kwargs, add_generation_prompt, continue_final_message. Content in several
// parts of text is joined by line feeds. An assistant's message that is the last is continued, unless it has calls or one of the last two
// fields says otherwise.
void ReadApiChat(ApiObject& body, ChatRequest* chat);
// input, instructions, tools, tool_choice, reasoning, text of /v1/responses: items that belong to one turn of the
// assistant are one message.
void ReadApiResponses(ApiObject& body, ChatRequest* chat);
// system, messages, tools, tool_choice, thinking, output_config of /v1/messages: neighbours of one role are one message. Blocks of thinking
// are the message's reasoning. Two fields have no effect: the model is not told that the result of a tool is an error, and its thinking
// has no budget.
void ReadAnthropicChat(ApiObject& body, ChatRequest* chat, AnswerFormat* format);
// tools of /v1/chat/completions and of /api/chat.
void ReadFunctionTools(ApiObject& body, ChatRequest* chat);
// The value of tool_choice, whatever the endpoint: "none" takes the tools away, and calls are text.
// Whether a function of this name is among the tools.
bool HasTool(const ChatRequest& chat, const std::string& name);
void ReadToolChoice(ApiObject& body, ChatRequest* chat);
// low, medium or high. "none" and "minimal" are low and no thinking, "xhigh" and "max" are high.
void ReadEffort(ApiObject& object, const char* name, ChatRequest* chat);
// chat_template_kwargs. To be called after the fields that set an effort are read: their effort wins over that of the variables.
void ReadTemplateVariables(ApiObject& body, ChatRequest* chat);
void NameResults(std::vector<ChatMessage>* messages);
// The member `function` of `call`, which stands at `place`: its name and arguments, a text or any JSON. Reads `call` to its end. `index`:
// the function may have a member of that name, which is ignored.
void ReadCalledFunction(ApiObject& call, const std::string& place, bool index, ToolCall* read);
// To be called when messages and tool_choice are read. An error if the last message cannot be continued.
void ContinueLast(ApiObject& body, ChatRequest* chat);

// Tools that the API's own servers would run, such as web search, or that only their models know. They are left out if other tools
// remain; if none does, that is an error.
class HostedTools {
 public:
  // `expected`: the type of those that remain.
  HostedTools(ApiObject& body, const char* expected) : body_(body), expected_(expected) {}
  // True: `tool`, whose type is not the expected one, is left out. An error if the reading is strict.
  bool LeavesOut(ApiObject& tool, const std::string& type);
  // An error if there were some, and none remains.
  void End(size_t kept);

 private:
  ApiObject& body_;
  const std::string expected_;
  std::string first_, message_;  // of the first one: its type's place, and what an error says
};

}  // namespace tally
