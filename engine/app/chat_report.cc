// SPDX-License-Identifier: Apache-2.0
#include "engine/app/chat_report.h"

#include <vector>

#include "engine/app/chat_settings.h"
#include "engine/app/commands.h"
#include "engine/app/draft.h"
#include "engine/app/run_books.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

Json CallsJson(const std::vector<ToolCall>& calls) {
  return Json::ListOf(calls, [](const ToolCall& call) -> Json {
    return {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}};
  });
}

Json MessageJson(const ChatMessage& message) {
  Json one = {{"role", message.role}, {"content", message.content}};
  if (!message.reasoning.empty()) one["reasoning"] = message.reasoning;
  if (!message.tool_calls.empty()) one["tool_calls"] = CallsJson(message.tool_calls);
  if (!message.tool_call_id.empty()) one["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) one["name"] = message.name;
  return one;
}

// The tokens that the stretches become; null where they cannot be.
Json TokensJson(const Tokenizer& tokenizer, const std::vector<PromptSegment>& prompt) {
  std::vector<TextSegment> texts;
  for (const PromptSegment& segment : prompt) texts.push_back({segment.text, segment.control});
  const Result<std::vector<int32_t>> tokens = tokenizer.EncodeSegments(texts);
  return tokens.ok() ? Json(*tokens) : Json();
}

}  // namespace

Json ChatJson(const ChatFlags& flags, const Talk& talk) {
  const LastTurn& last = *talk.last();
  const books::RunFigures& f = last.figures.books.figures;
  Json document = {{"model", flags.model.model},
                   {"template", talk.source().origin},
                   {"format", talk.FormatDescription()},
                   {"answer", last.turn.answer.content},
                   {"reasoning", last.turn.answer.reasoning},
                   {"tool_calls", CallsJson(last.turn.answer.calls)},
                   {"messages", Json::ListOf(talk.messages(), MessageJson)},
                   {"prompt", JoinSegments(last.prompt)},
                   {"prompt_token_ids", TokensJson(*talk.model().tokenizer(), last.prompt)},
                   {"reused_tokens", last.figures.reused_tokens},
                   {"generated_tokens_per_second", f.decode_tokens_per_second},
                   {"context_used", last.figures.context_used}};
  document.Update(FiguresJson(last.turn.generated, last.figures.books, talk.engine()));
  if (f.streams()) {
    document["disk_bytes_per_token"] = Number(f.bytes_per_token[static_cast<size_t>(ByteKind::kWeightsDisk)]);
    document["experts"] = ExpertsJson(talk.ledger());
  }
  if (talk.drafts()) document["drafts"] = DraftJson(f);
  return document;
}

Json ConversationJson(const Talk& talk) {
  return {{"model", talk.model_name()},
          {"description", talk.model().Description()},
          {"template", talk.source().origin},
          {"format", talk.FormatDescription()},
          {"settings", SettingsJson(talk)},
          {"messages", Json::ListOf(talk.messages(), MessageJson)},
          {"tally", Maker()}};
}

std::string ConversationMarkdown(const Talk& talk) {
  const Json maker = Maker();
  std::string text = "# " + Printable(talk.model_name()) + "\n\n" + Printable(talk.model().Description()) + ", tally " +
                     maker["version"].Text() + ", " + maker["date"].Text() + "\n";
  for (const ChatMessage& message : talk.messages()) {
    const std::string& role = message.role;
    text +=
        "\n## " + Printable(role.empty() ? "message" : role) + (message.name.empty() ? "" : " " + Printable(message.name)) + "\n";
    std::string quoted;
    for (const char c : message.reasoning) quoted += c == '\n' ? std::string("\n> ") : std::string(1, c);
    if (!quoted.empty()) text += "\n> " + quoted + "\n";
    if (!message.content.empty()) text += "\n" + message.content + (message.content.ends_with('\n') ? "" : "\n");
    for (const ToolCall& call : message.tool_calls) {
      text += "\nCalls " + Printable(call.name) + ":\n\n```json\n" + call.arguments + "\n```\n";
    }
  }
  return text;
}

}  // namespace tally::app
