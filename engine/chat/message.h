// SPDX-License-Identifier: Apache-2.0
// A conversation as programs hold it, whatever format a model was trained on. Roles and fields are those of OpenAI's chat
// completions, which chat templates are written for (https://platform.openai.com/docs/api-reference/chat).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"

namespace tally {

struct ToolCall {
  std::string id = {};
  std::string name = {};       // of the function, without a namespace: "get_weather"
  std::string arguments = {};  // as the model wrote them, meant to be JSON; not checked
  bool operator==(const ToolCall&) const = default;
};

struct ChatMessage {
  std::string role = {};  // "system", "developer", "user", "assistant", "tool"
  std::string content = {};
  std::string reasoning = {};             // assistant: its thinking, apart from the answer
  std::vector<ToolCall> tool_calls = {};  // assistant
  std::string tool_call_id = {};          // tool: the call that this answers
  std::string name = {};                  // tool: the function that answers
  bool operator==(const ChatMessage&) const = default;
};

// What is rendered into a prompt.
struct ChatRequest {
  std::vector<ChatMessage> messages = {};
  // Each the JSON text of one tool: {"type": "function", "function": {"name", "description", "parameters"}}.
  std::vector<std::string> tools = {};
  bool must_call = false;  // the answer is to be a call
  // Calls are of these tools; empty: of any.
  std::vector<std::string> callable = {};
  std::vector<std::string> strict = {};    // names of tools whose calls are to have arguments of their schema
  std::optional<int64_t> most_calls = {};  // of an answer, which ends after the last of them; none: any number
  std::string reasoning_effort = {};       // "low", "medium", "high"; empty: the format's default
  std::optional<bool> thinking = {};       // enable_thinking of templates that know it; none: their default
  bool add_generation_prompt = true;       // the prompt ends where the assistant's answer begins
  // The last message, the assistant's, is begun by its content, and the answer continues it: the prompt ends with that content.
  bool continue_last = false;
  int64_t now = 0;  // seconds since 1970, local time zone: the date of templates that say it
  // Further variables of a template, by name, each a JSON text.
  std::map<std::string, std::string> variables = {};
};
// Whether the model may call tools: most_calls is not 0, and the request has tools, or a variable whose name ends with "tools"
// (builtin_tools, xml_tools), by which a template offers its own.
TALLY_API bool MayCall(const ChatRequest& request);

// A stretch of a prompt. Special tokens spelled out become tokens only in `control` stretches, which are the template's own text;
// what users, tools and models wrote stays characters.
struct PromptSegment {
  std::string text = {};
  bool control = false;
};
TALLY_API std::string JoinSegments(const std::vector<PromptSegment>& segments);

}  // namespace tally
