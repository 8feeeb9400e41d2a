// SPDX-License-Identifier: Apache-2.0
// The executor runs every kernel. Nothing else does arithmetic on activations.
//   when an op's shapes change: validate -> pick a kernel -> plan its tasks -> reserve scratch -> find its unit costs
//   every run:                  charge the ledger -> run the tasks on the team -> record -> tap(site, output)
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "counters/ledger/ledger.h"
#include "counters/ledger/record.h"
#include "engine/base/aligned.h"
#include "engine/base/kinds.h"
#include "engine/kernels/matmul/stream.h"
#include "engine/kernels/op.h"
#include "engine/machine/parallel.h"

namespace tally {

inline constexpr uint64_t kShareGainNanoseconds = 20'000;

// The kernel that runs an op: with kBlas, OpenBLAS if it can; else the first of the op's table that can (kRef: only "ref").
// passed_over(kernel, why) is called for each kernel considered but not picked; `why` is null if it could have run. Returns null if
// none can.
template <class Op, class PassedOver>
const Kernel<Op>* PickKernel(const Op& op, ImplChoice choice, const PassedOver& passed_over) {
  const Kernel<Op>* picked = nullptr;
  const auto consider = [&](const Kernel<Op>& k) {
    const char* why = k.unsupported(op);
    if (why == nullptr && picked == nullptr) {
      picked = &k;
    } else {
      passed_over(k, why);
    }
  };
  for (const bool blas : {true, false}) {
    for (const Kernel<Op>& k : Kernels<Op>()) {
      if ((k.name == "blas") != blas || (blas && choice != ImplChoice::kBlas)) continue;
      if (choice == ImplChoice::kRef && k.name != "ref") continue;
      consider(k);
    }
  }
  return picked;
}

// Scratch bytes of a thread for the op.
template <class Op>
size_t ScratchBytes(const Op& op, ImplChoice choice, int threads) {
  const Kernel<Op>* kernel = PickKernel(op, choice, [](const Kernel<Op>&, const char*) {});
  return kernel != nullptr ? kernel->plan(op, threads).scratch_bytes : 0;
}

// The share of an op's useful work that a process of a lower rank does too (Account::copied): nothing, all, or what `part` returns.
struct CopiedWork {
  bool all = false;
  std::function<Cost(const CostAmounts& amounts)> part = {};  // of the first site
};

class Executor {
 public:
  Executor(Team& team, Ledger* ledger) : team_(team), ledger_(ledger), charged_(ledger) {}

  // Declares an op and returns the index to run it by. `sites`: one, or one for each part that is charged. `of`: which rows of the step its
  // rows are (ledger.h). `counted_rows`: SetRowCounts says how many of its rows belong to each row of the step.
  size_t Add(std::vector<Site> sites, uint8_t of = kAllRows, CopiedWork copied = {}, bool counted_rows = false);
  // [rows of the step]; valid until the step's next call.
  void SetRowCounts(std::span<const int32_t> counts) { row_counts_ = counts; }
  void BookUses(int32_t layer, const ExpertUses& uses) {
    if (ledger_ != nullptr) ledger_->BookUses(layer, uses);
  }
  // Ops run for further rows of the step, as parts of a run that has been charged: what is charged once a run is not charged again.
  void SetContinued(bool continued) { continued_ = continued; }

  // Runs op `index`. `reshaped`: its shapes may differ from its last run. The first run of an index is always treated as reshaped.
  template <class Op>
  Status Run(size_t index, const Op& op, bool reshaped) {
    Slot& slot = slots_[index];
    if (reshaped || slot.version != version_) TALLY_RETURN_IF_ERROR(Setup(slot, op));
    const Kernel<Op>& kernel = *static_cast<const Kernel<Op>*>(slot.kernel);
    CostAmounts amounts = op.Amounts();
    if (continued_) amounts[Amount::kCalls] = 0;
    const bool shared = SharedGain(slot.estimate, amounts) >= share_gain_ns_;
    if (ledger_ != nullptr && slot.charged != kNotCharged) Charge(slot, op, amounts);
    auto body = [&](int thread, int64_t begin, int64_t end) {
      kernel.run(op, begin, end, scratch_[static_cast<size_t>(thread)].span().first(slot.plan.scratch_bytes));
    };
    const Clock::time_point start = recorder_ ? Clock::now() : Clock::time_point();
    if (shared) {
      const Team::Ahead ahead = AheadOf(index);
      team_.Run(slot.plan.tasks, slot.plan.chunk, body, ahead);
      auto later = [&](int thread, int64_t begin, int64_t end) { body(thread, slot.plan.tasks + begin, slot.plan.tasks + end); };
      if (slot.plan.later > 0) team_.Run(slot.plan.later, 0, later, ahead);
    } else if (slot.plan.tasks > 0) {
      body(0, 0, slot.plan.tasks + slot.plan.later);
    }
    if (recorder_ || tap_) [[unlikely]]
      Show(slot, op, kernel, shared, start);
    return {};
  }

  // Called before and after the ops of a step; they begin and end the ledger's step.
  void BeginStep(std::span<const BookedRow> rows);
  void EndStep() {
    if (ledger_ != nullptr) ledger_->EndStep();
  }

  // Called after each op with a view of its output, valid during the call. Row-major f32.
  using Tap = std::function<void(Site, std::string_view op, Mat<const float> output)>;
  void SetTap(Tap tap) { tap_ = std::move(tap); }
  // Called after each op with its record, in which step, index, phase, sequences and logit_rows are not set. Ops are timed only
  // while a recorder is set.
  void SetRecorder(Recorder recorder) {
    recorder_ = std::move(recorder);
    recording_since_ = Clock::now();
  }
  // Null: nothing is charged. The ledger must live until the next SetLedger or the executor's end.
  void SetLedger(Ledger* ledger);
  void SetImpl(ImplChoice choice) {
    choice_ = choice;
    ++version_;
  }
  Phase phase() const { return phase_; }  // the phase of once-per-step work
  // An op is shared only if the team is estimated to save at least this many nanoseconds; else it runs on the calling thread.
  // Waking and joining the team takes microseconds, or milliseconds if another program uses one of the cores. 0: always share.
  void SetShareGain(uint64_t nanoseconds) { share_gain_ns_ = nanoseconds; }
  // From now on keeps which kernel ran and why others were passed over: "attn.q matmul: hwy (blas: activations are not f32)". One
  // line per component and op, of the last layer.
  void EnableExplain() {
    explain_ = true;
    ++version_;
  }
  const std::map<std::string, std::string>& explanations() const { return explanations_; }
  bool used_blas() const { return used_blas_; }
  Ledger* ledger() { return ledger_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kNotCharged = UINT32_MAX;
  // Unit costs by amount, to decide whether threads share an op.
  struct Estimate {
    std::array<uint64_t, kAmounts> flops{}, bytes{}, special{};
  };
  struct Slot {
    std::vector<Site> sites;
    uint8_t of = kAllRows;
    CopiedWork copied;
    bool counted_rows = false;
    uint64_t version = 0;            // value of version_ when the members below were set
    const void* kernel = nullptr;    // Kernel<Op>
    std::string_view target{};       // Highway target of the unit costs
    uint32_t charged = kNotCharged;  // index in the ledger
    TaskPlan plan{};
    Estimate estimate{};
    bool chosen = false;                              // the step's data choose its slices
    std::vector<std::span<const uint8_t>> streams{};  // what each thread reads first, or empty
    size_t ahead = 0;                                 // the op whose streams are read next; 0: not known
  };
  static uint64_t Nanoseconds(Clock::duration d) {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count());
  }

  template <class Op>
  Status Setup(Slot& slot, const Op& op) {
    TALLY_RETURN_IF_ERROR(Annotate(slot.sites[0], Op::kName, op.Validate()));
    const Kernel<Op>* kernel = Pick<Op>(slot.sites[0], op);
    if (kernel == nullptr) return NoKernel(slot.sites[0], Op::kName);
    slot.plan = kernel->plan(op, team_.threads());
    TALLY_RETURN_IF_ERROR(ReserveScratch(slot.plan.scratch_bytes));
    FindStreams(slot, op);
    const bool known = slot.kernel == kernel && slot.target == target_;
    slot.version = version_;
    if (known && (slot.charged != kNotCharged || ledger_ == nullptr)) return {};
    slot.kernel = kernel;
    slot.target = target_;
    slot.charged = kNotCharged;
    // Without rows there is nothing to charge, and the op does not say which slices it touches.
    if (op.Amounts()[Amount::kCalls] > 0) FindUnitCosts(slot, op, *kernel);
    return {};
  }

  template <class Op>
  void FindStreams(Slot& slot, const Op& op) {
    slot.streams.clear();
    const TaskPlan& plan = slot.plan;
    for (int t = 0; t < team_.threads() && plan.tasks > 0; ++t) {
      const int64_t begin = team_.FirstTask(plan.tasks, plan.chunk, t), end = team_.FirstTask(plan.tasks, plan.chunk, t + 1);
      const std::span<const uint8_t> stream = StreamOf(op, begin, end - begin, plan.chunk);
      if (t == 0 && stream.empty()) return;
      slot.streams.push_back(stream);
    }
  }
  // The streams of the next op that has some, a few ops on.
  Team::Ahead AheadOf(size_t index) {
    constexpr size_t kFar = 12;
    Slot& slot = slots_[index];
    for (size_t i = index + 1; slot.ahead == 0 && i < std::min(index + kFar, slots_.size()); ++i) {
      if (!slots_[i].streams.empty()) slot.ahead = i;
    }
    return slot.ahead == 0 ? Team::Ahead() : Team::Ahead(slots_[slot.ahead].streams);
  }

  template <class Op>
  const Kernel<Op>* Pick(Site site, const Op& op) {
    std::string reasons;
    const Kernel<Op>* picked = PickKernel(op, choice_, [&](const Kernel<Op>& k, const char* why) {
      if (explain_) reasons += " (" + std::string(k.name) + ": " + (why != nullptr ? why : "not needed") + ")";
    });
    if (picked != nullptr && picked->name == "blas") used_blas_ = true;
    if (explain_) Explain(site, Op::kName, picked != nullptr ? picked->name : "none", reasons);
    return picked;
  }

  // Registers the op under a new ledger index. Earlier charges keep their old index and unit costs.
  template <class Op>
  void FindUnitCosts(Slot& slot, const Op& op, const Kernel<Op>& kernel) {
    std::vector<SiteCost> costs(slot.sites.size());
    slot.estimate = {};
    for (size_t part = 0; part < costs.size(); ++part) {
      costs[part].site = slot.sites[part];
      for (size_t a = 0; a < kAmounts; ++a) {
        CostAmounts one;
        one[a] = 1;
        const Cost useful = UsefulOf(op, one, part), executed = ExecutedOf(kernel, op, one, part);
        AddEstimate(useful, a, slot.estimate);
        Cost copied;
        if (slot.copied.all) copied = useful;
        if (slot.copied.part && part == 0) copied = slot.copied.part(one);
        if (useful != Cost() || executed != Cost()) {
          costs[part].units.push_back({static_cast<Amount>(a), useful, executed, copied});
        }
      }
    }
    WeightTouches touches;
    op.Touches(touches);
    slot.chosen = !touches.empty() && touches[0].rows != nullptr;
    if (slot.chosen) {  // its other slices have the same shape
      const uint32_t slice = touches[0].slice;
      std::erase_if(touches, [slice](const WeightTouch& t) { return t.slice != slice; });
    }
    if constexpr (HasRowTouch<Op>) touches.clear();
    slot.charged = ledger_ != nullptr ? ledger_->AddOp(std::move(costs), slot.of, std::move(touches), slot.chosen) : kNotCharged;
  }

  template <class Op>
  void Charge(const Slot& slot, const Op& op, const CostAmounts& amounts) {
    group_amounts_.clear();
    if constexpr (HasRowAmounts<Op>) {
      if (ledger_->groups() > 1) {
        group_amounts_.resize(ledger_->groups());
        op.AddRowAmounts(ledger_->row_groups(), group_amounts_);
      }
    }
    if (slot.counted_rows && ledger_->groups() > 1) {
      group_amounts_.resize(ledger_->groups());
      const std::span<const uint32_t> groups = ledger_->row_groups();
      for (size_t i = 0; i < groups.size(); ++i) {
        group_amounts_[groups[i]][Amount::kRows] += static_cast<uint64_t>(row_counts_[i]);
      }
    }
    ledger_->Charge(slot.charged, amounts, group_amounts_);
    touches_.clear();
    op.Touches(touches_);
    if constexpr (!TouchesNothing<Op>) {
      for (const WeightTouch& t : touches_) ledger_->Touch(t);
    }
    if (!ledger_->billed()) return;
    if constexpr (HasRowTouch<Op>) {
      for (size_t i = 0; i < op.ids.size(); ++i) ledger_->TouchForRow(op.StepRow(i), op.RowTouch(i));
    }
    if (slot.chosen) ledger_->ChooseSlices(slot.charged, touches_);
  }

  // Calls recorder and tap. Both may read or reset the ledger.
  template <class Op>
  [[gnu::noinline, gnu::cold]] void Show(const Slot& slot, const Op& op, const Kernel<Op>& kernel, bool shared,
                                         Clock::time_point start) {
    const Clock::time_point end = Clock::now();
    if (recorder_) {
      OpDescription description;
      op.Describe(description);
      touches_.clear();
      if constexpr (!TouchesNothing<Op>) op.Touches(touches_);
      const CostAmounts amounts = op.Amounts();
      for (size_t part = 0; part < slot.sites.size(); ++part) {
        recorder_({.site = slot.sites[part],
                   .part = part,
                   .op = Op::kName,
                   .implementation = kernel.name,
                   .target = HwyTargetName(),
                   .threads = shared ? team_.threads() : 1,
                   .description = description,
                   .useful = UsefulOf(op, amounts, part),
                   .executed = ExecutedOf(kernel, op, amounts, part),
                   .touches = part == 0 ? std::span<const WeightTouch>(touches_) : std::span<const WeightTouch>(),
                   .start_nanoseconds = Nanoseconds(start - recording_since_) + (part == 0 ? 0 : Nanoseconds(end - start)),
                   .nanoseconds = part == 0 ? Nanoseconds(end - start) : 0});
      }
    }
    if (tap_) tap_(slot.sites[0], Op::kName, op.Output());
  }

  // Estimated nanoseconds that the team saves over one core.
  uint64_t SharedGain(const Estimate& estimate, const CostAmounts& amounts) const;
  static void AddEstimate(const Cost& useful, size_t amount, Estimate& estimate);
  static Status Annotate(Site site, std::string_view op, Status status);
  static Status NoKernel(Site site, std::string_view op);
  void Explain(Site site, std::string_view op, std::string_view kernel, const std::string& reasons);
  Status ReserveScratch(size_t bytes_per_thread);

  Team& team_;
  Ledger* ledger_;
  Ledger* charged_;  // the ledger of the slots' indices
  std::vector<Slot> slots_;
  uint64_t version_ = 1;  // incremented when kernels or unit costs may change
  std::string_view target_ = HwyTargetName();
  Phase phase_ = Phase::kPrefill;  // of the step
  Tap tap_;
  Recorder recorder_;
  Clock::time_point recording_since_;
  ImplChoice choice_ = ImplChoice::kAuto;
  uint64_t share_gain_ns_ = kShareGainNanoseconds;
  bool explain_ = false, used_blas_ = false;
  std::map<std::string, std::string> explanations_;
  WeightTouches touches_;
  std::vector<CostAmounts> group_amounts_;
  std::span<const int32_t> row_counts_;
  bool continued_ = false;
  size_t scratch_bytes_ = 0;
  std::vector<AlignedBuffer<uint8_t>> scratch_;
};

}  // namespace tally
