// SPDX-License-Identifier: Apache-2.0
// Whether a model can be run, and the memory that an engine of it takes: from headers alone, before anything is loaded.
#pragma once

#include <cstdint>
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

// KV, scratch and context of an engine with these options. `prediction`: the source of the plan for prediction, or null.
MemoryPlan PlanEngine(const PlanSource& source, const StepperOptions& options, int threads,
                      const PlanSource* prediction = nullptr);
// kNoRoom if the plan's KV and scratch plus `held` exceed plan.available. `source`: of the plan for prediction, if there is one.
Status CheckPlan(const MemoryPlan& plan, uint64_t held, const PlanSource& source, const StepperOptions& options);

}  // namespace tally
