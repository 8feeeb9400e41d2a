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

#include "counters/ledger.h"
#include "counters/record.h"
#include "engine/base/aligned.h"
#include "engine/kernels/op.h"
#include "engine/machine/parallel.h"

namespace tally {

enum class ImplChoice : uint8_t { kAuto, kRef, kBlas };  // kBlas: OpenBLAS where an op has it, else as kAuto

inline constexpr uint64_t kShareGainNanoseconds = 20'000;

class Executor {
 public:
  Executor(Team& team, Ledger* ledger) : team_(team), ledger_(ledger), charged_in_(ledger) {}

  template <class Op>
  Status Run(Site site, const Op& op) {
    TALLY_RETURN_IF_ERROR(Annotate(site, Op::kName, op.Validate()));
    const Kernel<Op>* kernel = Pick<Op>(site, op);
    if (kernel == nullptr) return NoKernel(site, Op::kName);
    const TaskPlan plan = kernel->plan(op, team_.threads());
    TALLY_RETURN_IF_ERROR(ReserveScratch(plan.scratch_bytes));
    const size_t place = NextPlace();
    Charged& c = charged_[place];
    Costs& costs = costs_[place];
    OpKey key{};
    const bool repeatable = in_step_ && op.CostKey(key);
    if (!repeatable || c.kernel != kernel || !(c.site == site) || c.key != key) {
      costs.useful = op.Useful();
      c = {.kernel = repeatable ? kernel : nullptr, .site = site, .key = key, .ledger = c.ledger};
      c.shared = EstimatedGain(costs.useful) >= share_gain_ns_;
    }
    if (ledger_ != nullptr || recorder_) {
      touches_.clear();
      op.Touches(touches_);
      if (!c.has_executed) costs.executed = kernel->executed(op);
      c.has_executed = true;
    }
    if (ledger_ != nullptr && !repeatable) {
      ledger_->Charge(site, Op::kName, costs.useful, costs.executed, touches_);
    } else if (ledger_ != nullptr && !(c.charged && ledger_->ChargeAgain(c.ledger, touches_))) {
      c.ledger = ledger_->ChargeRepeatable(c.ledger, site, costs.useful, costs.executed, touches_);
      c.charged = true;
    }
    auto body = [&](int thread, int64_t begin, int64_t end) { kernel->run(op, begin, end, Scratch(thread)); };
    const Clock::time_point start = recorder_ ? Clock::now() : Clock::time_point();
    if (c.shared) {
      team_.Run(plan.tasks, plan.chunk, body);
    } else if (plan.tasks > 0) {
      body(0, 0, plan.tasks);
    }
    if (recorder_) {
      const Clock::time_point end = Clock::now();
      OpDescription description;
      op.Describe(description);
      recorder_({.site = site,
                 .op = Op::kName,
                 .implementation = kernel->name,
                 .target = HwyTargetName(),
                 .threads = c.shared ? team_.threads() : 1,
                 .description = description,
                 .useful = costs.useful,
                 .executed = costs.executed,
                 .touches = touches_,
                 .start_nanoseconds = Nanoseconds(start - recording_since_),
                 .nanoseconds = Nanoseconds(end - start)});
    }
    if (tap_) tap_(site, Op::kName, op.Output());
    return {};
  }

  // Around the ops of a step. One that stands at the same place of step after step and costs the same has its costs found once.
  void BeginStep() {
    if (const std::string_view target = HwyTargetName(); target != target_) {  // what is executed depends on its vectors
      charged_.clear();
      target_ = target;
    }
    in_step_ = true;
    next_charged_ = 0;
  }
  void EndStep() { in_step_ = false; }

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
    if (ledger != nullptr && ledger != charged_in_) charged_.clear();
    if (ledger != nullptr) charged_in_ = ledger;
    ledger_ = ledger;
  }
  void SetImpl(ImplChoice choice) { choice_ = choice; }
  ImplChoice impl() const { return choice_; }
  // Ops that the team is estimated to finish sooner than one core by less than this run on the calling thread alone: waking the
  // others and waiting for them takes some microseconds, and milliseconds where another program has one of the cores. 0: the
  // team shares every op.
  void SetShareGain(uint64_t nanoseconds) {
    share_gain_ns_ = nanoseconds;
    charged_.clear();
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
  // What the op at one place of a step cost.
  struct Charged {
    const void* kernel = nullptr;  // that ran it, and so which kind of op it was; null: not to be used again
    Site site = {};
    OpKey key = {};
    bool has_executed = false, shared = false, charged = false;
    Ledger::Repeatable ledger = {};  // in charged_in_
  };
  struct Costs {  // beside each: only looked at where the op is another one than in the step before
    Cost useful, executed;
  };
  size_t NextPlace() {
    const size_t place = in_step_ ? next_charged_++ : 0;
    if (place >= charged_.size()) {
      charged_.resize(place + 1);
      costs_.resize(place + 1);
    }
    return place;
  }
  // Nanoseconds that the team takes less for an op than one core, roughly.
  uint64_t EstimatedGain(const Cost& useful) const;
  static Status Annotate(Site site, std::string_view op, Status status);
  static Status NoKernel(Site site, std::string_view op);
  void Explain(Site site, std::string_view op, std::string_view kernel, const std::string& reasons);
  Status ReserveScratch(size_t bytes_per_thread);
  std::span<uint8_t> Scratch(int thread) { return scratch_[thread].span(); }

  Team& team_;
  Ledger* ledger_;
  Tap tap_;
  Recorder recorder_;
  Clock::time_point recording_since_;
  ImplChoice choice_ = ImplChoice::kAuto;
  uint64_t share_gain_ns_ = kShareGainNanoseconds;
  bool explain_ = false, used_blas_ = false;
  std::map<std::string, std::string> explanations_;
  WeightTouches touches_;
  Ledger* charged_in_;  // the ledger that charged_ knows
  std::vector<Charged> charged_;
  std::vector<Costs> costs_;
  std::string_view target_;  // that charged_ is of
  bool in_step_ = false;
  size_t next_charged_ = 0;  // place of the next op
  std::vector<AlignedBuffer<uint8_t>> scratch_;
};

}  // namespace tally
