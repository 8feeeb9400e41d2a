// SPDX-License-Identifier: Apache-2.0
// What a drafted row costs, by which drafting pays or does not (draft_length.h). Internal to the session.
#pragma once

#include <span>

#include "counters/ledger/ledger.h"
#include "engine/recipe/recipe.h"
#include "engine/session/model.h"

namespace tally {

// The cost of one more row of a decode step, as a fraction of a step of one row. A model of costs, not measured times: drafts, and with
// them the books of a run, are the same on each run. Its parts:
//   arithmetic  .1 of a step that reads all from memory (measured on two cores with VNNI: Q8_0 .07, Q4_K_M .10, Q4_0 .11)
//   experts     bytes of those that the first row did not choose, k / X of them at random
//   disk        of a model that streams: a row misses k (1 - h) experts of a layer, h the mean of flat and local routing for its slots
//               (counters/books/streaming.h); a byte from disk takes as long as kDiskTimes from memory. The larger of experts and disk
//               counts, as one hides the other. An accepted row would have missed the same experts in a step of its own.
//   layers      that a step reads from disk come once for all its rows: they make the step of one row longer, and a draft cheaper
//   predicting  if the engine predicts: the layer's bytes and the head's, which make the draft
// `weights`: Ledger::weights().
double RowCost(const Recipe& recipe, const MemoryPlan& plan, std::span<const WeightInfo> weights, bool predicts);

// Machines differ: a server with a virtual disk of 2.75 GB/s has about 8, a laptop with 5 GB/s and 60 GB/s 12.
inline constexpr double kDiskTimes = 10;

}  // namespace tally
