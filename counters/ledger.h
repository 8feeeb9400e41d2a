// The ledger: what every op that ran was charged with.
//
// The executor charges each op at the moment it runs. Within a step the touched parameters are a set: an
// expert that two tokens of a batch share, or a tied matrix that is both gathered from and multiplied by, is
// touched once.
//
// Units: FLOPs, special operations and bytes are counts (counters/cost.h), parameters elements. References that its members return
// hold until the ledger changes: the next step or Reset. No call fails. Not to be used by two threads at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost.h"
#include "counters/site.h"
#include "engine/base/export.h"

namespace tally {

enum class Phase : uint8_t { kPrefill, kDecode };

// The sum over a set of ops.
struct Account {
  Cost useful;
  Cost executed;
  uint64_t ops = 0;  // how many
  TALLY_API Account& operator+=(const Account& o);
};

// One Step() of the engine.
struct StepRecord {
  Phase phase = Phase::kPrefill;
  uint32_t rows = 0;        // tokens in the batch
  uint32_t logit_rows = 0;  // rows whose logits were asked for
  Account account;
  uint64_t parameters_touched = 0;  // the step's set (union over its ops and tokens)
};

class Ledger {
 public:
  // The engine's side. `weights[id]` describes weight `id`; ids are handed to the views that ops carry. Resets.
  TALLY_API void SetWeights(std::vector<WeightInfo> weights);
  const std::vector<WeightInfo>& weights() const { return weights_; }

  // BeginStep ends a step that an error left open: what it had charged stays charged.
  TALLY_API void BeginStep(Phase phase, uint32_t rows, uint32_t logit_rows);
  TALLY_API void Charge(Site site, std::string_view op, const Cost& useful, const Cost& executed,
                        std::span<const WeightTouch> touches);
  TALLY_API void EndStep();

  // The reader's side.
  const StepRecord& last_step() const { return last_; }
  // Sums over the steps ended since Reset, by phase; and by phase, layer (-1 first) and component.
  const Account& total(Phase p) const { return totals_[static_cast<int>(p)]; }
  uint64_t steps(Phase p) const { return steps_[static_cast<int>(p)]; }
  uint64_t rows(Phase p) const { return rows_[static_cast<int>(p)]; }
  uint64_t logit_rows(Phase p) const { return logit_rows_[static_cast<int>(p)]; }
  TALLY_API const Account& at(Phase p, Site site) const;
  // The steps' sets, their sizes added up: divide by steps(p) for the mean.
  uint64_t parameters_touched(Phase p) const { return touched_[static_cast<int>(p)]; }
  // Of one weight, in the last step: elements touched; slices of which some were; and of a slice the rows of activations that it was
  // read for (an expert's tokens). 0 where there is no such weight or slice.
  TALLY_API uint64_t touched_last(WeightId id) const;
  TALLY_API uint32_t slices_last(WeightId id) const;
  TALLY_API uint64_t uses_last(WeightId id, uint32_t slice) const;
  // The rows of a slice that the last step touched, in order, ranges as long as can be.
  struct RowRange {
    uint64_t begin = 0, end = 0;
    bool operator==(const RowRange&) const = default;
  };
  TALLY_API std::vector<RowRange> ranges_last(WeightId id, uint32_t slice) const;
  // Parameters touched by any step since Reset.
  uint64_t parameters_touched_ever() const { return touched_ever_; }
  // Touches that named no weight of the table or rows outside of it. Anything but 0 is a defect: accounts
  // built on this ledger must not be trusted.
  uint64_t bad_touches() const { return bad_touches_; }
  // Forgets the steps; the table of weights stays.
  TALLY_API void Reset();

 private:
  // One slice of a weight, in this step (epoch_) and since Reset.
  struct SliceState {
    uint32_t whole_epoch = 0;    // the last step that touched every row
    uint32_t partial_epoch = 0;  // the last step that touched some rows; `rows` counts them
    uint64_t rows = 0;
    uint64_t rows_ever = 0;   // all rows of the weight: nothing more to learn
    uint32_t used_epoch = 0;  // the last step that used it, `used` times
    uint64_t used = 0;
    std::vector<uint32_t> row_epoch;  // row -> last step that touched it alone; allocated at the first partial touch
    std::vector<bool> row_ever;
  };
  void Touch(const WeightTouch& touch);
  const SliceState* Slice(WeightId id, uint32_t slice) const;  // null: none, or no step yet
  uint64_t TouchRows(const WeightInfo& w, SliceState& s, uint32_t begin, uint32_t end);

  std::vector<WeightInfo> weights_;
  std::vector<size_t> first_slice_;  // weight -> index of its first slice in slices_
  std::vector<SliceState> slices_;
  uint32_t epoch_ = 0;
  bool open_ = false;
  uint64_t touched_ever_ = 0, bad_touches_ = 0;
  StepRecord last_;
  Account totals_[2];
  uint64_t steps_[2] = {}, rows_[2] = {}, logit_rows_[2] = {}, touched_[2] = {};
  std::vector<Account> sites_[2];  // (layer + 1) * kComponents + component
};

}  // namespace tally
