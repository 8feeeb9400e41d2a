// What LoadModel returns and NewEngine runs; internal to the api.
#pragma once

#include <memory>
#include <string>

#include "engine/api/tally.h"
#include "engine/graph/decoder.h"
#include "engine/session/stepper.h"
#include "engine/weights/weights.h"

namespace tally {

class LoadedModel final : public Model {
 public:
  const Recipe& recipe() const override { return recipe_; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  const MemoryPlan& memory_plan() const override { return plan_; }
  const ParameterCounts& parameters() const override { return parameters_; }
  std::string Description() const override { return description_; }
  std::string weight_types() const override { return weight_types_; }
  const PackedWeights& weights() const { return weights_; }

  Recipe recipe_;
  std::unique_ptr<Tokenizer> tokenizer_;
  MemoryPlan plan_;
  ParameterCounts parameters_;
  PackedWeights weights_;
  std::string description_, weight_types_;
};

// The decoder's options and the context that `options` mean for a model.
StepperOptions MakeStepperOptions(const Recipe& recipe, const LoadOptions& options);

}  // namespace tally
