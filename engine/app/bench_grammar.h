// SPDX-License-Identifier: Apache-2.0
// `tally bench --schema FILE`: what a schema, an expression or a grammar costs and saves.
#pragma once

#include "engine/api/tally.h"
#include "engine/app/grammar_options.h"
#include "engine/app/options.h"

namespace tally::app {

struct GrammarBench {
  ModelFlags model;
  GrammarFlags grammar;
  int64_t tokens = 0;  // of a round's answers
  int32_t rounds = 0;
  uint64_t seed = 0;
  bool json = false;
};
// Measures and prints. kBadInput names the option.
Result<int> RunGrammarBench(const GrammarBench& bench);

}  // namespace tally::app
