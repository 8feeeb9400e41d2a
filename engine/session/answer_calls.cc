// SPDX-License-Identifier: Apache-2.0
#include "engine/session/answer_calls.h"

#include <algorithm>

#include "engine/session/model.h"

namespace tally {

std::string SpelledMarks(const Model& model, std::string_view text) {
  const Tokenizer& tokenizer = *model.tokenizer();
  const Vocabulary& vocabulary = *model.vocabulary();
  // SentencePiece puts a space before a text: an end of line takes it, and both are dropped.
  const std::string before = tokenizer.DropsLeadingSpace() ? "\n" : "";
  const Result<std::vector<int32_t>> ids =
      tokenizer.EncodeSegments(std::vector<TextSegment>{{.text = before + std::string(text), .parse_special = true}});
  if (!ids.ok()) return std::string(text);
  std::string spelled;
  for (const int32_t id : *ids) spelled += vocabulary.bytes(id);
  if (!before.empty()) spelled.erase(0, spelled.find('\n') + 1);
  // A vocabulary may lack letters of the text, or change them: then no token of it can be a mark.
  std::string plain;
  for (const char c : spelled) {
    if (static_cast<uint8_t>(c) < kFirstOfToken) plain += c;
  }
  return plain == text ? spelled : std::string(text);
}

AnswerCalls DescribeCalls(const Model& model, std::span<const CallNotation> notations, std::span<const CallTool> tools) {
  AnswerCalls calls;
  for (const CallNotation& notation : notations) {
    if (!notation.thinking_begin.empty()) {
      for (const CallTool& tool : tools)
        calls.headers[tool.name] = SpelledMarks(model, notation.begin + notation.call_begin + tool.name + notation.after_name);
      continue;
    }
    if (notation.sign.text.empty()) continue;
    CallSign sign = notation.sign;
    sign.with_name = false;
    sign.text = SpelledMarks(model, notation.sign.text);
    if (!notation.sign.with_name) {
      calls.signs.push_back(std::move(sign));
      continue;
    }
    for (const CallTool& tool : tools) {
      calls.signs.push_back(sign);
      calls.signs.back().text += tool.name + SpelledMarks(model, notation.after_name);
    }
  }
  return calls;
}

}  // namespace tally
