// SPDX-License-Identifier: Apache-2.0
// Measures what a grammar costs and saves: answers that follow it beside free ones of the same length, and the time of each mask.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/grammar/grammar.h"
#include "engine/session/engine.h"

namespace tally {

struct GrammarSpeedOptions {
  std::function<Result<std::shared_ptr<Grammar>>()> make = {};  // compiles it
  std::vector<int32_t> prompt = {};
  int64_t tokens = 256;                    // of the answers of a round, at least: answers are drawn until there are so many
  int32_t rounds = 5;                      // each has answers without a grammar, with it, and with jumps, in turns
  uint64_t seed = 1;                       // of the draws, at temperature 1
  std::function<bool()> interrupted = {};  // polled between answers; true: stop, kInterrupted
  std::function<void(int64_t done, int64_t total)> progress = {};  // rounds
};

struct GrammarSpeed {
  double compile_seconds = 0;  // median of the rounds
  double prepare_seconds = 0;  // GrammarCursor::Prepare, median
  size_t states = 0;           // after the answers of a round
  uint64_t bytes = 0;
  // Masks, one before each token; a grammar is compiled and prepared anew for each round.
  int64_t masks = 0;
  double mask_median = 0, mask_99 = 0, mask_most = 0;  // seconds
  // Answers.
  int64_t tokens = 0, forced = 0, characters = 0;  // with jumps
  double free_rate = 0, held_rate = 0;             // tokens/s of decode, without jumps; medians
  double rate_ratio = 0;                           // held / free, median of the rounds
  double jump_ratio = 0;                           // seconds a character with jumps / without, median of the rounds
};

// The model must have a tokenizer. kBadInput: the grammar's errors; answers without a token. Errors of Step.
TALLY_API Result<GrammarSpeed> MeasureGrammar(Engine& engine, const GrammarSpeedOptions& options);

}  // namespace tally
