// SPDX-License-Identifier: Apache-2.0
// Whether a model can be run, and the memory that an engine of it takes: from headers alone, before anything is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status.h"
#include "engine/graph/plan.h"
#include "engine/recipe/rope_freqs.h"
#include "engine/session/model.h"
#include "engine/session/stepper_options.h"
#include "loaders/inventory/inventory.h"
#include "models/family.h"

namespace tally {

struct RopePair {
  RopeFrequencies global, local;  // of Recipe::rope and Recipe::local_rope
};

// Model::notes. `tokenizer` may be null.
std::vector<std::string> NotesOf(const ModelSpec& spec, const Tokenizer* tokenizer);

// kBadInput names the features of the recipe that cannot be run.
Status CheckRunnable(const Recipe& recipe);

// The types of the matrices by the bytes they take, largest first.
std::vector<DType> MatrixTypes(const Inventory& inventory, const ModelSpec& spec);

// kBadInput: a context that the model cannot have, activations that none of its matrices can take.
Status CheckOptions(const Recipe& recipe, std::span<const DType> types, const EngineOptions& options);

// kBadInput: OpenBLAS is requested and cannot be loaded.
Status CheckLibraries(const EngineOptions& options);

// The stacks that an engine runs, the text first. `spec` must have them and outlive them.
std::vector<const Recipe*> StacksToRun(const ModelSpec& spec, bool prediction);
// The inputs of their plans, with one store for all.
std::vector<PlanSource> SourcesOf(std::span<const Recipe* const> stacks,
                                  const std::function<WeightView(Role, int32_t layer)>& weight, const RopePair& rope,
                                  const Shard& shard, Communicator* group = nullptr, ExpertStore* experts = nullptr,
                                  LayerStore* layers = nullptr);
// KV, scratch and context of an engine that runs these stacks with these options.
MemoryPlan PlanEngine(std::span<const PlanSource> stacks, const StepperOptions& options, int threads);
// kNoRoom if the plan's KV and scratch plus `held` exceed plan.available.
Status CheckPlan(const MemoryPlan& plan, uint64_t held, std::span<const PlanSource> stacks, const StepperOptions& options);

}  // namespace tally
