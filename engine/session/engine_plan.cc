// SPDX-License-Identifier: Apache-2.0
#include "engine/session/engine_plan.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/checked.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/matmul/openblas.h"
#include "engine/machine/instruction_set.h"
#include "engine/session/memory_plan.h"
#include "engine/session/predictor.h"

namespace tally {
namespace {

constexpr int64_t kDefaultContext = 4096;

std::vector<StoreLayer> StoreOf(std::span<const PlanSource> stacks, const StepperOptions& options) {
  std::vector<const Recipe*> recipes;
  for (const PlanSource& stack : stacks) recipes.push_back(&stack.recipe);
  return KvLayers(recipes, options.plan.kv, stacks[0].shard);
}

KvBytesFn KvBytes(std::span<const PlanSource> stacks, const StepperOptions& options) {
  return [stacks, &options](int64_t positions) {
    StoreSize size = options.kv_size();
    if (size.bytes == 0) size.context = positions;  // a size given in bytes does not depend on the context
    return SequenceStore::PlanBytes(StoreOf(stacks, options), size);
  };
}

}  // namespace

std::vector<std::string> NotesOf(const ModelSpec& spec, const Tokenizer* tokenizer) {
  std::vector<std::string> notes = spec.notes;
  if (tokenizer == nullptr) return notes;
  for (std::string& note : tokenizer->Notes()) notes.push_back(std::move(note));
  return notes;
}

Status CheckRunnable(const Recipe& recipe) {
  std::string options;
  for (const std::string& option : CannotRun(recipe)) options += (options.empty() ? "" : ", ") + option;
  if (options.empty()) return {};
  return BadInput("family " + recipe.family + " needs what cannot be run: " + options);
}

std::vector<DType> MatrixTypes(const Inventory& inventory, const ModelSpec& spec) {
  std::vector<std::pair<uint64_t, DType>> bytes;
  std::set<std::string_view> seen;  // gate and up may be halves of one tensor
  for (const TensorBinding& b : spec.bindings) {
    if (b.vector()) continue;
    for (const std::string& name : b.names) {
      const StoredTensor* t = inventory.Find(name);
      if (t == nullptr || !t->other_type.empty() || !seen.insert(t->name).second) continue;
      const DType type = b.type(t->dtype);
      auto at = std::find_if(bytes.begin(), bytes.end(), [&](const auto& e) { return e.second == type; });
      if (at == bytes.end()) at = bytes.insert(at, {0, type});
      at->first += t->bytes;
    }
  }
  std::stable_sort(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<DType> types;
  types.reserve(bytes.size());
  for (const auto& e : bytes) types.push_back(e.second);
  return types;
}

// Refuses a choice that no part of the model can take.
Status CheckOptions(const Recipe& recipe, std::span<const DType> types, const EngineOptions& options) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (options.context < 0 || options.context > kMost) {
    return BadInput("the context must be 0 (the model's) to " + std::to_string(kMost) + " positions, not " +
                    std::to_string(options.context));
  }
  if (recipe.learned_positions && options.context > recipe.context) {
    return BadInput("a context of " + std::to_string(options.context) + " positions was asked for, and the model has learned " +
                    std::to_string(recipe.context));
  }
  const auto none_for = [&](ActKind kind) {
    return std::none_of(types.begin(), types.end(), [&](DType t) { return TakesActivations(t, kind); });
  };
  if (options.activations == ActivationMode::kBF16 && none_for(ActKind::kBF16)) {
    return BadInput(none_for(ActKind::kInt8)
                        ? "bf16 activations need BF16, FP8 or quantised weights, and this model has none"
                        : "bf16 activations need BF16 or FP8 weights, which this model has none of, or a processor with AMX");
  }
  if (options.activations == ActivationMode::kInt8 && none_for(ActKind::kInt8)) {
    return BadInput("int8 activations need quantised weights other than FP8, and this model has none");
  }
  return {};
}

StepperOptions MakeStepperOptions(const Recipe& recipe, const EngineOptions& options, int64_t batch_rows) {
  StepperOptions s;
  s.plan.activations = options.activations;
  s.plan.kv = options.kv.value_or(options.activations == ActivationMode::kF32 ? KvType::kF32 : KvType::kF16);
  s.plan.impl = options.impl;
  s.share_gain_ns = options.share_gain_ns;
  s.context = options.context > 0 ? options.context : std::min<int64_t>(recipe.context, kDefaultContext);
  if (recipe.learned_positions) s.context = std::min<int64_t>(s.context, recipe.context);
  s.plan.context = s.context;
  s.sequences = std::max(1, options.sequences);
  s.kv_bytes = options.kv_bytes;
  const int64_t rows = options.max_batch > 0 ? options.max_batch : batch_rows;
  s.plan.max_batch = std::clamp<int64_t>(rows, 1, std::max<int64_t>(1, s.context * s.sequences));
  const int64_t drafts = std::clamp<int64_t>(options.draft_rows, 0, s.plan.max_batch);
  s.plan.max_logit_rows =
      std::clamp<int64_t>(options.max_logit_rows > 0 ? options.max_logit_rows : s.sequences + drafts, 1, s.plan.max_batch);
  s.draft_rows = std::min(drafts, s.plan.max_logit_rows - 1);
  s.prediction = options.prediction;
  s.plan.split_rows = 1 + s.draft_rows;
  return s;
}

std::vector<const Recipe*> StacksToRun(const ModelSpec& spec, bool prediction) {
  std::vector<const Recipe*> stacks;
  for (const Recipe* const stack : spec.stacks()) {
    if (prediction || !stack->prediction()) stacks.push_back(stack);
  }
  return stacks;
}

std::vector<PlanSource> SourcesOf(std::span<const Recipe* const> stacks,
                                  const std::function<WeightView(Role, int32_t layer)>& weight, const RopePair& rope,
                                  const Shard& shard, Communicator* group, ExpertStore* experts, LayerStore* layers) {
  std::vector<PlanSource> sources;
  int32_t caches = 0;
  for (const Recipe* const stack : stacks) {
    sources.push_back({*stack, weight, rope.global, rope.local, shard, group, caches, experts, layers});
    caches += static_cast<int32_t>(KvLayers(*stack, KvType::kF16, shard).size());
  }
  return sources;
}

MemoryPlan PlanEngine(std::span<const PlanSource> stacks, const StepperOptions& options, int threads) {
  MemoryPlan plan;
  plan.kv = KvBytes(stacks, options)(options.context);
  for (const PlanSource& stack : stacks) {
    plan.scratch = SaturatingAdd(plan.scratch, PlanBytes(stack, options.plan, threads));
    if (!stack.recipe.prediction()) continue;
    plan.scratch = SaturatingAdd(plan.scratch, Predictor::Bytes(options.plan, options.sequences, stack.recipe.d_model));
  }
  plan.context = options.context;
  return plan;
}

Status CheckPlan(const MemoryPlan& plan, uint64_t held, std::span<const PlanSource> stacks, const StepperOptions& options) {
  TALLY_RETURN_IF_ERROR(CheckMemoryPlan(held, KvBytes(stacks, options), plan.scratch, plan.available, plan.context));
  return SequenceStore::Check(StoreOf(stacks, options), options.kv_size());
}

Status CheckLibraries(const EngineOptions& options) {
  TALLY_RETURN_IF_ERROR(CheckInstructionSet());
  return options.impl == ImplChoice::kBlas ? LoadOpenBlas() : Status();
}

}  // namespace tally
