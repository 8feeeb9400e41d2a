// NewEngine: a stepper over a loaded model, with a team of its own.
#include <utility>

#include "engine/api/loaded_model.h"

namespace tally {
namespace {

class StepperEngine final : public Engine {
 public:
  StepperEngine(std::shared_ptr<const LoadedModel> model, const LoadOptions& options)
      : model_(std::move(model)), team_(options.threads), options_(MakeStepperOptions(model_->recipe(), options)) {}

  Status Start() {
    TALLY_ASSIGN_OR_RETURN(stepper_, Stepper::Create(model_->recipe(), model_->weights(), team_, options_));
    return {};
  }

  int64_t max_batch() const override { return options_.decoder.max_batch; }
  Result<int32_t> NewSequence() override { return stepper_->cache().NewSequence(); }
  int64_t Length(int32_t sequence) const override { return stepper_->cache().Length(sequence); }
  Status Truncate(int32_t sequence, int64_t length) override { return stepper_->cache().Truncate(sequence, length); }
  void Free(int32_t sequence) override { stepper_->cache().Free(sequence); }
  Result<Mat<const float>> Step(std::span<const BatchRow> rows) override { return stepper_->Step(rows); }
  Ledger& ledger() override { return stepper_->ledger(); }
  const Model& model() const override { return *model_; }
  std::string_view target() const override { return HwyTargetName(); }
  bool used_blas() const override { return stepper_->executor().used_blas(); }
  int threads() const override { return team_.threads(); }
  uint64_t kv_bytes() const override { return stepper_->cache().BytesAllocated(); }
  void SetTap(std::function<void(Site, std::string_view, Mat<const float>)> tap) override { stepper_->SetTap(std::move(tap)); }
  void EnableExplain() override { stepper_->executor().EnableExplain(); }
  std::vector<std::string> Explanations() const override {
    std::vector<std::string> lines;
    for (const auto& [what, why] : stepper_->executor().explanations()) lines.push_back(what + ": " + why);
    return lines;
  }

 private:
  std::shared_ptr<const LoadedModel> model_;
  Team team_;
  StepperOptions options_;
  std::unique_ptr<Stepper> stepper_;
};

}  // namespace

Result<std::unique_ptr<Engine>> NewEngine(std::shared_ptr<const Model> model, const LoadOptions& options) {
  auto loaded = std::dynamic_pointer_cast<const LoadedModel>(model);
  if (loaded == nullptr) return InternalError("the model was not made by LoadModel");
  auto engine = std::make_unique<StepperEngine>(std::move(loaded), options);
  TALLY_RETURN_IF_ERROR(engine->Start());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace tally
