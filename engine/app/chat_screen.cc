// SPDX-License-Identifier: Apache-2.0
#include "engine/app/chat_screen.h"

#include <algorithm>
#include <vector>

#include "engine/app/console.h"
#include "engine/app/draft.h"
#include "engine/base/format.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

using books::WithThousands;

constexpr const char *kDim = "\x1b[2m", *kPlain = "\x1b[0m";

std::string Amount(int64_t n) { return WithThousands(static_cast<uint64_t>(std::max<int64_t>(0, n))); }

std::string AtRate(double rate) { return rate > 0 ? " at " + ShortRate(rate) + "/s" : ""; }

// What a turn's line leaves out, each with all before it, until it fits.
enum Omitted { kNothing, kFirstToken, kParameters, kPromptRate, kContextSize, kContext, kReused };

std::string TurnWords(const TurnFigures& turn, Omitted omitted) {
  const RunBooks& run = turn.books;
  const books::RunFigures& f = run.figures;
  std::vector<std::string> words = {"prompt " + Amount(f.prompt_tokens)};
  if (omitted < kReused && turn.reused_tokens > 0) words.back() += " (" + Amount(turn.reused_tokens) + " reused)";
  if (omitted < kPromptRate) words.back() += AtRate(f.prompt_tokens_per_second);
  words.push_back("answer " + Amount(f.generated_tokens) + AtRate(f.decode_tokens_per_second));
  if (omitted < kFirstToken && run.first_token_seconds > 0) {
    words.push_back("the first after " + ShortSeconds(run.first_token_seconds));
  }
  if (f.decode_tokens > 0) {
    words.push_back((omitted < kParameters ? Amount(f.parameters.active_all) + " parameters, " : "") +
                    Scaled(f.all.useful, "FLOP") + ", " + Scaled(MovedBytesPerToken(f), "B") + " a token");
  }
  if (f.streams()) words.push_back(ExpertWords(f));
  if (f.drafted > 0) words.push_back(DraftWords(f));
  if (f.forced_tokens > 0) words.push_back(WithThousands(f.forced_tokens) + " tokens decided by the grammar");
  if (omitted < kContext) {
    words.push_back("context " + Amount(turn.context_used) + (omitted < kContextSize ? " of " + Amount(turn.context) : ""));
  }
  if (run.ended != FinishName(FinishReason::kEos) && run.ended != FinishName(FinishReason::kStop)) {
    words.push_back("ended: " + run.ended);
  }
  return Join(words, "; ");
}

}  // namespace

std::string Readable(std::string_view text) {
  std::string readable;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\n\t", at), text.size());
    readable += Printable(text.substr(at, end - at));
    if (end < text.size()) readable += text[end];
    at = end + 1;
  }
  return readable;
}

std::string CallLine(const ToolCall& call) { return "call " + Printable(call.name) + " " + Printable(call.arguments); }

std::string Dim(const std::string& text) {
  if (!ColourOn(Stream::kError)) return text;
  const size_t end = text.find_last_not_of('\n') + 1;
  return kDim + text.substr(0, end) + kPlain + text.substr(end);
}

bool AnswerScreen::Show(std::span<const OutputPart> parts) {
  for (const OutputPart& part : parts) {
    if (part.kind == OutputPart::Kind::kContent) {
      std::string_view text = part.text;
      if (after_call_) text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
      if (!text.empty()) {
        Enter(Mode::kContent);
        Write(Readable(text));
        after_call_ = false;
      }
    }
    if (part.kind == OutputPart::Kind::kReasoning && !part.text.empty() && show_thinking_) {
      Enter(Mode::kReasoning);
      Write(Readable(part.text));
    }
    if (part.kind == OutputPart::Kind::kCall) call_open_ = true;
    if (part.call) {
      Enter(Mode::kContent);
      Write((at_line_start_ ? "" : "\n") + CallLine(*part.call) + "\n");
      call_open_ = false;
      after_call_ = true;
    }
  }
  return PrintedAll();
}

void AnswerScreen::End() {
  if (call_open_) {
    Enter(Mode::kContent);
    Write(std::string(at_line_start_ ? "" : "\n") + "(a call that was not finished)\n");
  }
  call_open_ = after_call_ = false;
  if (!at_line_start_) Write("\n");
  Enter(Mode::kNothing);
}

void AnswerScreen::Enter(Mode mode) {
  if (mode == mode_) return;
  if (!at_line_start_) Write("\n");
  const bool colour = ColourOn(Stream::kError);
  if (mode_ == Mode::kReasoning) Note(colour ? kPlain : "[/thinking]\n");
  if (mode == Mode::kReasoning) Note(colour ? kDim : "[thinking]\n");
  mode_ = mode;
}

void AnswerScreen::Write(std::string_view text) {
  if (text.empty()) return;
  if (mode_ == Mode::kReasoning) {
    Note(text);
  } else {
    Print(text);
    (void)PrintedAll();  // before what goes to standard error next
  }
  at_line_start_ = text.ends_with('\n');
}

std::string TurnLine(const TurnFigures& turn, size_t width) {
  for (const Omitted omitted : {kNothing, kFirstToken, kParameters, kPromptRate, kContextSize, kContext}) {
    std::string line = TurnWords(turn, omitted);
    if (width == 0 || TextWidth(line) <= width) return line + "\n";
  }
  return Join(WrapWords(TurnWords(turn, kReused), width), "\n") + "\n";
}

}  // namespace tally::app
