// SPDX-License-Identifier: Apache-2.0
// NewEngine: a stepper over a loaded model, with its own team.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/session/loaded_model.h"

namespace tally {
namespace {

// Registers the bytes that an engine plans besides the weights with the model, for the engine's lifetime.
class Planned {
 public:
  Planned(const LoadedModel& model, uint64_t bytes)
      : total_(model.engine_bytes_), bytes_(bytes), others_(total_.fetch_add(bytes)) {}
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;
  ~Planned() { total_.fetch_sub(bytes_); }
  uint64_t others() const { return others_; }

 private:
  std::atomic<uint64_t>& total_;
  uint64_t bytes_, others_;
};

template <class T>
std::string_view BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

class StepperEngine final : public Engine {
 public:
  StepperEngine(std::shared_ptr<const LoadedModel> model, const LoadOptions& options)
      : model_(std::move(model)),
        team_(options.threads),
        options_(MakeStepperOptions(model_->recipe(), options)),
        plan_(PlanEngine(model_->Source(rope_), options_, team_.threads())),
        planned_(*model_, SaturatingAdd(plan_.kv, plan_.scratch)) {}

  Status Start() {
    TALLY_RETURN_IF_ERROR(team_.status());
    TALLY_RETURN_IF_ERROR(CheckMemory());
    TALLY_ASSIGN_OR_RETURN(rope_, model_->MakeRope(options_.context));
    TALLY_ASSIGN_OR_RETURN(stepper_, Stepper::Create(model_->Source(rope_), model_->weights().infos(), team_, options_));
    return {};
  }

  const MemoryPlan& memory_plan() const override { return plan_; }
  int64_t max_batch() const override { return options_.plan.max_batch; }
  int64_t max_logit_rows() const override { return options_.plan.max_logit_rows; }
  Result<int32_t> NewSequence() override { return stepper_->cache().NewSequence(); }
  Result<int32_t> Fork(int32_t sequence, int64_t length) override { return stepper_->cache().Fork(sequence, length); }
  Result<int32_t> Copy(int32_t sequence) override { return stepper_->cache().Copy(sequence); }
  Result<int32_t> NewSequenceFor(std::string_view key, std::span<const int32_t> tokens) override {
    return stepper_->cache().NewSequenceFor(key, tokens);
  }
  int64_t Reusable(std::string_view key, std::span<const int32_t> tokens) const override {
    return stepper_->cache().Reusable(key, tokens);
  }
  void Remember(int32_t sequence, std::string_view key, std::span<const int32_t> tokens) override {
    stepper_->cache().Remember(sequence, key, tokens);
  }
  int64_t Length(int32_t sequence) const override { return stepper_->cache().Length(sequence); }
  Status Truncate(int32_t sequence, int64_t length) override { return stepper_->cache().Truncate(sequence, length); }
  void Free(int32_t sequence) override { stepper_->cache().Free(sequence); }
  Status Export(int32_t sequence, const SequenceStore::Sink& write) const override {
    return stepper_->cache().Export(sequence, write);
  }
  Result<int32_t> Import(const SequenceStore::Source& read) override { return stepper_->cache().Import(read); }
  uint64_t KvBudget() const override { return stepper_->cache().Budget(); }
  uint64_t KvBytesInUse() const override { return stepper_->cache().BytesInUse(); }
  uint64_t KvBytesFor(int64_t positions) const override { return stepper_->cache().BytesFor(positions); }
  uint64_t Fingerprint() const override {
    Checksum sum;
    sum.Add(model_->recipe().family);
    const uint64_t weights = model_->WeightsFingerprint(team_);
    sum.Add(BytesOf<uint64_t>({&weights, 1}));
    for (const RopeFrequencies* rope : {&rope_.global, &rope_.local}) {
      sum.Add(BytesOf<float>(rope->inv_freq));
      sum.Add(BytesOf<float>({&rope->magnitude, 1}));
    }
    return sum.value();
  }
  Result<StepOutput> Step(std::span<const BatchRow> rows) override {
    const Team::Turn turn(team_);  // engines that are stepped at the same time take turns by step
    return stepper_->Step(rows);
  }
  Ledger& ledger() override { return stepper_->ledger(); }
  const Model& model() const override { return *model_; }
  std::string_view target() const override { return HwyTargetName(); }
  bool used_blas() const override { return stepper_->executor().used_blas(); }
  KvType kv_type() const override { return options_.plan.kv; }
  int threads() const override { return team_.threads(); }
  void SetTap(std::function<void(Site, std::string_view, Mat<const float>)> tap) override { stepper_->SetTap(std::move(tap)); }
  void SetRecorder(Recorder recorder) override { stepper_->SetRecorder(std::move(recorder)); }
  void EnableExplain() override { stepper_->executor().EnableExplain(); }
  std::vector<std::string> Explanations() const override {
    std::vector<std::string> lines;
    for (const auto& [what, why] : stepper_->executor().explanations()) lines.push_back(what + ": " + why);
    return lines;
  }

 private:
  // `held`: the weights, which are in memory, and what other engines have planned. available = held + min(free, resident + free -
  // held): memory that other engines have planned but not yet touched is not free for this one.
  Status CheckMemory() {
    plan_.packed_weights = model_->memory_plan().packed_weights;
    const uint64_t held = plan_.packed_weights + planned_.others(), free = AvailableMemoryBytes();
    const uint64_t all = ResidentBytes() + free;
    plan_.available = held + std::min(free, all > held ? all - held : 0);
    Status fits = CheckPlan(plan_, held, model_->recipe(), options_);
    if (fits.ok() || planned_.others() == 0) return fits;
    return {fits.code(), fits.message() + " (the weights' figure holds what other engines have planned, " +
                             BytesText(planned_.others()) + ")"};
  }

  std::shared_ptr<const LoadedModel> model_;
  mutable Team team_;  // changes nothing of the engine
  StepperOptions options_;
  RopePair rope_;
  MemoryPlan plan_;
  Planned planned_;
  std::unique_ptr<Stepper> stepper_;
};

}  // namespace

Result<Mat<const float>> Engine::StepAll(std::span<const BatchRow> rows) {
  TALLY_ASSIGN_OR_RETURN(const StepOutput out, Step(rows));
  if (out.failed.empty()) return out.logits;
  Status cause = out.failed.front().status;
  std::map<int32_t, int64_t> ran;
  for (const BatchRow& row : rows) {
    if (out.ErrorOf(row.sequence) == nullptr) ++ran[row.sequence];
  }
  for (const auto& [sequence, n] : ran) {
    const Status back = Truncate(sequence, Length(sequence) - n);
    if (!back.ok()) cause = {cause.code(), cause.message() + "; sequence " + std::to_string(sequence) + ": " + back.message()};
  }
  return cause;
}

Result<std::unique_ptr<Engine>> NewEngine(std::shared_ptr<const Model> model, const LoadOptions& options) {
  auto loaded = std::dynamic_pointer_cast<const LoadedModel>(std::move(model));
  if (loaded == nullptr) return InternalError("the model was not made by LoadModel");
  TALLY_RETURN_IF_ERROR(CheckLibraries(options));
  TALLY_RETURN_IF_ERROR(CheckOptions(loaded->recipe(), loaded->matrix_types(), options));
  auto engine = std::make_unique<StepperEngine>(std::move(loaded), options);
  TALLY_RETURN_IF_ERROR(engine->Start());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace tally
