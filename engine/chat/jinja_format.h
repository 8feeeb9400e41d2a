// SPDX-License-Identifier: Apache-2.0
// Conversations through a Jinja template, with the variables that transformers gives it
// (https://huggingface.co/docs/transformers/chat_templating).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/chat_format.h"
#include "engine/chat/jinja/template.h"

namespace tally {

// What a template is given:
//   messages               role and content, always; tool_calls, tool_call_id and name where the message has them; the thinking under
//                          the name that the template knows it by: reasoning_content, thinking or reasoning
//   tools, documents       null where there are none
//   add_generation_prompt
//   enable_thinking, thinking, reasoning_effort   where the request sets them; the first two are names of one thing
//   special tokens, and the request's variables, which win over all of these
//
// The arguments of tool calls are objects where they are one as JSON, as transformers asks for; else text. A template that cannot
// render objects, or would print them as Python does, gets text always. That is found out once, with a conversation of our own.
class JinjaFormat : public ChatFormat {
 public:
  // ChatFormat::NewParser.
  using ParserFactory =
      std::function<std::unique_ptr<OutputParser>(std::string_view prompt, const std::vector<std::string>& tools)>;

  // kBadInput: a template that cannot be read. `description` is that of the format.
  static Result<std::unique_ptr<JinjaFormat>> Make(const ChatTemplateSource& source, ParserFactory parsers,
                                                   std::string description);

  Result<std::vector<PromptSegment>> Render(const ChatRequest& request) const override;
  std::unique_ptr<OutputParser> NewParser(std::string_view prompt, const std::vector<std::string>& tools) const override {
    return parsers_(prompt, tools);
  }
  std::string Description() const override { return description_; }

  // With variables as they are, such as messages whose content is a list of parts; special tokens are added to them.
  Result<std::vector<PromptSegment>> RenderJson(jinja::Json variables, int64_t now) const;

 private:
  JinjaFormat(jinja::Template made, const ChatTemplateSource& source, ParserFactory parsers, std::string description);
  Result<jinja::Json> Variables(const ChatRequest& request) const;
  jinja::Json Message(const ChatMessage& message) const;
  bool PrintsObjects(bool as_text) const;

  jinja::Template template_;
  std::map<std::string, std::string> special_tokens_;
  std::string reasoning_name_;
  bool arguments_as_text_ = false;
  ParserFactory parsers_;
  std::string description_;
};

}  // namespace tally
