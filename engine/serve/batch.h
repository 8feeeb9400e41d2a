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

// Appends the missing answers to the plan's file, in the order of the requests; an incomplete last line is dropped first. Requests are
// read until the choices that run use all logit rows of the engine, and a few wait. An answer that is done before an earlier one is kept
// in memory; no request is read while such answers take kMostKeptBytes. A request that is refused or fails gets an error in place of its
// answer. An interruption is not an error: `left` is then not 0.
// kBadInput: the plan's answers are of another origin; a file cannot be read or written, or another program writes it. kInternal,
// kUnreadable: a step failed as a whole. After any error the file has whole lines, and can be continued.
Result<BatchReport> RunBatch(const ServedModel& model, const BatchPlan& plan, const BatchOptions& options);

// What the answers of the model are made by.
BatchOrigin OriginOf(const ServedModel& model, bool strict);

inline constexpr size_t kMostKeptBytes = size_t{64} << 20;

}  // namespace tally
