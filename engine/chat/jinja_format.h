// SPDX-License-Identifier: Apache-2.0
// Conversations through a Jinja template, with the variables that transformers gives it
// (https://huggingface.co/docs/transformers/chat_templating).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/chat_format.h"
#include "engine/chat/jinja/template.h"
#include "engine/chat/role_places.h"

namespace tally {

// What a template is given:
//   messages               role and content, always; tool_calls, tool_call_id and name where the message has them; the thinking under
//                          the name that the template knows it by: reasoning_content, thinking or reasoning
//   tools, documents       null where there are none
//   add_generation_prompt
//   enable_thinking, thinking, reasoning_effort   where the request sets them; the first two are names of one thing
//   special tokens, and the request's variables, which win over all of these
//
// Templates want some of it in other forms. Which is found out once, with a conversation of our own; the first form that is printed is
// taken, and the first of all where none is:
//   arguments of calls     objects where they are one as JSON, as transformers asks for, and text else; or always text
//   no text beside calls   content is empty, or null, or not there
//   thinking               a member of the message, by the name that the template reads; or a part of content that has the type
//                          "thinking", before one with the text (Ministral 3)
//   tools                  the variable; or the member `tools` of the first message, the same list or the JSON text of its functions,
//                          where that message is the system's (an empty one is made for it if there is none)
//   roles                  messages where the template prints them (role_places.h)
//   ids of calls           of any length, or of 9 letters and digits
// A role that messages usually have (kMessageRoles) is the template's own text: <|{{ message.role }}|> is a special token.
class JinjaFormat : public ChatFormat {
 public:
  // ChatFormat::NewParser.
  using ParserFactory = std::function<std::unique_ptr<OutputParser>(std::string_view prompt, const ChatRequest& request)>;

  // kBadInput: a template that cannot be read. `description` is that of the format.
  static Result<std::unique_ptr<JinjaFormat>> Make(const ChatTemplateSource& source, ParserFactory parsers,
                                                   std::string description, bool reads_calls = true);

  std::vector<LeftOut> FindLeftOut(const ChatRequest& request) const override;
  bool ReadsCalls() const override { return reads_calls_; }
  bool ShortCallIds() const override { return short_call_ids_; }
  std::unique_ptr<OutputParser> NewParser(std::string_view prompt, const ChatRequest& request) const override {
    return parsers_(prompt, request);
  }
  // ChatFormat::WholeStartOf.
  using StartFinder = std::function<AnswerStart(std::string_view prompt)>;
  void SetStarts(StartFinder starts) { starts_ = std::move(starts); }
  using NotationFactory = std::function<std::vector<CallNotation>(bool json)>;
  void SetNotations(NotationFactory notations) { notations_ = std::move(notations); }
  std::vector<CallNotation> CallNotations(bool json) const override {
    return notations_ ? notations_(json) : std::vector<CallNotation>();
  }
  std::string Description() const override { return description_; }

  // With variables as they are, such as messages whose content is a list of parts; special tokens are added to them.
  Result<std::vector<PromptSegment>> RenderJson(jinja::Json variables, int64_t now, const jinja::Limits& limits = {}) const;

 protected:
  AnswerStart WholeStartOf(std::string_view prompt) const override { return starts_ ? starts_(prompt) : AnswerStart(); }
  Result<std::vector<PromptSegment>> RenderWhole(const ChatRequest& request, std::vector<std::string>* notes) const override;

 private:
  enum class NoContent : uint8_t { kEmpty, kNull, kAbsent };
  enum class Tools : uint8_t { kVariable, kMessageList, kMessageText };
  struct Forms {
    bool arguments_as_text = false;
    NoContent no_content = NoContent::kEmpty;
    Tools tools = Tools::kVariable;
    bool thinking_part = false;
  };

  JinjaFormat(jinja::Template made, const ChatTemplateSource& source, ParserFactory parsers, std::string description,
              bool reads_calls);
  Result<jinja::Json> Variables(const ChatRequest& request, const Forms& forms) const;
  Result<std::string> Text(const ChatRequest& request, const Forms& forms, const jinja::Limits& limits = {}) const;
  Forms FindForms() const;
  void FindPlaces();
  bool ReadsThinkingPart() const;
  jinja::Json Message(const ChatMessage& message, const Forms& forms) const;

  jinja::Template template_;
  std::map<std::string, std::string> special_tokens_;
  std::vector<std::string> additional_special_tokens_;
  std::string reasoning_name_;
  Forms forms_;
  RolePlaces places_;
  bool short_call_ids_ = false;
  ParserFactory parsers_;
  StartFinder starts_;
  NotationFactory notations_;
  std::string description_;
  bool reads_calls_;
};

}  // namespace tally
