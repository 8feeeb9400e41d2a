// THE DOOR. Every kernel runs through Executor::Run(site, op) and nothing else does arithmetic on activations:
//   validate -> pick a kernel -> reserve scratch -> charge the ledger -> run over tasks on the team -> record -> tap(site, output)
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "counters/ledger/ledger.h"
#include "counters/ledger/record.h"
#include "engine/base/aligned.h"
#include "engine/base/kinds.h"
#include "engine/kernels/op.h"
#include "engine/machine/parallel.h"

namespace tally {

inline constexpr uint64_t kShareGainNanoseconds = 20'000;

class Executor {
 public:
  Executor(Team& team, Ledger* ledger) : team_(team), ledger_(ledger), tariffs_of_(ledger) {}

  template <class Op>
  Status Run(Site site, const Op& op) {
    Known& known = NextPlace();
    TALLY_RETURN_IF_ERROR(Annotate(site, Op::kName, op.Validate()));
    const Kernel<Op>* kernel = Pick<Op>(site, op);
    if (kernel == nullptr) return NoKernel(site, Op::kName);
    const TaskPlan plan = kernel->plan(op, team_.threads());
    TALLY_RETURN_IF_ERROR(ReserveScratch(plan.scratch_bytes));
    OpKey key{};
    const bool repeatable = in_step_ && op.CostKey(key);
    const bool repeats = repeatable && known.kernel == kernel && known.site == site && known.key == key;
    if (!repeats) known = {.kernel = repeatable ? kernel : nullptr, .site = site, .key = key};
    CostAmounts amounts{};
    if constexpr (HasAmounts<Op>) {
      amounts = op.Amounts();
      known.shared = EstimatedGain(op.Useful(amounts)) >= share_gain_ns_;
    } else if (!repeats) {
      known.shared = EstimatedGain(op.Useful()) >= share_gain_ns_;
    }
    if (ledger_ != nullptr && !ChargeTariff(op, known, amounts)) [[unlikely]]
      ChargeAnew(op, *kernel, known, repeatable, amounts);
    auto body = [&](int thread, int64_t begin, int64_t end) { kernel->run(op, begin, end, Scratch(thread)); };
    const Clock::time_point start = recorder_ ? Clock::now() : Clock::time_point();
    if (known.shared) {
      team_.Run(plan.tasks, plan.chunk, body);
    } else if (plan.tasks > 0) {
      body(0, 0, plan.tasks);
    }
    if (recorder_ || tap_) [[unlikely]]
      Show(site, op, *kernel, known, start);
    return {};
  }

  // Around the ops of a step, which is the ledger's step, too. An op that comes again at its place, step after step, has its costs found
  // once (Ledger::Tariff).
  void BeginStep(Phase phase, uint32_t rows, uint32_t logit_rows) {
    if (in_step_) EndStep();
    if (const std::string_view target = HwyTargetName(); target != target_) {  // what is executed depends on its vectors
      known_.clear();
      target_ = target;
    }
    if (ledger_ != nullptr) {
      ledger_->BeginStep(phase, rows, logit_rows);
      run_.generation = ledger_->tariff_generation();
    }
    in_step_ = true;
    next_place_ = 0;
    breaks_ = 0;
    anew_ = false;
  }
  void EndStep() {
    in_step_ = false;
    if (ledger_ == nullptr) return;
    ChargeRun();
    ledger_->EndStep();
    // Tariffs that are older than their neighbours' (an op that costs a prompt's step and a token's the same, say) break the run, and
    // each break takes time. Once a kind of step is seen to stay, all its ops are described again, one after the other: some steps' worth
    // of breaks. One that brings a new tariff each time (several tokens that share experts now so, now so) is left as it is.
    broken_steps_ = breaks_ > 0 && !anew_ ? broken_steps_ + 1 : 0;
    if (broken_steps_ < kBrokenSteps) return;
    broken_steps_ = 0;
    known_.clear();
  }

  // Called after each op with a view of its output, valid during the call. Row-major f32.
  using Tap = std::function<void(Site, std::string_view op, Mat<const float> output)>;
  void SetTap(Tap tap) { tap_ = std::move(tap); }
  // Called after each op with its record, but for what only a step knows (step, index, phase, sequences, logit_rows). Ops are
  // timed only while one is set.
  void SetRecorder(Recorder recorder) {
    recorder_ = std::move(recorder);
    recording_since_ = Clock::now();
  }
  // Null: nothing is charged. One that has charged is not to be destroyed before another one is set.
  void SetLedger(Ledger* ledger) {
    if (ledger_ != nullptr) ChargeRun();
    run_.generation = kNoGeneration;
    if (ledger != nullptr && ledger != tariffs_of_) known_.clear();
    if (ledger != nullptr) tariffs_of_ = ledger;
    ledger_ = ledger;
  }
  void SetImpl(ImplChoice choice) { choice_ = choice; }
  ImplChoice impl() const { return choice_; }
  // Ops that the team is estimated to finish sooner than one core by less than this run on the calling thread alone: waking the
  // others and waiting for them takes some microseconds, and milliseconds where another program has one of the cores. 0: the
  // team shares every op.
  void SetShareGain(uint64_t nanoseconds) {
    share_gain_ns_ = nanoseconds;
    known_.clear();
  }
  // Why kernels were passed over and which ran: "attn.q matmul: hwy (blas: activations are not f32)". One line per component
  // and op: the last layer's.
  void EnableExplain() { explain_ = true; }
  const std::map<std::string, std::string>& explanations() const { return explanations_; }
  bool used_blas() const { return used_blas_; }
  Team& team() { return team_; }
  Ledger* ledger() { return ledger_; }

 private:
  using Clock = std::chrono::steady_clock;
  static uint64_t Nanoseconds(Clock::duration d) {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count());
  }

  template <class Op>
  const Kernel<Op>* Pick(Site site, const Op& op) {
    const Kernel<Op>* picked = nullptr;
    std::string reasons;
    auto consider = [&](const Kernel<Op>& k) {
      const char* why = k.unsupported(op);
      if (why == nullptr && picked == nullptr) {
        picked = &k;
      } else if (explain_) {
        reasons += " (" + std::string(k.name) + ": " + (why != nullptr ? why : "not needed") + ")";
      }
    };
    if (choice_ == ImplChoice::kBlas) {
      for (const Kernel<Op>& k : Kernels<Op>())
        if (k.name == "blas") consider(k);
    }
    for (const Kernel<Op>& k : Kernels<Op>()) {
      if (k.name == "blas") continue;
      if (choice_ == ImplChoice::kRef && k.name != "ref") continue;
      consider(k);
    }
    if (picked != nullptr && picked->name == "blas") used_blas_ = true;
    if (explain_) Explain(site, Op::kName, picked != nullptr ? picked->name : "none", reasons);
    return picked;
  }
  // The op at one place of a step.
  struct alignas(64) Known {
    const void* kernel = nullptr;  // that ran it, and so which kind of op it was; null: not to be used again
    Site site = {};
    OpKey key = {};
    Ledger::TariffId tariff = {};  // of tariffs_of_
    bool shared = false, by_slice = false;
  };
  Known& NextPlace() {
    const size_t place = in_step_ ? next_place_++ : 0;
    if (place >= known_.size()) known_.resize(place + 1);
    return known_[place];
  }

  // Charges an op whose tariff the ledger knows; false: it does not. Nearly all ops of nearly all steps are this, and follow one another
  // as their tariffs do: they are only counted here, and handed to the ledger when the run of tariffs ends. A few instructions an op
  // can be measured (bench/ledger_overhead).
  template <class Op>
  bool ChargeTariff(const Op& op, const Known& known, const CostAmounts& amounts) {
    static_assert(HasAmounts<Op> + TouchesRows<Op> + TouchesSlices<Op> <= 1, "only one of them is given");
    if (known.tariff == run_.next) [[likely]] {
      ++run_.next.value;
    } else if (!BeginRun(known.tariff)) {
      return false;
    }
    if constexpr (HasAmounts<Op>) {
      ledger_->GiveAmounts(known.tariff, amounts);
    } else if constexpr (TouchesRows<Op>) {
      op.Touches(ledger_->touches());
    } else if constexpr (TouchesSlices<Op>) {
      if (known.by_slice) {
        op.Slices(ledger_->slices());
        ledger_->GiveSlices(known.tariff);
      }
    }
    return true;
  }
  bool BeginRun(Ledger::TariffId tariff);  // charges the run before; false: the tariff has been forgotten
  void ChargeRun();                        // all that is counted goes to the ledger

  // Charges an op that is another one than in the step before; with a tariff if it may come again.
  template <class Op>
  [[gnu::noinline, gnu::cold]] void ChargeAnew(const Op& op, const Kernel<Op>& kernel, Known& known, bool repeatable,
                                               const CostAmounts& amounts) {
    touches_.clear();
    op.Touches(touches_);
    if (repeatable && ledger_->in_step()) {
      Ledger::Tariff tariff{.site = known.site};
      known.by_slice = false;
      if constexpr (!TouchesRows<Op>) tariff.touches = touches_;
      if constexpr (TouchesSlices<Op>) {
        std::vector<SliceUse> slices;
        known.by_slice = op.Slices(slices) && !slices.empty();
        tariff.by_slice = known.by_slice;
        if (tariff.by_slice) std::erase_if(tariff.touches, [&](const WeightTouch& t) { return t.slice != slices[0].slice; });
      }
      if constexpr (HasAmounts<Op>) {
        for (size_t i = 0; i < kCostAmounts; ++i) {
          CostAmounts one{};
          one[i] = 1;
          tariff.units.push_back({op.Useful(one), kernel.executed_at(op, one)});
        }
      } else {
        tariff.units.push_back({op.Useful(), kernel.executed(op)});
      }
      known.tariff = ledger_->AddTariff(tariff);
      anew_ = true;
      if (ChargeTariff(op, known, amounts)) return;
    }
    ledger_->Charge(known.site, op.Useful(), kernel.executed(op), touches_);
  }
  // To those who watch: they may read the ledger.
  template <class Op>
  [[gnu::noinline, gnu::cold]] void Show(Site site, const Op& op, const Kernel<Op>& kernel, const Known& known,
                                         Clock::time_point start) {
    const Clock::time_point end = Clock::now();
    ChargeRun();
    if (recorder_) {
      OpDescription description;
      op.Describe(description);
      touches_.clear();
      op.Touches(touches_);
      recorder_({.site = site,
                 .op = Op::kName,
                 .implementation = kernel.name,
                 .target = HwyTargetName(),
                 .threads = known.shared ? team_.threads() : 1,
                 .description = description,
                 .useful = op.Useful(),
                 .executed = kernel.executed(op),
                 .touches = touches_,
                 .start_nanoseconds = Nanoseconds(start - recording_since_),
                 .nanoseconds = Nanoseconds(end - start)});
    }
    if (tap_) tap_(site, Op::kName, op.Output());
    if (ledger_ != nullptr) run_.generation = ledger_->in_step() ? ledger_->tariff_generation() : kNoGeneration;  // or reset it
  }
  // Nanoseconds that the team takes less for an op than one core, roughly.
  uint64_t EstimatedGain(const Cost& useful) const;
  static Status Annotate(Site site, std::string_view op, Status status);
  static Status NoKernel(Site site, std::string_view op);
  void Explain(Site site, std::string_view op, std::string_view kernel, const std::string& reasons);
  Status ReserveScratch(size_t bytes_per_thread);
  std::span<uint8_t> Scratch(int thread) { return scratch_[thread].span(); }

  static constexpr uint32_t kBrokenSteps = 8;
  static constexpr uint32_t kNoGeneration = UINT32_MAX;  // no tariff's: nothing is charged by one
  static constexpr Ledger::TariffId kNoTariff{UINT64_MAX};

  // What every op looks at lies together.
  Team& team_;
  Ledger* ledger_;
  bool in_step_ = false;
  size_t next_place_ = 0;  // of the next op
  struct {
    Ledger::TariffId next = kNoTariff;  // behind the last; kNoTariff: there are none
    Ledger::TariffId first = {};
    uint32_t generation = kNoGeneration;  // of the ledger's tariffs in this step
  } run_;                                 // tariffs to be charged
  uint32_t breaks_ = 0;                   // how often in the step a tariff did not follow the one before
  uint32_t broken_steps_ = 0;             // on end, with breaks and no new tariff
  bool anew_ = false;                     // the step has a new tariff
  std::vector<Known> known_;
  Tap tap_;
  Recorder recorder_;
  Clock::time_point recording_since_;
  ImplChoice choice_ = ImplChoice::kAuto;
  uint64_t share_gain_ns_ = kShareGainNanoseconds;
  bool explain_ = false, used_blas_ = false;
  std::map<std::string, std::string> explanations_;
  WeightTouches touches_;
  Ledger* tariffs_of_;       // the ledger that known_ has tariffs of
  std::string_view target_;  // that known_ is of
  std::vector<AlignedBuffer<uint8_t>> scratch_;
};

}  // namespace tally
