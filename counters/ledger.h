// The ledger: what every op that ran was charged with.
//
// The executor charges each op as it runs. Within a step the touched parameters are a set: an
// expert that two tokens of a batch share, or a tied matrix that is both gathered from and multiplied by, is
// touched once.
//
// Units: FLOPs, special operations and bytes are counts (counters/cost.h), parameters elements. References that its members return
// hold until the ledger changes, and last_step()'s until it is called again. No call fails. Not to be used by two threads at once.
//
// Charging must cost next to nothing: a decode step of a small model is a hundred ops in as many microseconds, and streams its weights
// through the caches that the books lie in. So a charge is written down as it is made and reckoned up later: when its step ends, or when
// somebody reads. What the steps of a decode have in common, which is nearly all, is reckoned up once for all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "counters/cost.h"
#include "counters/site.h"
#include "counters/touch_marks.h"
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

  // BeginStep ends a step that an error left open: what it had charged stays charged.
  TALLY_API void BeginStep(Phase phase, uint32_t rows, uint32_t logit_rows);
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
    uint32_t index = 0, generation = 0;
    uint32_t linear = 0;  // in linear_
  };
  TALLY_API TariffId AddTariff(const Tariff& tariff);
  // Charges with `count` tariffs that were added one after the other, `first` and those behind it. False, and nothing is charged: they
  // have been forgotten (by Reset, or by BeginStep as there were too many), or no step is open.
  bool Charge(TariffId first, uint32_t count = 1) {
    if (!Knows(first)) return false;
    if (run_.end != first.index) BeginRun(first.index);
    run_.end += count;
    return true;
  }
  // What belongs to a charge is given before it, in the same step, once for each charge and in their order.
  // The amounts of a tariff that has them. False: it has been forgotten, or charged in this step already; it is not to be charged then.
  TALLY_API bool GiveAmounts(TariffId id, const CostAmounts& amounts);
  // The slices of a tariff by slice: append(std::vector<SliceUse>&) appends them. Of one that has been forgotten nothing is taken.
  template <class F>
  void GiveSlices(TariffId id, F append) {
    if (!Knows(id)) return;
    append(slices_);
    slice_charges_.push_back({id.index, static_cast<uint32_t>(slices_.size())});
  }
  // What a charge touches besides what its tariff says: append(WeightTouches&) appends it.
  template <class F>
  void GiveTouches(TariffId id, F append) {
    if (Knows(id)) append(touches_);
  }
  // Say that these will be given soon: what is written then lies far away.
  void PrefetchAmounts(TariffId id) const {
    if (!Knows(id) || id.linear >= linear_.size()) return;
    const char* const at = reinterpret_cast<const char*>(linear_.data() + id.linear);
    __builtin_prefetch(at, 1);
    __builtin_prefetch(at + 64, 1);
  }
  void PrefetchSlices() const {
    __builtin_prefetch(slices_.data() + slices_.size(), 1);
    __builtin_prefetch(slice_charges_.data() + slice_charges_.size(), 1);
  }
  bool in_step() const { return open_; }
  uint32_t tariff_generation() const { return generation_; }  // TariffIds of another one are forgotten
  void CountDefect() { ++bad_touches_; }                      // a charge that could not be made
  TALLY_API void EndStep();

  // The reader's side.
  TALLY_API const StepRecord& last_step() const;
  Phase phase() const { return last_.phase; }  // of the step under way, or of the last
  // Sums of what was charged since Reset, the step under way included (its ops until now, where a tap or a
  // recorder asks), by phase; and by phase, layer (-1 first) and component.
  TALLY_API Account total(Phase p) const;
  uint64_t steps(Phase p) const { return counts_[static_cast<int>(p)].steps; }
  uint64_t rows(Phase p) const { return counts_[static_cast<int>(p)].rows; }
  uint64_t logit_rows(Phase p) const { return counts_[static_cast<int>(p)].logit_rows; }
  TALLY_API Account at(Phase p, Site site) const;
  // The steps' sets, their sizes added up: divide by steps(p) for the mean.
  uint64_t parameters_touched(Phase p) const { return counts_[static_cast<int>(p)].parameters_touched; }
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
  // Touches that named no weight of the table or rows outside of it, and charges that were lost. Anything but 0 is a defect: accounts
  // built on this ledger must not be trusted.
  TALLY_API uint64_t bad_touches() const;
  // Forgets the steps; the table of weights stays.
  TALLY_API void Reset();

 private:
  struct KnownTariff {
    Site site;
    uint32_t first_unit = 0, units = 0;     // in units_
    uint32_t first_touch = 0, touches = 0;  // in tariff_touches_
    uint32_t detail = 0;                    // units > 1: in linear_; by_slice: in sliced_
    bool by_slice = false;                  // then units is 1
  };
  // Of a tariff with amounts: those of the last step that was charged with it, and the sum of those before that are not yet in the
  // accounts.
  struct alignas(64) Linear {
    uint32_t tariff = 0;
    uint32_t step = 0;  // that `last` is of
    CostAmounts last{}, before{};
  };
  struct Sliced {  // of a tariff by slice
    uint32_t tariff = 0, slices = 0;
    uint32_t first_ever = 0;        // in sliced_ever_, 64 slices a word
    uint64_t slice_parameters = 0;  // of all its weights
  };
  struct SliceCharge {
    uint32_t tariff = 0;
    uint32_t end = 0;  // in slices_, from where that of the charge before ends
  };
  struct Run {  // tariffs [begin, end), charged one after the other
    uint32_t begin = 0, end = 0;
    bool operator==(const Run&) const = default;
  };
  // What the last steps, `steps` of one phase, were all charged with; not yet in the accounts.
  struct Routine {
    Phase phase = Phase::kPrefill;
    uint64_t steps = 0;
    bool examined = false;  // what follows `runs` is known
    Run run;                // the last,
    std::vector<Run> runs;  // and those before it
    std::vector<Sliced> sliced;
    uint64_t parameters = 0;  // that its tariffs touch whatever is given with the charge
    uint32_t begin() const { return runs.empty() ? run.begin : runs[0].begin; }
    bool plain = false;  // no weight is touched by a tariff by slice and by another one, or but for some of its rows
  };
  struct Weight {  // of weights_, what is looked at in each step
    enum class Standing : uint8_t {
      kFree,
      kWhole,
      kBySlice,
      kOther
    } standing = Standing::kFree;  // how the routine's tariffs touch it
    uint32_t slices = 0;
    uint64_t rows = 0, cols = 0;
  };
  struct Counts {
    uint64_t steps = 0, rows = 0, logit_rows = 0, parameters_touched = 0;
  };

  bool Knows(TariffId id) const { return open_ && id.generation == generation_; }
  TALLY_API void BeginRun(uint32_t tariff);
  template <class F>
  void ForEachTariff(const std::vector<Run>& runs, const Run& last, F f) const;
  Account& SiteAccount(Phase phase, Site site);
  void Add(const KnownTariff& tariff, uint64_t times, Account& sum) const;
  void AddLinear(const KnownTariff& tariff, const CostAmounts& amounts, uint64_t times, Account& sum) const;
  void AddRoutine(const KnownTariff& tariff, Account& sum) const;
  void AddStep(const KnownTariff& tariff, Account& sum) const;
  Account Sum(Phase p, std::optional<Site> site) const;
  void PostRoutine(bool step_is_apart);
  void ExamineRoutine();
  bool QuicklyTouched(uint64_t& parameters);
  void Mark() const;
  TouchMarks& Marked() const;
  void FoldEver() const;
  void ForgetTariffs();

  // What every charge and every step looks at lies together.
  bool open_ = false;
  bool has_single_ = false;      // single_ holds something
  mutable bool marked_ = false;  // marks_ are those of the last step, which has ended
  uint32_t generation_ = 1;      // of the tariffs: counts how often they were forgotten
  uint32_t step_ = 0;            // counts the steps; 0: none yet
  // What the step under way, or the last, was charged with.
  Run run_;  // the last run of tariffs,
  std::vector<Linear> linear_;
  std::vector<SliceCharge> slice_charges_;
  std::vector<SliceUse> slices_;
  std::vector<Run> runs_;  // the runs before it
  WeightTouches touches_;  // given with a charge
  Routine routine_;
  std::vector<Sliced> sliced_;
  mutable std::vector<uint64_t> sliced_ever_;  // a bit a slice: touched since this was last looked at
  mutable WeightTouches rows_ever_;            // the same for rows
  std::vector<Weight> facts_;                  // beside weights_
  Counts counts_[2];
  mutable StepRecord last_;

  Account single_;  // sum of the charges without tariff
  std::vector<WeightInfo> weights_;
  std::vector<KnownTariff> tariffs_;
  std::vector<UnitCost> units_;
  WeightTouches tariff_touches_;
  mutable TouchMarks marks_;
  uint64_t bad_touches_ = 0;
  Account totals_[2];
  std::vector<Account> sites_[2];  // (layer + 1) * kComponents + component
};

}  // namespace tally
