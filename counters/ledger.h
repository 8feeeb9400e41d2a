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
  Ledger() = default;
  Ledger(const Ledger&) = default;            // as it stands, to look at later
  Ledger& operator=(const Ledger&) = delete;  // the engine that charges it knows what it holds
  // The engine's side. `weights[id]` describes weight `id`; ids are handed to the views that ops carry. Resets.
  TALLY_API void SetWeights(std::vector<WeightInfo> weights);
  const std::vector<WeightInfo>& weights() const { return weights_; }

  // BeginStep ends a step that an error left open: what it had charged stays charged.
  TALLY_API void BeginStep(Phase phase, uint32_t rows, uint32_t logit_rows);
  TALLY_API void Charge(Site site, std::string_view op, const Cost& useful, const Cost& executed,
                        std::span<const WeightTouch> touches);
  // The same for an op that is charged alike step after step, for a fraction of the work: what Charge gave for it before, in this
  // phase, is charged once more. False, and nothing is charged: it has been forgotten (Reset, or the phase is another one).
  struct Repeatable {
    uint32_t index = UINT32_MAX;
    uint32_t generation = 0;
  };
  TALLY_API bool ChargeAgain(Repeatable what, std::span<const WeightTouch> touches);
  // Charges and remembers; what `replaces` stood for need not be remembered any more.
  TALLY_API Repeatable ChargeRepeatable(Repeatable replaces, Site site, const Cost& useful, const Cost& executed,
                                        std::span<const WeightTouch> touches);
  TALLY_API void EndStep();

  // The reader's side.
  TALLY_API const StepRecord& last_step() const;
  Phase phase() const { return last_.phase; }  // of the step under way, or of the last
  // Sums of what was charged since Reset, the step under way included, by phase; and by phase, layer (-1 first) and component.
  TALLY_API const Account& total(Phase p) const;
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
  // What charging needs of a weight, and of one slice of it in this step (epoch_) and since Reset: small, as they are read for every
  // touch of every op.
  struct WeightSize {
    size_t first_slice = 0;  // in slices_
    uint32_t slices = 0;
    uint64_t rows = 0, cols = 0;
  };
  struct SliceState {
    uint32_t whole_epoch = 0;    // the last step that touched every row
    uint32_t partial_epoch = 0;  // the last step that touched some rows; `rows` counts them
    uint32_t used_epoch = 0;     // the last step that used it, `used` times
    uint64_t used = 0;
    uint64_t rows = 0;
    uint64_t rows_ever = 0;  // all rows of the weight: nothing more to learn
  };
  struct SliceRows {                  // beside each SliceState
    std::vector<uint32_t> row_epoch;  // row -> last step that touched it alone; allocated at the first partial touch
    std::vector<bool> row_ever;
  };
  // Charges that repeat are counted, and added to the sums when these are read. What counting needs lies apart from the rest and in
  // the order of the ops: a step reads more weights than the caches hold, so each line read here is one more from far away.
  struct RepeatedCount {
    uint64_t count = 0;  // not yet in the sums
    uint32_t epoch = 0;  // the last step that was charged with it
    Phase phase = Phase::kPrefill;
  };
  struct RepeatedCost {
    Site site;
    Cost useful, executed;
  };
  Account& SiteAccount(Phase phase, Site site) const;
  void Settle(size_t repeated) const;
  void SettleAll() const;
  void Touch(const WeightTouch& touch);
  const SliceState* Slice(WeightId id, uint32_t slice) const;  // null: none, or no step yet
  uint64_t TouchRows(const WeightSize& w, size_t slice, uint32_t begin, uint32_t end);

  std::vector<WeightInfo> weights_;
  std::vector<WeightSize> sizes_;  // of each weight
  std::vector<SliceState> slices_;
  std::vector<SliceRows> slice_rows_;
  uint32_t epoch_ = 0;
  bool open_ = false;
  uint64_t touched_ever_ = 0, bad_touches_ = 0;
  mutable std::vector<RepeatedCount> repeated_;
  std::vector<RepeatedCost> repeated_costs_;
  mutable bool unsettled_ = false;  // some of repeated_ has a count
  uint32_t generation_ = 0;         // of repeated_: counts the Resets
  mutable StepRecord last_;
  Account single_;  // of the last step what was charged by Charge
  mutable Account totals_[2];
  uint64_t steps_[2] = {}, rows_[2] = {}, logit_rows_[2] = {}, touched_[2] = {};
  mutable std::vector<Account> sites_[2];  // (layer + 1) * kComponents + component
};

}  // namespace tally
