// The ledger: what every op that ran was charged with.
//
// The executor charges each op as it runs. Within a step the touched parameters are a set: an
// expert that two tokens of a batch share, or a tied matrix that is both gathered from and multiplied by, is
// touched once.
//
// Units: FLOPs, special operations and bytes are counts (counters/cost/cost.h), parameters elements. No call fails. Not to be used by two
// threads at once, readers among them: a charge is only written down as it is made (counters/ledger/step_log.h) and reckoned up later, when
// somebody reads or many steps have come together. What the steps of a decode have in common, which is nearly all, is reckoned up once
// for all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/site.h"
#include "counters/ledger/step_log.h"
#include "counters/ledger/touch_marks.h"
#include "engine/base/export.h"

namespace tally {

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
  uint32_t rows = 0;                // tokens in the batch
  uint32_t logit_rows = 0;          // rows whose logits were asked for
  uint64_t parameters_touched = 0;  // the step's set (union over its ops and tokens)
  Account account;
};

class Ledger {
 public:
  Ledger() = default;
  Ledger(const Ledger&) = default;            // as it stands, to look at later
  Ledger& operator=(const Ledger&) = delete;  // the engine that charges it knows what it holds
  // The engine's side. `weights[id]` describes weight `id`; ids are handed to the views that ops carry. Resets.
  TALLY_API void SetWeights(std::vector<WeightInfo> weights);
  const std::vector<WeightInfo>& weights() const { return weights_; }

  // Ends a step that an error left open: what it had charged stays charged.
  void BeginStep(Phase phase, uint32_t rows, uint32_t logit_rows) {
    open_ = false;
    if (log_.IsFull() || crowded_ || has_single_) MakeRoom();
    open_ = true;
    log_.Begin(phase, rows, logit_rows);
  }
  TALLY_API void Charge(Site site, const Cost& useful, const Cost& executed, std::span<const WeightTouch> touches);
  // What an op that runs step after step is charged with: described once, then charged for a fraction of the work.
  struct UnitCost {
    Cost useful, executed;
  };
  struct Tariff {
    Site site;
    std::vector<UnitCost> units{};  // one, or up to kCostAmounts, of each amount that is given with the charge; none: no cost
    WeightTouches touches{};        // of every charge; by_slice: of every slice that is given with it, in place of theirs
    bool by_slice = false;          // then there is one unit
  };
  struct TariffId {
    uint64_t value = 0;  // of tariffs added one after the other, consecutive; 0: no tariff's
    uint32_t index() const { return static_cast<uint32_t>(value); }
    uint32_t generation() const { return static_cast<uint32_t>(value >> 32); }
    bool operator==(const TariffId&) const = default;
  };
  TALLY_API TariffId AddTariff(const Tariff& tariff);
  // Charges with `count` tariffs that were added one after the other, `first` and those behind it. False, and nothing is charged: they
  // have been forgotten (by Reset, or by BeginStep as there were too many), or no step is open.
  bool Charge(TariffId first, uint32_t count = 1) {
    if (!Knows(first)) return false;
    log_.AddRun({first.index(), first.index() + count});
    return true;
  }
  // What belongs to a charge is given in the same step, once for each charge; in the order of the charges, or reckoning it up takes
  // longer. What is given and not charged, or the reverse, is a defect (of amounts one a step, of slices another). Only while a step is
  // open, of a tariff that is not forgotten.
  // The amounts of a tariff of several units.
  TALLY_API void GiveAmounts(TariffId id, const CostAmounts& amounts);
  // The slices of a tariff by slice are appended to slices() first.
  std::vector<SliceUse>& slices() { return log_.slices(); }
  TALLY_API void GiveSlices(TariffId id);
  // What a charge touches besides what its tariff says, if anything. As to slices(), only append to it: earlier steps' come first.
  WeightTouches& touches() { return log_.touches(); }
  bool in_step() const { return open_; }
  uint32_t tariff_generation() const { return generation_; }  // TariffIds of another one are forgotten
  TALLY_API void CountDefect();                               // a charge that could not be made
  void EndStep() { open_ = false; }

  // The reader's side.
  TALLY_API StepRecord last_step() const;
  // Sums of what was charged since Reset, the step under way included (its ops until now, where a tap or a
  // recorder asks; elsewhere the executor may hold some back), by phase; and by phase, layer (-1 first) and component.
  TALLY_API Account total(Phase p) const;
  TALLY_API Account at(Phase p, Site site) const;
  // Steps that have ended, and their rows.
  uint64_t steps(Phase p) const { return Settled(p).steps; }
  uint64_t rows(Phase p) const { return Settled(p).rows; }
  uint64_t logit_rows(Phase p) const { return Settled(p).logit_rows; }
  // The steps' sets, their sizes added up: divide by steps(p) for the mean.
  uint64_t parameters_touched(Phase p) const { return Settled(p).parameters_touched; }
  // Of one weight, in the last step: elements touched; slices of which some were; and of a slice the rows of activations that it was
  // read for (an expert's tokens). 0 where there is no such weight or slice.
  TALLY_API uint64_t touched_last(WeightId id) const;
  TALLY_API uint32_t slices_last(WeightId id) const;
  TALLY_API uint64_t uses_last(WeightId id, uint32_t slice) const;
  // The rows of a slice that the last step touched, in order, ranges as long as can be.
  using RowRange = TouchMarks::RowRange;
  TALLY_API std::vector<RowRange> ranges_last(WeightId id, uint32_t slice) const;
  // Parameters touched by any step since Reset.
  TALLY_API uint64_t parameters_touched_ever() const;
  // Touches that named no weight of the table or rows outside of it, charges that were lost, and what was given without a charge or
  // charged without what it needs. Anything but 0 is a defect: accounts built on this ledger must not be trusted.
  TALLY_API uint64_t bad_touches() const;
  // Forgets the steps; the table of weights stays.
  TALLY_API void Reset();

 private:
  struct KnownTariff {
    Site site;
    uint32_t first_unit = 0, units = 0;     // in units_
    uint32_t first_touch = 0, touches = 0;  // in tariff_touches_
    uint32_t sliced = 0;                    // by_slice: in sliced_
    bool by_slice = false;                  // then units is 1
  };
  struct Sliced {  // of a tariff by slice
    uint32_t tariff = 0, slices = 0;
    uint32_t first_ever = 0;        // in slices_ever, 64 slices a word
    uint64_t slice_parameters = 0;  // of all its weights
  };
  struct Linear {  // of a charge with amounts: their sum
    uint32_t tariff = 0;
    CostAmounts sum{};
  };
  // What the last steps, `steps` of one phase, were all charged with; not yet in the accounts.
  struct Routine {
    Phase phase = Phase::kPrefill;
    uint64_t steps = 0;
    std::vector<StepLog::Run> runs;
    std::vector<Linear> linear;  // its charges with amounts, in order,
    std::vector<Sliced> sliced;  // and those by slice
    bool examined = false;       // what follows is known
    bool plain = false;          // no weight is touched by a tariff by slice and by another one, or but for some of its rows
    uint64_t parameters = 0;     // that its tariffs touch whatever is given with the charge
    enum class Standing : uint8_t { kFree, kWhole, kBySlice, kOther };
    std::vector<Standing> standing;  // how its tariffs touch each weight
  };
  struct Counts {
    uint64_t steps = 0, rows = 0, logit_rows = 0, parameters_touched = 0;
  };
  // What has been reckoned up.
  struct Books {
    size_t steps = 0;   // of the log, from its first
    size_t marked = 0;  // n: marks are those of the log's n-th step, which has ended; 0: of none
    TouchMarks marks;
    Routine routine;
    uint64_t last_parameters_touched = 0;  // by the last of `steps`
    Counts counts[2];
    std::vector<uint64_t> slices_ever;  // a bit a slice: touched since this was last looked at
    WeightTouches rows_ever;            // the same for rows
    uint64_t bad_touches = 0;
    Account totals[2];
    std::vector<Account> sites[2];  // (layer + 1) * kComponents + component
  };

  bool Knows(TariffId id) const { return open_ && id.generation() == generation_; }
  template <class F>
  void ForEachTariff(std::span<const StepLog::Run> runs, F f) const;
  Account& SiteAccount(Phase phase, Site site) const;
  void Add(const KnownTariff& tariff, uint64_t times, Account& sum) const;
  void AddAmounts(const KnownTariff& tariff, const CostAmounts& amounts, Account& sum) const;
  void AddStep(const StepLog::Step& step, std::optional<Site> site, Account& sum) const;
  Account Sum(Phase p, std::optional<Site> site) const;
  TALLY_API void MakeRoom();
  void ForgetTariffs();
  // Into the books: the reader need not know that they were not up to date.
  TALLY_API const Counts& Settled(Phase p) const;
  void Settle() const;
  void SettleStep(const StepLog::Step& step) const;
  void SettleAmounts(std::span<const StepLog::Amounts> given) const;
  void BeginRoutine(const StepLog::Step& step) const;
  void ExamineRoutine() const;
  void PostRoutine() const;
  bool QuicklyTouched(const StepLog::Step& step, uint64_t& parameters) const;
  void Mark(const StepLog::Step& step) const;
  TouchMarks& Marked() const;
  void FoldEver() const;

  // What every charge and every step looks at lies together.
  bool open_ = false;        // the log's last step is under way
  bool crowded_ = false;     // there are too many tariffs
  bool has_single_ = false;  // single_ holds something
  uint32_t generation_ = 1;  // of the tariffs: counts how often they were forgotten
  StepLog log_;

  Account single_;  // sum of the last step's charges without tariff
  std::vector<WeightInfo> weights_;
  std::vector<KnownTariff> tariffs_;
  std::vector<UnitCost> units_;
  WeightTouches tariff_touches_;
  std::vector<Sliced> sliced_;
  mutable Books books_;
};

}  // namespace tally
