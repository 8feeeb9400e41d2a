// The ledger: what every op that ran was charged with.
//
// Costs are linear in an op's amounts (counters/cost/cost.h). An op's unit costs are found once, when it is added; a charge adds
// amounts at the op's index, and whoever reads multiplies. Work is booked by phase, row by row: see Phase. Within a step the touched
// parameters are a set: an expert that two tokens of a batch share, or a tied matrix that is both gathered from and multiplied by, is
// touched once.
//
// FLOPs, special operations and bytes are counts, parameters elements. No call fails. Not to be used by two threads at once.
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
  Cost useful;
  Cost executed;
  uint64_t ops = 0;  // runs of ops that had rows
};

// Rows of a step by their phase, [prefill, decode]: all, and those whose logits were asked for.
struct StepRows {
  std::array<uint32_t, 2> rows{}, logit_rows{};
  static StepRows Of(Phase phase, uint32_t rows, uint32_t logit_rows) {
    return phase == Phase::kDecode ? StepRows{{0, rows}, {0, logit_rows}} : StepRows{{rows, 0}, {logit_rows, 0}};
  }
  uint32_t all() const { return rows[0] + rows[1]; }
  uint32_t all_logits() const { return logit_rows[0] + logit_rows[1]; }
  // Of what the step does once.
  Phase phase() const { return rows[1] == 0 ? Phase::kPrefill : rows[0] == 0 ? Phase::kDecode : Phase::kMixed; }
};

// One Step() of the engine.
struct StepRecord {
  Phase phase = Phase::kPrefill;
  uint32_t rows = 0;                // tokens in the batch
  uint32_t logit_rows = 0;          // rows whose logits were asked for
  uint64_t parameters_touched = 0;  // the step's set: the union over its ops and tokens
};

// What a run of an op costs at one site, by amount.
struct SiteCost {
  Site site;
  struct Unit {
    Amount amount;
    Cost useful, executed;  // of one
  };
  std::vector<Unit> units;
};

class Ledger {
 public:
  // --- the engine's side

  // `weights[id]` describes weight `id`; ids are handed to the views that ops carry. Resets.
  TALLY_API void SetWeights(std::vector<WeightInfo> weights);
  const std::vector<WeightInfo>& weights() const { return weights_; }

  // An op to be charged by the index that is returned, for as long as the ledger lives. A fused op has a SiteCost for each of its parts.
  TALLY_API uint32_t AddOp(std::vector<SiteCost> sites);
  // Charges belong to the step begun last.
  TALLY_API void BeginStep(const StepRows& rows);
  void Charge(uint32_t op, Phase phase, const CostAmounts& amounts) { ops_[op].amounts[static_cast<size_t>(phase)] += amounts; }
  void Touch(const WeightTouch& touch) { touched_.Touch(touch); }
  TALLY_API void EndStep();
  // Charges what runs but once; a step of no rows is begun where none is open.
  TALLY_API void Charge(Site site, const Cost& useful, const Cost& executed, std::span<const WeightTouch> touches);

  // --- the reader's side: what was charged since Reset, up to the last finished op of a step in progress

  TALLY_API Account total(Phase p) const;
  TALLY_API Account at(Phase p, Site site) const;
  // Steps begun; kMixed: those with rows of both phases. Rows are never kMixed.
  uint64_t steps(Phase p) const { return counts_[static_cast<size_t>(p)].steps; }
  uint64_t rows(Phase p) const { return counts_[static_cast<size_t>(p)].rows; }
  uint64_t logit_rows(Phase p) const { return counts_[static_cast<size_t>(p)].logit_rows; }
  // The sizes of the sets of the steps that have ended, added up: divide by steps(p) for the mean.
  uint64_t parameters_touched(Phase p) const { return counts_[static_cast<size_t>(p)].parameters_touched; }
  TALLY_API StepRecord last_step() const;
  // What the last step touched, and any step: see TouchSet.
  const TouchSet& touched() const { return touched_; }
  // Forgets the charges; ops and the table of weights stay.
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
