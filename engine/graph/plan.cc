// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/plan.h"

#include <algorithm>

#include "engine/base/checked.h"
#include "engine/exec/executor.h"
#include "engine/graph/planner.h"
#include "engine/kernels/formats/weight_format.h"

namespace tally {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 40;  // more rows than any batch worth measuring

// Sets an op's rows; one overload for each op.
class Rows {
 public:
  Rows(const Plan& plan, RowsOf rows, RowsOf input_rows, int64_t n, int64_t groups)
      : plan_(plan), rows_(rows), input_rows_(input_rows), n_(n), groups_(groups) {}

  void operator()(EmbedOp& op) const {
    if (rows_ == RowsOf::kLookedUp) {
      const bool all = plan_.given_count == 0;
      const size_t looked_up = static_cast<size_t>(all ? n_ : plan_.looked_up);
      op.ids = {all ? plan_.tokens : plan_.looked_up_ids, looked_up};
      op.step_rows = {all ? nullptr : plan_.looked_up_rows, all ? 0 : looked_up};
      op.out.rows = static_cast<int64_t>(looked_up);
      return;
    }
    Set(op.ids, op.out);
    if (rows_ != RowsOf::kOwned) return;
    const size_t owned = static_cast<size_t>(plan_.owned);
    op.ids = {op.ids.data(), owned};
    op.step_rows = {op.step_rows.data(), owned};
    op.out.rows = plan_.owned;
  }
  void operator()(PlaceRowsOp& op) const {
    op.x.rows = n_;
    op.given = {plan_.given_rows, static_cast<size_t>(plan_.given_count)};
    if (!plan_.embedded.empty()) return;  // the gather has placed the others
    op.to_rows = {plan_.looked_up_rows, static_cast<size_t>(plan_.looked_up)};
  }
  void operator()(NormOp& op) const { Set(op.x, op.out); }
  void operator()(PackActOp& op) const {
    Set(op.pack);
    op.x.rows = Count(input_rows_);
    if (op.row_index.data() != nullptr) op.row_index = {op.row_index.data(), static_cast<size_t>(op.pack.rows)};
  }
  void operator()(MatMulOp& op) const {
    Set(op.x);
    const bool slots =
        op.out_row.data() != nullptr && rows_ != RowsOf::kHeads;  // of all routed rows, of which a part may be multiplied
    op.out.rows = slots ? n_ * plan_.top_k : op.x.rows;
    if (op.out_row.data() != nullptr) op.out_row = {op.out_row.data(), static_cast<size_t>(op.x.rows)};
  }
  void operator()(GatedMatMulOp& op) const {
    Set(op.x);
    op.out.rows = op.x.rows;
  }
  void operator()(RopeTableOp& op) const {
    Set(op.positions, op.cos, op.sin);
    if (!op.axes.empty()) Set(op.heights, op.widths);
  }
  void operator()(RopeOp& op) const { Set(op.x, op.out, op.cos, op.sin); }
  void operator()(KvStoreOp& op) const { Set(op.k, op.v, op.rows); }
  void operator()(AttentionOp& op) const { Set(op.q, op.out, op.rows); }
  void operator()(RouteOp& op) const { Set(op.logits, op.experts, op.weights); }
  void operator()(MoeCombineOp& op) const {
    Set(op.weights, op.out);
    op.y.rows = n_ * op.weights.cols;
  }
  void operator()(GatedAddOp& op) const { Set(op.y, op.gate, op.out); }
  void operator()(ElementwiseOp& op) const { op.x.rows = op.up.rows = Count(rows_); }
  void operator()(ScaleRowsOp& op) const {
    op.x.rows = op.weights.rows = Count(rows_);
    op.out.rows = op.x.rows * op.factors();
  }
  void operator()(TemperatureOp& op) const { Set(op.positions, op.out); }
  void operator()(CausalConvOp& op) const {
    Set(op.x, op.runs, op.out);
    op.gate.rows = op.gate.empty() ? 0 : n_;
  }
  void operator()(RatesOp& op) const {
    Set(op.x, op.decay);
    op.beta.rows = op.beta.empty() ? 0 : n_;
  }
  void operator()(DeltaRuleOp& op) const { Set(op.q, op.k, op.v, op.decay, op.beta, op.runs, op.out); }
  void operator()(SsmScanOp& op) const { Set(op.x, op.b, op.c, op.step, op.decay, op.runs, op.out); }
  void operator()(GatedNormOp& op) const { Set(op.x, op.gate, op.out); }
  void operator()(FetchOp&) const {}  // the decoder sets what is missed
  void operator()(GatherPackOp& op) const {
    Set(op.own, op.all);
    for (GatherPart& part : op.parts) part.rows = op.all.rows;
  }
  void operator()(GatherOp& op) const {
    op.all.rows = n_;
    if (rows_ == RowsOf::kOwned) {  // the decoder has set the rows of the parts
      op.own.rows = plan_.owned;
      op.to_rows = {op.to_rows.data(), static_cast<size_t>(plan_.embedded_count)};
      return;
    }
    if (rows_ == RowsOf::kSlots) {
      op.own.rows = Count(RowsOf::kRouted);
      op.all.rows = Count(RowsOf::kSlots);
      op.to_rows = {op.to_rows.data(), static_cast<size_t>(op.all.rows)};
      return;
    }
    op.own.rows = op.all.rows = Count(rows_);
    for (GatherPart& part : op.parts) part.rows = op.all.rows;
  }

 private:
  template <class... Views>
  void Set(Views&... views) const {
    (SetOne(views), ...);
  }
  template <class T>
  void SetOne(Mat<T>& m) const {
    m.rows = n_;
  }
  template <class T>
  void SetOne(std::span<T>& s) const {
    s = {s.data(), static_cast<size_t>(n_)};
  }
  void SetOne(StateRuns& runs) const {
    runs = {{plan_.state_runs, static_cast<size_t>(plan_.runs)}, {plan_.state_order, static_cast<size_t>(n_)}};
  }
  void SetOne(ActPack& pack) const {
    if (rows_ == RowsOf::kHeads) pack.groups = {plan_.head_groups, static_cast<size_t>(plan_.heads)};
    if (rows_ == RowsOf::kRouted) pack.groups = {plan_.groups, static_cast<size_t>(groups_)};
    pack.rows = Count(rows_);
  }
  int64_t Count(RowsOf rows) const {
    switch (rows) {
      case RowsOf::kBatch:
      case RowsOf::kLogits:
      case RowsOf::kOutputs: break;
      case RowsOf::kLookedUp: return plan_.given_count == 0 ? n_ : plan_.looked_up;
      case RowsOf::kOwned: return plan_.owned;
      case RowsOf::kSlots: return n_ * plan_.top_k;
      case RowsOf::kHeads: return n_ * plan_.heads;
      case RowsOf::kRouted: {
        int64_t routed = 0;
        for (int64_t g = 0; g < groups_; ++g) routed += plan_.groups[g].rows;
        return routed;
      }
    }
    return n_;
  }

  const Plan& plan_;
  RowsOf rows_, input_rows_;
  int64_t n_, groups_;
};

}  // namespace

std::vector<std::string> CannotRun(const Recipe& r) {
  std::vector<std::string> why;
  if (r.counted_only) why.push_back(r.counted_only->why);
  const auto any = [&](const char* what, auto property) {
    if (AnyLayer(r, property)) why.emplace_back(what);
  };
  const auto half = [](const LayerRecipe& l) { return l.mixers.empty() || l.feed_forward.empty(); };
  any("LayerNorm after attention and feed-forward",
      [&](const LayerRecipe& l) { return r.norm == NormKind::kLayer && l.residual.post_norms; });
  any("a residual scale with norms after the blocks",
      [](const LayerRecipe& l) { return l.residual.post_norms && l.residual.scale != 1; });
  any("norms of the residual stream with other norms", [](const LayerRecipe& l) {
    const ResidualRule& x = l.residual;
    return x.stream_norms && (x.kind != Residual::kSequential || x.post_norms || !x.pre_norms || l.both());
  });
  any("parallel blocks with norms after them", [](const LayerRecipe& l) {
    return l.residual.kind != Residual::kSequential && (l.residual.post_norms || !l.residual.pre_norms);
  });
  any("attention without a scale", [](const LayerRecipe& l) { return l.attends() && !(l.attention.scale > 0); });
  any("experts beside a dense feed-forward without RMSNorms before and after them", [&](const LayerRecipe& l) {
    return l.both() && (!l.residual.pre_norms || !l.residual.post_norms || r.norm != NormKind::kRms);
  });
  any("parallel blocks of which one is absent",
      [&](const LayerRecipe& l) { return l.residual.kind != Residual::kSequential && half(l); });
  const auto other_heads = [&](const LayerRecipe& l) { return l.attends() && l.attention.n_heads != AttentionOf(r).n_heads; };
  if (r.alibi_bias > 0 && AnyLayer(r, other_heads)) why.emplace_back("ALiBi with heads that differ from layer to layer");
  return why;
}

std::vector<StoreLayer> KvLayers(const Recipe& recipe, KvType type, const Shard& shard) {
  const auto layers_of = [&](int32_t rank) {
    std::vector<StoreLayer> layers;
    for (const LayerCache& c : LayerCaches(recipe, type, shard.Of(rank))) {
      layers.push_back(c.recurrent ? StateStoreLayer(c.state) : KvStoreLayer(c.window, c.layout));
      if (c.empty()) layers.back().clear = [](uint8_t*, int64_t) {};
    }
    return layers;
  };
  std::vector<StoreLayer> own = layers_of(shard.rank);
  for (int32_t rank = 0; rank < shard.ranks; ++rank) {
    if (rank == shard.rank) continue;
    const std::vector<StoreLayer> others = layers_of(rank);
    for (size_t i = 0; i < own.size(); ++i) {
      own[i].bytes = std::max(own[i].bytes, others[i].bytes);
      own[i].state_bytes = std::max(own[i].state_bytes, others[i].state_bytes);
    }
  }
  return own;
}

std::vector<StoreLayer> KvLayers(std::span<const Recipe* const> stacks, KvType type, const Shard& shard) {
  std::vector<StoreLayer> all;
  for (const Recipe* const stack : stacks) std::ranges::move(KvLayers(*stack, type, shard), std::back_inserter(all));
  return all;
}

ActKind ActKindFor(DType weight, ActivationMode mode, bool bf16_dots) {
  if (mode == ActivationMode::kF32) return ActKind::kF32;
  if (mode == ActivationMode::kBF16 && TakesActivations(weight, ActKind::kBF16)) return ActKind::kBF16;
  const ActKind preferred = FormatOf(weight).act;
  if (preferred == ActKind::kBF16 && !bf16_dots) return ActKind::kF32;
  return preferred;
}

void Reshape(const Plan& plan, int64_t n, int64_t groups, PlannedOp& op) {
  std::visit(Rows(plan, op.rows, op.input_rows, n, groups), op.op);
}

Status MakePlan(const PlanSource& source, const PlanOptions& options, Plan& plan) {
  Arena measured;
  Planner(source, options, measured, plan).Make();
  auto memory = AnonymousMemory::Allocate(measured.used(), true);
  if (!memory.ok()) return NoRoom("not enough memory for the activations of a batch of " + std::to_string(options.max_batch));
  plan.memory = std::move(memory).value();
  Arena arena(plan.memory.data());
  Planner(source, options, arena, plan).Make();
  return {};
}

uint64_t PlanBytes(const PlanSource& source, const PlanOptions& options, int threads) {
  if (options.max_batch > kMostRows || options.max_logit_rows > kMostRows) return UINT64_MAX;
  Arena arena;
  Plan plan;
  Planner(source, options, arena, plan).Make();
  // The widest shapes: one sequence fills the batch, and all rows choose the same experts.
  const int64_t n = options.max_batch;
  const std::vector<KvRow> rows(static_cast<size_t>(std::min<int64_t>(n, 1024)));  // more than a tile of attention has
  std::vector<RowGroup> groups;
  for (int64_t i = 0; i < ExpertsOf(source.recipe).top_k; ++i) groups.push_back({.row_begin = i * n, .rows = n, .slice = i});
  plan.whole = {.row_begin = 0, .rows = n, .slice = 0};
  plan.groups = groups.data();
  std::vector<RowGroup> head_groups;
  for (int64_t h = 0; h < plan.heads; ++h) head_groups.push_back({.row_begin = h * n, .rows = n, .slice = h});
  plan.head_groups = head_groups.data();
  size_t scratch = 0;
  for (PlannedOp& planned : plan.ops) {
    Reshape(plan, planned.rows == RowsOf::kLogits ? options.max_logit_rows : n, static_cast<int64_t>(groups.size()), planned);
    std::visit(
        [&](auto& op) {
          if constexpr (requires { op.tables; }) op.rows = rows;
          scratch = std::max(scratch, ScratchBytes(op, options.impl, threads));
        },
        planned.op);
  }
  return SaturatingAdd(arena.used(), SaturatingMul(static_cast<uint64_t>(threads), scratch));
}

}  // namespace tally
