// SPDX-License-Identifier: Apache-2.0
#include "engine/session/answer_calls.h"

#include <algorithm>

#include "engine/session/model.h"

namespace tally {

std::string SpelledMarks(const Model& model, std::string_view text) {
  constexpr size_t kLongest = 64;  // bytes of a mark
  const Vocabulary& vocabulary = *model.vocabulary();
  std::string spelled;
  while (!text.empty()) {
    size_t size = std::min(text.size(), kLongest);
    while (size > 0 && vocabulary.TokenNamed(SpelledToken(text.substr(0, size))) < 0) --size;
    spelled += size > 0 ? SpelledToken(text.substr(0, size)) : std::string(1, text[0]);
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return spelled;
}

AnswerCalls DescribeCalls(const Model& model, std::span<const CallNotation> notations, std::span<const CallTool> tools) {
  AnswerCalls calls;
  for (const CallNotation& notation : notations) {
    if (!notation.thinking_begin.empty()) {
      const std::string before = SpelledMarks(model, notation.begin + notation.call_begin);
      for (const CallTool& tool : tools) calls.headers[tool.name] = before + tool.name + SpelledMarks(model, notation.after_name);
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
