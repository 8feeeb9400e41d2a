// What LoadModel returns and NewEngine runs; internal to the api.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/decoder.h"
#include "engine/session/engine.h"
#include "engine/session/stepper.h"
#include "engine/weights/weights.h"

namespace tally {

class LoadedModel final : public Model {
 public:
  const Recipe& recipe() const override { return spec_.recipe; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  const MemoryPlan& memory_plan() const override { return plan_; }
  const ParameterCounts& parameters() const override { return parameters_; }
  std::string Description() const override { return description_; }
  std::span<const DType> matrix_types() const override { return matrix_types_; }
  const PackedWeights& weights() const { return weights_; }
  // What engines make their plans of.
  PlanSource Source() const {
    return {spec_.recipe, [this](Role role, int32_t layer) { return weights_.Get(role, layer); }, rope_, local_rope_};
  }

  ModelSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  MemoryPlan plan_;
  ParameterCounts parameters_;
  PackedWeights weights_;
  RopeFrequencies rope_, local_rope_;  // of the recipe's
  std::vector<WeightInfo> table_;      // of the weights as the files have them (books/weight_table.h), and their stored types
  std::vector<DType> types_;
  std::vector<DType> matrix_types_;
  std::string description_;
  mutable std::atomic<uint64_t> engine_bytes_{0};  // of KV and scratch that its living engines have planned
};

// kBadInput names the options of the recipe that cannot be run.
Status CheckRunnable(const Recipe& recipe);

// The types of the matrices by the bytes they take, largest first.
std::vector<DType> MatrixTypes(const Inventory& inventory, const ModelSpec& spec);

// kBadInput: a context that the model cannot have, activations that none of its matrices can take.
Status CheckOptions(const Recipe& recipe, std::span<const DType> types, const LoadOptions& options);

// kBadInput: OpenBLAS is asked for and cannot be loaded.
Status CheckLibraries(const LoadOptions& options);

// The decoder's options and the context that `options` mean for a model.
StepperOptions MakeStepperOptions(const Recipe& recipe, const LoadOptions& options);

// KV, scratch and context of an engine with these options.
MemoryPlan PlanEngine(const PlanSource& source, const StepperOptions& options, int threads);
// kBadInput where these and what is `held` already are more than plan.available.
Status CheckPlan(const MemoryPlan& plan, uint64_t held, const Recipe& recipe, const StepperOptions& options);

}  // namespace tally
