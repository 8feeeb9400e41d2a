// SPDX-License-Identifier: Apache-2.0
// What a conversation shows: answers as they come, and what each cost.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/api/tally.h"
#include "engine/app/run_books.h"

namespace tally::app {

// Text of a model made fit for a terminal: control characters but line feeds and tabs are escaped (Printable).
std::string Readable(std::string_view text);

// "call get_weather {"city": "Rome"}"
std::string CallLine(const ToolCall& call);

// Dim text, for what matters less, if standard error has colours.
std::string Dim(const std::string& text);

// One answer. Content and calls go to standard output, thinking to standard error: dim, or between lines that say what it is.
class AnswerScreen {
 public:
  explicit AnswerScreen(bool show_thinking) : show_thinking_(show_thinking) {}
  // False: the reader of standard output has left.
  bool Show(std::span<const OutputPart> parts);
  void End();  // after the last part

 private:
  enum class Mode { kNothing, kContent, kReasoning };
  void Enter(Mode mode);
  void Write(std::string_view text);

  bool show_thinking_;
  Mode mode_ = Mode::kNothing;
  bool at_line_start_ = true, call_open_ = false;
  bool after_call_ = false;  // whose line is the white space between it and the content that comes next
};

struct TurnFigures {
  RunBooks books;
  int64_t reused_tokens = 0;  // of the prompt
  int64_t context_used = 0, context = 0;
};
// What a turn cost, in one line. Where that is wider than `width` (0: any width) it leaves out what matters least; /books has all.
std::string TurnLine(const TurnFigures& turn, size_t width);

}  // namespace tally::app
