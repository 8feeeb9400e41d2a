// What steps were charged with, as it came: written while ops run, and reckoned up later (counters/ledger/ledger.h).
//
// Writing must cost next to nothing. A step of a small model streams its weights through the caches, so whatever it reads that the step
// before left behind is far away by now; what it only writes at the end of something, nobody waits for.
//
// Begin comes first; what is added belongs to the step begun last. Amounts are in the units of the tariff's (counters/cost/cost.h), rows are
// tokens. No call fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/site.h"

namespace tally {

class StepLog {
 public:
  struct Run {  // tariffs [begin, end), charged one after the other
    uint32_t begin = 0, end = 0;
    bool operator==(const Run&) const = default;
  };
  struct Amounts {  // given with a charge of `tariff`
    uint32_t tariff = 0;
    CostAmounts amounts{};
  };
  struct Slices {  // given with a charge of `tariff`: how many
    uint32_t tariff = 0, count = 0;
  };
  // One step; valid until the log changes.
  struct Step {
    Phase phase = Phase::kPrefill;
    uint32_t rows = 0, logit_rows = 0;  // tokens in the batch, and those whose logits were asked for
    std::span<const Run> runs;
    std::span<const Amounts> amounts;
    std::span<const Slices> slice_charges;
    std::span<const SliceUse> slices;  // of the slice_charges, one after the other
    std::span<const WeightTouch> touches;
  };

  size_t size() const { return steps_.size(); }  // steps
  // Another step had better begin a new log: this one outgrows the caches.
  bool IsFull() const {
    return steps_.size() >= kMostSteps ||
           runs_.size() + amounts_.size() + slice_charges_.size() + slices_.size() + touches_.size() > kMostEntries;
  }
  void Clear() {
    steps_.clear();
    runs_.clear();
    amounts_.clear();
    slice_charges_.clear();
    slices_.clear();
    touches_.clear();
    slices_charged_ = 0;
  }

  void Begin(Phase phase, uint32_t rows, uint32_t logit_rows) {
    DropSlices();
    steps_.push_back({phase, rows, logit_rows, Size(runs_), Size(amounts_), Size(slice_charges_), Size(slices_), Size(touches_)});
  }
  void AddRun(Run run) { runs_.push_back(run); }
  void AddAmounts(uint32_t tariff, const CostAmounts& amounts) { amounts_.push_back({tariff, amounts}); }
  // Append here (only append: earlier steps' come first), then AddSlices: all that was appended since the last one is that charge's.
  std::vector<SliceUse>& slices() { return slices_; }
  void AddSlices(uint32_t tariff) {
    slice_charges_.push_back({tariff, Size(slices_) - slices_charged_});
    slices_charged_ = Size(slices_);
  }
  void DropSlices() { slices_.resize(slices_charged_); }  // that were appended since
  WeightTouches& touches() { return touches_; }           // only append

  Step step(size_t i) const {
    const Begun& at = steps_[i];
    const Begun end = i + 1 < steps_.size()
                          ? steps_[i + 1]
                          : Begun{{}, 0, 0, Size(runs_), Size(amounts_), Size(slice_charges_), Size(slices_), Size(touches_)};
    return {at.phase,
            at.rows,
            at.logit_rows,
            Part(runs_, at.run, end.run),
            Part(amounts_, at.amounts, end.amounts),
            Part(slice_charges_, at.slice_charge, end.slice_charge),
            Part(slices_, at.slice, end.slice),
            Part(touches_, at.touch, end.touch)};
  }
  Step last() const { return steps_.empty() ? Step{} : step(steps_.size() - 1); }

 private:
  static constexpr size_t kMostSteps = 64, kMostEntries = 4096;
  struct Begun {
    Phase phase = Phase::kPrefill;
    uint32_t rows = 0, logit_rows = 0;
    uint32_t run = 0, amounts = 0, slice_charge = 0, slice = 0, touch = 0;  // where the step's begin
  };
  template <class T>
  static uint32_t Size(const std::vector<T>& v) {
    return static_cast<uint32_t>(v.size());
  }
  template <class T>
  static std::span<const T> Part(const std::vector<T>& v, uint32_t begin, uint32_t end) {
    return std::span<const T>(v).subspan(begin, end - begin);
  }

  std::vector<Begun> steps_;
  std::vector<Run> runs_;
  std::vector<Amounts> amounts_;
  std::vector<Slices> slice_charges_;
  std::vector<SliceUse> slices_;
  uint32_t slices_charged_ = 0;  // of them
  WeightTouches touches_;
};

}  // namespace tally
