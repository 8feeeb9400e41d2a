// SPDX-License-Identifier: Apache-2.0
// The ledger: the cost of every op that ran.
//
// Costs are linear in an op's amounts (counters/cost/cost.h). AddOp takes the unit costs of an op; a charge adds amounts; reading
// multiplies the two. Work is booked by phase, row by row (see Phase). The parameters touched in a step are a set: an expert that
// two tokens of a batch share, or a tied matrix that is gathered from and multiplied by, counts once.
//
// Parameters are counted in elements. No call fails. Not to be used by two threads at once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/site.h"
#include "counters/ledger/touch_set.h"
#include "engine/base/export.h"

namespace tally {

// The sum over a set of ops.
struct Account {
  Cost useful = {};
  Cost executed = {};
  uint64_t ops = 0;  // runs of ops with at least one row
};

// Rows of a step by phase, [prefill, decode]: all rows, and the rows with logits.
struct StepRows {
  std::array<uint32_t, 2> rows{}, logit_rows{};
  static StepRows Of(Phase phase, uint32_t rows, uint32_t logit_rows) {
    return phase == Phase::kDecode ? StepRows{{0, rows}, {0, logit_rows}} : StepRows{{rows, 0}, {logit_rows, 0}};
  }
  uint32_t all() const { return rows[0] + rows[1]; }
  uint32_t all_logits() const { return logit_rows[0] + logit_rows[1]; }
  // The phase that once-per-step work is booked under.
  Phase phase() const { return rows[1] == 0 ? Phase::kPrefill : rows[0] == 0 ? Phase::kDecode : Phase::kMixed; }
};

// One Step() of the engine.
struct StepRecord {
  Phase phase = Phase::kPrefill;
  uint32_t rows = 0;                // tokens in the batch
  uint32_t logit_rows = 0;          // rows with logits
  uint64_t parameters_touched = 0;  // the union over the step's ops and tokens
};

// Unit costs of an op at one site.
struct SiteCost {
  Site site = {};
  struct Unit {
    Amount amount = {};
    Cost useful = {}, executed = {};  // for one of `amount`
  };
  std::vector<Unit> units = {};
};

class Ledger {
 public:
  // --- the engine's side

  // `weights[id]` describes the weight whose views have this id. Resets the ledger.
  TALLY_API void SetWeights(std::vector<WeightInfo> weights);
  const std::vector<WeightInfo>& weights() const { return weights_; }

  // Adds an op for the ledger's lifetime and returns the index to charge it by. A fused op has a SiteCost for each of its parts.
  TALLY_API uint32_t AddOp(std::vector<SiteCost> sites);
  // Charges belong to the step begun last.
  TALLY_API void BeginStep(const StepRows& rows);
  void Charge(uint32_t op, Phase phase, const CostAmounts& amounts) { ops_[op].amounts[static_cast<size_t>(phase)] += amounts; }
  void Touch(const WeightTouch& touch) { touched_.Touch(touch); }
  TALLY_API void EndStep();
  // Adds a one-off op and charges it. Begins an empty step if none is open. Each call adds an op for the ledger's lifetime.
  TALLY_API void Charge(Site site, const Cost& useful, const Cost& executed, std::span<const WeightTouch> touches);

  // --- the reader's side: sums since Reset; a step in progress counts up to its last finished op

  TALLY_API Account total(Phase p) const;
  TALLY_API Account at(Phase p, Site site) const;
  // Steps begun; kMixed: steps with rows of both phases. rows and logit_rows of kMixed are 0.
  uint64_t steps(Phase p) const { return counts_[static_cast<size_t>(p)].steps; }
  uint64_t rows(Phase p) const { return counts_[static_cast<size_t>(p)].rows; }
  uint64_t logit_rows(Phase p) const { return counts_[static_cast<size_t>(p)].logit_rows; }
  // Sum over the steps that have ended of the parameters that each touched; divided by steps(p) it is the mean.
  uint64_t parameters_touched(Phase p) const { return counts_[static_cast<size_t>(p)].parameters_touched; }
  TALLY_API StepRecord last_step() const;
  // The weight rows touched in the last step, and in any step.
  const TouchSet& touched() const { return touched_; }
  // Clears the charges. Ops and the table of weights stay.
  TALLY_API void Reset();

 private:
  struct Op {
    std::vector<SiteCost> sites;
    std::array<CostAmounts, kPhases> amounts;
  };
  struct Counts {
    uint64_t steps = 0, rows = 0, logit_rows = 0, parameters_touched = 0;
  };
  template <class Wanted>
  Account Sum(Phase p, const Wanted& wanted) const;

  std::vector<WeightInfo> weights_;
  std::vector<Op> ops_;
  std::array<Counts, kPhases> counts_;
  TouchSet touched_;
  StepRows last_;
  bool open_ = false;
};

}  // namespace tally
