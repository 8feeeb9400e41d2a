// SPDX-License-Identifier: Apache-2.0
// Calls of functions in an answer that are held to a grammar: all of it, or from where the model begins to call.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/grammar/call_notation.h"
#include "engine/grammar/grammar.h"

namespace tally {

class Model;

struct AnswerCalls {
  std::shared_ptr<Grammar> grammar = {};  // Grammar::FromCalls, its marks spelled by SpelledMarks
  bool must = false;                      // the answer is calls; else it may be content, and becomes calls at one of `signs`
  std::vector<CallSign> signs = {};       // spelled; none with a name
  // Harmony: what a message to a function is preceded by, spelled, by name.
  std::map<std::string, std::string, std::less<>> headers = {};
};

// A text of a notation in the bytes of the model's vocabulary: what is a token of its own as SpelledToken. The model has a tokenizer.
TALLY_API std::string SpelledMarks(const Model& model, std::string_view text);
// Everything but the grammar.
TALLY_API AnswerCalls DescribeCalls(const Model& model, std::span<const CallNotation> notations, std::span<const CallTool> tools);

}  // namespace tally
