// SPDX-License-Identifier: Apache-2.0
// What runs beside a measurement: a busy loop, or the measured work itself in another process.
#include <utility>

#include "engine/machine/child_process.h"
#include "engine/machine/machine.h"
#include "engine/studies/speed_run.h"

namespace tally {
namespace {

class BusyLoop final : public SpeedNeighbour {
 public:
  explicit BusyLoop(BusyProcess process) : process_(std::move(process)) {}
  std::string name() const override { return "spin"; }
  Status Begin(SpeedWork) override { return process_.Resume(); }
  Result<double> End() override {
    TALLY_RETURN_IF_ERROR(process_.Pause());
    return 0.0;
  }

 private:
  BusyProcess process_;
};

class SpeedLoopOf final : public SpeedLoop {
 public:
  SpeedLoopOf(std::unique_ptr<Engine> engine, const SpeedOptions& options)
      : options_(options), run_(std::move(engine), options_) {
    options_.interrupted = [this, given = options.interrupted] { return Stopped() || (given && given()); };
  }
  Status Prepare() {
    TALLY_RETURN_IF_ERROR(run_.Fill(nullptr));
    if (!options_.prompts.empty()) TALLY_RETURN_IF_ERROR(Once(SpeedWork::kPrefill));
    return options_.generate.empty() ? Status() : Once(SpeedWork::kDecode);
  }
  Result<double> Run(SpeedWork work, const std::function<bool()>& stop) override {
    const uint64_t before = run_.rows_done();
    const double begin = MonotonicSeconds(), untimed = run_.untimed_seconds();
    if ((work == SpeedWork::kPrefill ? options_.prompts : options_.generate).empty()) return BadInput("there is no such work");
    stop_ = &stop;
    Status status;
    while (status.ok()) status = Once(work);
    stop_ = nullptr;
    if (status.code() != StatusCode::kInterrupted) return status;
    return static_cast<double>(run_.rows_done() - before) / (MonotonicSeconds() - begin - (run_.untimed_seconds() - untimed));
  }

 private:
  bool Stopped() const { return stop_ != nullptr && (*stop_)(); }
  Status Once(SpeedWork work) {
    if (work == SpeedWork::kPrefill) return run_.Prefill(options_.prompts[0], options_.depths[0], nullptr).status();
    return run_.Decode(options_.generate[0], options_.depths[0], options_.batches[0], nullptr).status();
  }

  SpeedOptions options_;
  SpeedRun run_;
  const std::function<bool()>* stop_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<SpeedNeighbour>> NewBusyLoop() {
  TALLY_ASSIGN_OR_RETURN(BusyProcess process, BusyProcess::Start());
  return std::unique_ptr<SpeedNeighbour>(std::make_unique<BusyLoop>(std::move(process)));
}

Result<std::unique_ptr<SpeedLoop>> NewSpeedLoop(std::shared_ptr<const Model> model, const EngineOptions& load,
                                                const SpeedOptions& options) {
  TALLY_RETURN_IF_ERROR(CheckSpeedOptions(options));
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, NewEngine(std::move(model), SpeedLoadOptions(load, options)));
  auto loop = std::make_unique<SpeedLoopOf>(std::move(engine), options);
  TALLY_RETURN_IF_ERROR(loop->Prepare());
  return std::unique_ptr<SpeedLoop>(std::move(loop));
}

}  // namespace tally
