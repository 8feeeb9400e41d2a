// SPDX-License-Identifier: Apache-2.0
// An answer that follows a grammar: which tokens may be drawn, and which are decided without a step of the model. Internal to the session.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/session/model.h"

namespace tally {

// The tokens that end an answer of the model.
std::vector<int32_t> EndTokens(const Model& model);

class Guide {
 public:
  // The model has a tokenizer and outlives the guide.
  Guide(const Model& model, std::shared_ptr<Grammar> grammar);

  // Which tokens may come next. Valid until the next call.
  std::span<const uint64_t> Mask();
  // The only token that may; -1: there are several, or none.
  int32_t Only();
  // False: it may not come, and nothing has changed.
  bool Take(int32_t token);
  bool IsComplete() const { return cursor_.IsComplete(); }  // nothing may follow
  // Of tokens that may follow in this order, how many the grammar allows. An end token is not among them.
  size_t Allowed(std::span<const int32_t> tokens) const;
  // Tokens that follow, whatever the model says, cut as the tokenizer cuts the whole text. What the text after them may change is left out.
  std::vector<int32_t> Forced() const;

 private:
  const Tokenizer& tokenizer_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  GrammarCursor cursor_;
  TokenMask mask_;
  std::vector<int32_t> recent_;  // the last tokens of the answer
};

}  // namespace tally
