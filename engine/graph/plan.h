// SPDX-License-Identifier: Apache-2.0
// The plan: a recipe and its weights, compiled into the ops of a step in order.
//
// Every op is bound to its weights and to the plan's buffers, which have room for the largest batch. A step sets the number of
// rows and fills the step's arrays (tokens, positions, groups of rows by expert).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/kinds.h"
#include "engine/base/status.h"
#include "engine/exec/executor.h"
#include "engine/graph/sequence_store.h"
#include "engine/kernels/ops.h"
#include "engine/machine/machine.h"
#include "engine/recipe/model_spec.h"
#include "engine/recipe/rope_freqs.h"
#include "engine/recipe/shard.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/layer_store.h"

namespace tally {

// Features of the recipe that cannot be run, in words: "latent attention". Empty: the model can be run.
std::vector<std::string> CannotRun(const Recipe& recipe);

// `bf16_dots`: the machine has a bf16 dot product, without which kAuto multiplies BF16 in f32.
ActKind ActKindFor(DType weight, ActivationMode mode, bool bf16_dots);

// A stack's layers of the store: one for each mixer that keeps something of earlier positions, in the order of layers and mixers. A layer
// that reads another's cache has none; a layer with two mixers may have two. With a shard: only what it keeps, but in blocks as large as
// the largest shard's, so that all stores have room for the same positions.
std::vector<StoreLayer> KvLayers(const Recipe& recipe, KvType type, const Shard& shard = {});
// Those of several stacks, one after another.
std::vector<StoreLayer> KvLayers(std::span<const Recipe* const> stacks, KvType type, const Shard& shard = {});

struct PlanOptions {
  ActivationMode activations = ActivationMode::kAuto;
  bool bf16_dots = HwyTargetHasBf16Dot();  // of the machine that is planned for
  KvType kv = KvType::kF16;
  ImplChoice impl = ImplChoice::kAuto;
  int64_t max_batch = 512;
  int64_t max_logit_rows = 1;  // of a batch
  int64_t context = 0;         // the most positions of a sequence; 0: unknown, and attention is not split over positions
  int64_t split_rows = 1;      // attention of so many rows is split over positions
};

// The inputs of a plan. All of it must outlive the plan.
struct PlanSource {
  const Recipe& recipe;
  // The view of a role's weight (layer -1: outside the layers); empty if the model has none. Views may lack data if the plan is
  // only measured.
  std::function<WeightView(Role, int32_t layer)> weight;
  // The frequencies of Recipe::rope and Recipe::local_rope.
  const RopeFrequencies &rope, &local_rope;
  // `shard`: the part of the model that the weights are. `group`: the processes that have the other parts; null if there are none, or if
  // the plan is only measured.
  Shard shard = {};
  Communicator* group = nullptr;
  int32_t first_cache = 0;  // the number of the stack's first cache in the store (KvLayers of the stacks before it)
  // Bring experts to memory whose views have slots, or layers; both null: all weights are in memory.
  ExpertStore* experts = nullptr;
  LayerStore* layers = nullptr;
};

// The rows of an op.
enum class RowsOf : uint8_t {
  kBatch,
  kRouted,    // top_k for each row of the batch, grouped by expert
  kHeads,     // a row for each head and row of the batch, grouped by head
  kLogits,    // the rows with logits
  kOutputs,   // the rows with logits or hidden states
  kLookedUp,  // the rows whose embedding is not given
  kOwned,     // of these, the rows whose embedding this process has
  kSlots,     // top_k for each row of the batch, of which this process has those of kRouted
};

struct PlannedOp {
  std::vector<Site> sites;  // one for each part that is charged
  RowsOf rows = RowsOf::kBatch;
  AnyOp op;
  RowsOf input_rows = rows;  // the rows of the input that it gathers its own from (PackActOp)
  int32_t cache = -1;        // the cache that it reads or writes, an index of KvLayers
  CopiedWork copied = {};
};

// The arrays that a GatherOp points to.
struct GatherRoom {
  std::vector<std::vector<ColumnRun>> columns;  // [ranks]
  std::vector<GatherPart> parts;
  std::vector<uint64_t> bytes;
};

struct Plan {
  std::vector<PlannedOp> ops;
  size_t head = 0;  // ops from here on run only if some row has logits, those before `logits_from` also if one has a hidden state
  size_t logits_from = 0;
  std::vector<size_t> layer_ends;  // the op after the embedding's last, then the one after each layer's
  // The op that places given embeddings, and the first one that looks up per-layer embeddings, which all rows have; SIZE_MAX: none.
  size_t place = SIZE_MAX, layer_lookup = SIZE_MAX;

  // The step's arrays, [max_batch]; group_tokens and group_slots [max_batch * top_k]. Ops have spans of them.
  int32_t *tokens = nullptr, *positions = nullptr;
  int32_t *heights = nullptr, *widths = nullptr;  // of models with M-RoPE
  // The rows with given embeddings; and of the others the tokens and the rows.
  GivenRow* given_rows = nullptr;
  int32_t *looked_up_ids = nullptr, *looked_up_rows = nullptr;
  int64_t given_count = 0, looked_up = 0;
  KvRow* kv_rows = nullptr;
  // Models with recurrent layers: the rows by sequence.
  bool recurrent = false;
  StateRun* state_runs = nullptr;
  int64_t runs = 0;
  int32_t* state_order = nullptr;
  RowGroup* groups = nullptr;  // [n_experts]
  int64_t top_k = 0;
  int32_t *group_tokens = nullptr, *group_slots = nullptr;
  // Latent attention, set when the number of rows changes. Rows are grouped by head: row h n + t is row t, head h, which is row t H + h
  // of a matrix [n, H * width] seen as [n H, width].
  int64_t heads = 0;
  RowGroup* head_groups = nullptr;  // [heads]
  int32_t* head_rows = nullptr;     // [max_batch * heads]
  Mat<float> x;                     // [max_batch, d_model]: the residual stream
  Mat<float> head_in;               // [max_batch, d_model]: of rows with logits, the input of the head
  // Of a plan for prediction, [max_batch, d_model]: the output of the last layer, which ops before `begin` normalise into `hidden`.
  Mat<float> given, hidden;
  size_t begin = 0;
  Mat<float> logits;          // [max_logit_rows, vocab]
  RowGroup whole;             // the group of ops that are not routed
  std::vector<float> slopes;  // ALiBi's, [n_heads], or empty
  // With a shard: the rows whose embedding this process has, as ids in its part of the table and as rows of the step. embedded_rows: the
  // same rows of the step for every process, one process after another.
  int32_t *owned_ids = nullptr, *owned_rows = nullptr, *embedded_rows = nullptr;
  int64_t owned = 0, embedded_count = 0;
  std::vector<GatherRoom*> embedded;  // one for each table whose rows are divided among processes
  // With own_experts: the experts of this process, whose groups and rows the plan has. routed_slots: the slots of all rows, grouped by
  // expert.
  Span experts;
  bool own_experts = false;
  int32_t* routed_slots = nullptr;
  GatherRoom* routed = nullptr;
  // With experts that are read from disk: the ops from a FetchOp on, up to `end`, run for some experts at a time. group_places, with
  // own_experts: the rows of the last of these ops' output, which are the group's rows when all experts run together.
  struct Fetched {
    size_t op = 0, end = 0;
  };
  std::vector<Fetched> fetched;
  // Of layers that are read from disk, in the order of LayerStore::layers(): the FetchOp before the layer's first op, and the op after its
  // last.
  std::vector<Fetched> streamed;
  int32_t* group_places = nullptr;
  std::deque<GatherRoom> gathers;
  AnonymousMemory memory;

  Plan() = default;
  Plan(const Plan&) = delete;  // ops point into it
  Plan& operator=(const Plan&) = delete;
};

// kNoRoom: not enough memory for the activations.
Status MakePlan(const PlanSource& source, const PlanOptions& options, Plan& plan);

// Upper bound of the bytes of a plan's buffers and of the scratch of its kernels on `threads` threads.
uint64_t PlanBytes(const PlanSource& source, const PlanOptions& options, int threads);

// Sets the op's rows: `n` batch rows, or `n` rows with logits for kLogits, or with outputs for kOutputs. A routed op has the first `groups`
// of the plan's groups.
void Reshape(const Plan& plan, int64_t n, int64_t groups, PlannedOp& op);

}  // namespace tally
