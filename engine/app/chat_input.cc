// SPDX-License-Identifier: Apache-2.0
#include "engine/app/chat_input.h"

#include <string_view>
#include <utility>

namespace tally::app {
namespace {

using Kind = ChatInput::Kind;

constexpr std::string_view kQuotes = "\"\"\"";
constexpr const char *kPrompt = "> ", *kMore = ". ";

bool IsBlank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

ChatInput NoLine(const TypedLine& line, const std::string& before) {
  if (line.kind == TypedLine::Kind::kEnd) return {Kind::kEnd, {}};
  return {Kind::kInterrupted, before + line.text};
}

}  // namespace

ChatReader::ChatReader(LineEditor& editor) : editor_(editor) {
  for (const std::string& line : history_.Read()) editor_.Remember(line);
}

ChatReader::~ChatReader() { history_.Append(typed_); }

ChatInput ChatReader::Read() {
  for (;;) {
    TypedLine line = editor_.Read(kPrompt);
    if (line.kind != TypedLine::Kind::kLine) return NoLine(line, "");
    if (IsBlank(line.text)) continue;
    typed_.push_back(line.text);
    editor_.Remember(line.text);
    const std::string_view text = line.text;
    if (text.starts_with('/') && !text.starts_with("//")) return {Kind::kCommand, line.text.substr(1)};
    const bool block = text.starts_with(kQuotes);
    const size_t marks = block ? kQuotes.size() : text.starts_with("//") ? 1 : 0;
    ChatInput input = ReadRest(line.text.substr(marks), block);
    if (input.kind != Kind::kMessage || !IsBlank(input.text)) return input;
  }
}

ChatInput ChatReader::ReadRest(std::string text, bool block) {
  const std::string_view more = block ? kQuotes : "\\";
  bool empty_first = block && text.empty();               // """ alone on its line adds none,
  if (block && text.starts_with('\n')) text.erase(0, 1);  // pasted or typed
  while (text.ends_with(more) != block) {
    if (!block) text.pop_back();
    TypedLine line = editor_.Read(kMore);
    if (line.kind != TypedLine::Kind::kLine) return NoLine(line, text);
    if (!IsBlank(line.text)) {
      typed_.push_back(line.text);
      editor_.Remember(line.text);
    }
    if (!empty_first) text += '\n';
    empty_first = false;
    text += line.text;
  }
  if (block) {
    text.resize(text.size() - kQuotes.size());
    if (text.ends_with('\n')) text.pop_back();
  }
  return {Kind::kMessage, std::move(text)};
}

TypedLine ChatReader::Ask(const std::string& question) { return editor_.Read(question); }

}  // namespace tally::app
