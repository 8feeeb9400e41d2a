// The plan: a recipe and its weights compiled, once, into the ops of a step in their order.
//
// Every op is bound to its weights and to the plan's buffers, for the largest batch; a step sets how many rows there are and fills the
// step's arrays (tokens, positions, groups of rows by expert). What differs between layers is in their ops.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/kinds.h"
#include "engine/base/status.h"
#include "engine/graph/kv_pool.h"
#include "engine/kernels/ops.h"
#include "engine/machine/machine.h"
#include "engine/recipe/model_spec.h"
#include "engine/recipe/rope_freqs.h"

namespace tally {

// The options of the recipe that no plan covers, in words: "latent attention". Empty: the model can be run.
std::vector<std::string> CannotRun(const Recipe& recipe);

ActKind ActKindFor(DType weight, ActivationMode mode);

// What a KV pool for the recipe holds, layer by layer.
std::vector<KvLayerSpec> KvLayers(const Recipe& recipe, KvType type);

struct PlanOptions {
  ActivationMode activations = ActivationMode::kAuto;
  KvType kv = KvType::kF16;
  ImplChoice impl = ImplChoice::kAuto;
  int64_t max_batch = 512;
  int64_t max_logit_rows = 1;  // of a batch
};

// What a plan is made of. All of it must outlive the plan.
struct PlanSource {
  const Recipe& recipe;
  // The view of a role's weight, layer -1 outside of the layers; empty where the model has none. To measure a plan, views without data do.
  std::function<WeightView(Role, int32_t layer)> weight;
  // Of Recipe::rope and Recipe::local_rope.
  const RopeFrequencies &rope, &local_rope;
};

// Whose rows an op has.
enum class RowsOf : uint8_t {
  kBatch,
  kRouted,  // top_k for each of the batch, grouped by expert
  kLogits,  // those of the batch whose logits are wanted
};

struct PlannedOp {
  std::vector<Site> sites;  // one for each part that is charged apart
  RowsOf rows = RowsOf::kBatch;
  AnyOp op;
};

struct Plan {
  std::vector<PlannedOp> ops;
  size_t head = 0;  // ops from here on run where logits are wanted

  // The step's arrays, [max_batch], and [max_batch * top_k] of those of groups. Ops have spans of them.
  int32_t *tokens = nullptr, *positions = nullptr;
  KvRow* kv_rows = nullptr;
  RowGroup* groups = nullptr;  // [n_experts]
  int32_t *group_tokens = nullptr, *group_slots = nullptr;
  Mat<float> x;       // [max_batch, d_model]: the residual stream
  Mat<float> logits;  // [max_logit_rows, vocab]
  RowGroup whole;     // the one group of what is not routed
  AnonymousMemory memory;

  Plan() = default;
  Plan(const Plan&) = delete;  // ops point into it
  Plan& operator=(const Plan&) = delete;
};

// kBadInput: not enough memory for the activations.
Status MakePlan(const PlanSource& source, const PlanOptions& options, Plan& plan);

// Bytes that a plan's buffers and the scratch of its kernels on `threads` threads take at most.
uint64_t PlanBytes(const PlanSource& source, const PlanOptions& options, int threads);

// Makes the op one of `n` rows, of a batch of them or, of RowsOf::kLogits, of that many with logits. A routed op has the first
// `groups` of the plan's groups.
void Reshape(const Plan& plan, int64_t n, int64_t groups, PlannedOp& op);

}  // namespace tally
