// SPDX-License-Identifier: Apache-2.0
// Answers a file of requests by many at once, in the order of the file.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/serve/batch_file.h"
#include "engine/serve/completion.h"

namespace tally {

struct BatchProgress {
  uint64_t done = 0, total = 0;   // requests, those of an earlier run included
  uint64_t generated_tokens = 0;  // of this run
  double seconds = 0;             // of this run
};

struct BatchOptions {
  bool strict = false;                     // a field of a body that would be ignored is refused
  std::function<bool()> interrupted = {};  // polled between steps; true: stop
  std::function<void(const BatchProgress&)> progress = {};
};

struct BatchReport {
  uint64_t answered = 0, refused = 0;  // written in this run: answers, and errors in their place
  uint64_t left = 0;                   // requests left after an interruption
  ApiUsage usage = {};                 // of the answers of this run
  double seconds = 0;
};

// Appends the missing answers to the plan's file, each line as soon as those before it are written, and drops a torn line. Requests are
// read until as many choices run as the engine has logit rows, and a few wait; answers that wait for an earlier one are kept in memory, and
// nothing is read while they take kMostKeptBytes. A request that is refused or fails has an error in its answer's place. An interruption is
// no error: `left` is not 0. kBadInput: the plan's answers are of another
// origin; a file cannot be read or written, or another program writes it. kInternal: a step failed as a
// whole. The file has whole lines then, and can be continued.
Result<BatchReport> RunBatch(const ServedModel& model, const BatchPlan& plan, const BatchOptions& options);

// What the answers of the model are made by.
BatchOrigin OriginOf(const ServedModel& model, bool strict);

inline constexpr size_t kMostKeptBytes = size_t{64} << 20;

}  // namespace tally
