// SPDX-License-Identifier: Apache-2.0
// Steps and charges of a ledger without an engine.
#pragma once

#include <span>
#include <vector>

#include "counters/ledger/ledger.h"

namespace tally {

// Rows of one phase without a bill, the last `logit_rows` of them with logits.
inline std::vector<BookedRow> RowsIn(Phase phase, size_t rows, size_t logit_rows) {
  std::vector<BookedRow> booked(rows, {.phase = phase});
  for (size_t i = rows - logit_rows; i < rows; ++i) booked[i].logits = true;
  return booked;
}

// Adds an op that costs this much a run, and charges a run of it.
inline void ChargeOnce(Ledger& ledger, Site site, const Cost& useful, const Cost& executed,
                       std::span<const WeightTouch> touches = {}) {
  CostAmounts once;
  once[Amount::kCalls] = 1;
  for (const WeightTouch& t : touches) ledger.Touch(t);
  ledger.Charge(ledger.AddOp({{.site = site, .units = {{Amount::kCalls, useful, executed}}}}), once);
}

// The useful work of all phases.
inline Cost UsefulTotal(const Ledger& ledger) {
  Cost sum;
  for (const Phase p : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) sum += ledger.total(p).useful;
  return sum;
}

}  // namespace tally
