#include "engine/graph/plan.h"

#include <algorithm>
#include <optional>

#include "engine/base/checked.h"
#include "engine/exec/executor.h"

namespace tally {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 40;  // of a batch that is worth measuring

int64_t Width(int32_t heads, int32_t head_dim) { return int64_t{heads} * head_dim; }

KvLayout LayoutOf(const Recipe& r, KvType type) { return {.type = type, .kv_heads = r.n_kv_heads, .k_dim = r.head_dim}; }

// Hands out one block of memory. Without memory it only measures: what it hands out must not be used.
class Arena {
 public:
  explicit Arena(uint8_t* base = nullptr) : base_(base) {}
  template <class T>
  T* Take(uint64_t n) {
    const uint64_t at = used_;
    used_ = SaturatingAdd(used_, SaturatingMul(n / (64 / sizeof(T)) + 1, 64));
    alignas(64) static uint8_t nowhere[64];
    return reinterpret_cast<T*>(base_ != nullptr ? base_ + at : nowhere);
  }
  uint64_t used() const { return used_; }

 private:
  uint8_t* base_;
  uint64_t used_ = 0;
};

class Planner {
 public:
  Planner(const PlanSource& source, const PlanOptions& options, Arena& arena, Plan& plan)
      : r_(source.recipe), source_(source), options_(options), arena_(arena), plan_(plan), n_(options.max_batch) {}

  void Make() {
    plan_.ops.clear();
    Buffers();
    Embed();
    for (layer_ = 0; layer_ < r_.n_layers; ++layer_) Layer();
    layer_ = -1;
    plan_.head = plan_.ops.size();
    rows_ = RowsOf::kLogits;
    Norm(Role::kOutputNorm, plan_.x, normed_);
    Project(Role::kHead, normed_, plan_.logits);
  }

 private:
  // The pack of a block's input: matrices of one format share it.
  using SharedPack = std::optional<ActPack>;

  Mat<float> Floats(int64_t cols, int64_t rows_each = 1) {
    const uint64_t rows = SaturatingMul(static_cast<uint64_t>(n_), static_cast<uint64_t>(rows_each));
    return {arena_.Take<float>(SaturatingMul(rows, static_cast<uint64_t>(cols))), n_ * rows_each, cols};
  }

  void Buffers() {
    const int64_t q = Width(r_.n_heads, r_.head_dim), kv = Width(r_.n_kv_heads, r_.head_dim), E = r_.d_model;
    const bool sparse = std::any_of(r_.layers.begin(), r_.layers.end(), [](const LayerRecipe& l) { return l.sparse; });
    const bool dense = std::any_of(r_.layers.begin(), r_.layers.end(), [](const LayerRecipe& l) { return !l.sparse; });
    const int64_t k = sparse ? r_.top_k : 0, qkv = q + (r_.fused_qkv ? 2 * kv : 0);
    const int64_t hidden =
        std::max({dense ? int64_t{r_.d_ff} : 0, sparse ? int64_t{r_.top_k} * r_.d_expert : 0, int64_t{r_.d_shared}, int64_t{1}});
    const uint64_t n = static_cast<uint64_t>(n_), routed = SaturatingMul(n, static_cast<uint64_t>(k));
    plan_.tokens = arena_.Take<int32_t>(n);
    plan_.positions = arena_.Take<int32_t>(n);
    plan_.kv_rows = arena_.Take<KvRow>(n);
    plan_.groups = arena_.Take<RowGroup>(static_cast<uint64_t>(std::max(r_.n_experts, 0)));
    plan_.group_tokens = arena_.Take<int32_t>(routed);
    plan_.group_slots = arena_.Take<int32_t>(routed);
    plan_.x = Floats(E);
    normed_ = Floats(E);
    if (r_.residual == Residual::kParallel) ffn_normed_ = Floats(E);
    if (r_.post_norms) block_out_ = Floats(E);
    qkv_ = Floats(qkv);
    if (!r_.fused_qkv) {
      k_ = Floats(kv);
      v_ = Floats(kv);
    }
    attended_ = Floats(q);
    hidden_ = Floats(hidden);
    if (sparse) {
      expert_out_ = Floats(E, k);
      router_ = Floats(r_.n_experts);
      route_weights_ = Floats(k);
      route_experts_ = {arena_.Take<int32_t>(routed), n_, k};
    }
    if (r_.shared_gate) {
      shared_out_ = Floats(E);
      shared_gate_ = Floats(1);
    }
    // f32 packs are the largest: one row of the widest input, or one for each slot of an expert's inputs.
    const int64_t widest = std::max({E, q, hidden, k * E});
    pack_ = arena_.Take<uint8_t>(SaturatingAdd(SaturatingMul(n, 4 * RoundUp(static_cast<uint64_t>(widest), 2)), 64));
    const uint64_t logits = SaturatingMul(static_cast<uint64_t>(options_.max_logit_rows), static_cast<uint64_t>(r_.vocab));
    plan_.logits = {arena_.Take<float>(logits), options_.max_logit_rows, r_.vocab};
  }

  WeightView Get(Role role) const { return source_.weight(role, layer_); }
  WeightView BiasOf(Role role) const { return FactsOf(role).biased ? Get(tally::BiasOf(role)) : WeightView(); }

  template <class Op>
  void Add(Component component, Op op, RowsOf rows) {
    plan_.ops.push_back({{Site{layer_, component}}, rows, std::move(op)});
  }
  template <class Op>
  void Add(Component component, Op op) {
    Add(component, std::move(op), rows_);
  }
  // Charged where the role's weight is.
  template <class Op>
  void Add(Role role, Op op) {
    Add(FactsOf(role).component, std::move(op));
  }

  void Norm(Role role, Mat<const float> in, Mat<float> out) {
    Add(role, NormOp{.kind = r_.norm,
                     .x = in,
                     .weight = Get(role),
                     .bias = r_.norm == NormKind::kLayer ? BiasOf(role) : WeightView{},
                     .eps = r_.norm_eps,
                     .out = out});
  }

  // A block's output into the residual stream.
  void PostNorm(Role role) {
    Add(role, NormOp{.kind = NormKind::kRms,
                     .x = block_out_,
                     .weight = Get(role),
                     .bias = {},
                     .eps = r_.norm_eps,
                     .add_to_out = true,
                     .out = plan_.x});
  }

  // How the input of the role's matrix is packed. What chooses and weighs experts is computed in f32.
  ActFormat FormatFor(Role role) const {
    const bool f32 = role == Role::kRouter || role == Role::kSharedExpertSigmoid;
    const DType type = Get(role).dtype;
    return ActFormatFor(type, ActKindFor(type, f32 ? ActivationMode::kF32 : options_.activations));
  }
  ActPack Pack(Role role, Mat<const float> in, SharedPack* shared = nullptr) {
    const ActFormat format = FormatFor(role);
    if (shared != nullptr && shared->has_value() && (*shared)->format == format) return **shared;
    const ActPack pack{.format = format, .rows = in.rows, .cols = in.cols, .data = pack_, .groups = {&plan_.whole, 1}};
    Add(role, PackActOp{.x = in, .row_index = {}, .pack = pack});
    if (shared != nullptr) *shared = pack;
    return pack;
  }

  struct Projection {
    bool add_to_out = false;
    ActivationKind activation = ActivationKind::kNone;
    SharedPack* shared = nullptr;
  };
  void Project(Role role, Mat<const float> in, Mat<float> out) { Project(role, in, out, {}); }
  void Project(Role role, Mat<const float> in, Mat<float> out, const Projection& p) {
    const ActPack pack = Pack(role, in, p.shared);
    Add(role, MatMulOp{.x = pack,
                       .w = Get(role),
                       .bias = BiasOf(role),
                       .activation = p.activation,
                       .add_to_out = p.add_to_out,
                       .out = out,
                       .out_row = {},
                       .work_class = role == Role::kRouter ? WorkClass::kRouter : WorkClass::kLinear});
  }
  // The last matrix of a block: into the residual stream, or through a norm of its own.
  void ProjectOut(Role role, Mat<const float> in) {
    Project(role, in, r_.post_norms ? block_out_ : plan_.x, {.add_to_out = !r_.post_norms});
  }

  void Embed() {
    const size_t n = static_cast<size_t>(n_);
    Add(Role::kTokenEmbedding,
        EmbedOp{.ids = {plan_.tokens, n}, .table = Get(Role::kTokenEmbedding), .out = plan_.x, .scale = r_.embedding_scale});
    if (r_.learned_positions) {
      Add(Role::kPositionEmbedding,
          EmbedOp{.ids = {plan_.positions, n}, .table = Get(Role::kPositionEmbedding), .add_to_out = true, .out = plan_.x});
    }
    const auto used = [&](LayerRope which) {
      return std::any_of(r_.layers.begin(), r_.layers.end(), [&](const LayerRecipe& l) { return l.rope == which; });
    };
    if (used(LayerRope::kGlobal)) Turns(r_.rope, source_.rope, turns_[0]);
    if (used(LayerRope::kLocal)) Turns(r_.local_rope, source_.local_rope, turns_[1]);
  }

  struct RopeTurns {
    Mat<float> cos, sin;  // [max_batch, dim / 2]
  };
  void Turns(const Rope& rope, const RopeFrequencies& frequencies, RopeTurns& turns) {
    if (rope.style == RopeStyle::kNone) return;
    turns = {Floats(rope.dim / 2), Floats(rope.dim / 2)};
    Add(Component::kRope, RopeTableOp{.positions = {plan_.positions, static_cast<size_t>(n_)},
                                      .inv_freq = frequencies.inv_freq,
                                      .magnitude = frequencies.magnitude,
                                      .cos = turns.cos,
                                      .sin = turns.sin});
  }

  void Layer() {
    const bool parallel = r_.residual == Residual::kParallel, sparse = r_.layers[static_cast<size_t>(layer_)].sparse;
    const Mat<float> ffn_in = parallel ? ffn_normed_ : normed_;
    Norm(Role::kAttnNorm, plan_.x, normed_);
    if (parallel) Norm(Role::kFfnNorm, plan_.x, ffn_in);
    Attention();
    if (r_.post_norms) PostNorm(Role::kAttnPostNorm);
    if (!parallel) Norm(Role::kFfnNorm, plan_.x, ffn_in);
    if (sparse) {
      SparseFeedForward(ffn_in);
    } else {
      DenseFeedForward(ffn_in);
    }
    if (r_.post_norms) PostNorm(Role::kFfnPostNorm);
  }

  void Attention() {
    const LayerRecipe& l = r_.layers[static_cast<size_t>(layer_)];
    const int64_t q_cols = Width(r_.n_heads, r_.head_dim), kv_cols = Width(r_.n_kv_heads, r_.head_dim);
    Mat<float> q = qkv_, k = k_, v = v_;
    SharedPack shared;
    if (r_.fused_qkv) {
      Project(Role::kQkv, normed_, qkv_);
      q = qkv_.Cols(0, q_cols);
      k = qkv_.Cols(q_cols, kv_cols);
      v = qkv_.Cols(q_cols + kv_cols, kv_cols);
    } else {
      Project(Role::kQ, normed_, q, {.shared = &shared});
      Project(Role::kK, normed_, k, {.shared = &shared});
      Project(Role::kV, normed_, v, {.shared = &shared});
    }
    if (r_.qk_norm != QkNormKind::kNone) {
      const bool by_head = r_.qk_norm == QkNormKind::kHead;
      QkNorm(Role::kQNorm, q, by_head ? r_.n_heads : 1);
      QkNorm(Role::kKNorm, k, by_head ? r_.n_kv_heads : 1);
    }
    Rotate(l, q, r_.n_heads);
    Rotate(l, k, r_.n_kv_heads);
    const std::span<const KvRow> rows(plan_.kv_rows, static_cast<size_t>(n_));
    const KvLayout layout = LayoutOf(r_, options_.kv);
    Add(Component::kKvStore, KvStoreOp{.k = k, .v = v, .layout = layout, .rows = rows, .tables = {}});
    Add(Component::kAttention, AttentionOp{.q = q,
                                           .out = attended_,
                                           .heads = r_.n_heads,
                                           .layout = layout,
                                           .scale = l.attention_scale,
                                           .window = l.window,
                                           .sinks = r_.sinks ? Get(Role::kSinks) : WeightView{},
                                           .rows = rows,
                                           .tables = {}});
    ProjectOut(Role::kO, attended_);
  }

  void QkNorm(Role role, Mat<float> x, int64_t groups) {
    Add(role,
        NormOp{.kind = NormKind::kRms, .x = x, .groups = groups, .weight = Get(role), .bias = {}, .eps = r_.norm_eps, .out = x});
  }

  void Rotate(const LayerRecipe& l, Mat<float> x, int64_t heads) {
    const bool local = l.rope == LayerRope::kLocal;
    const Rope& rope = local ? r_.local_rope : r_.rope;
    if (l.rope == LayerRope::kNone || rope.style == RopeStyle::kNone) return;
    const RopeTurns& turns = turns_[local ? 1 : 0];
    Add(Component::kRope, RopeOp{.style = rope.style,
                                 .x = x,
                                 .heads = heads,
                                 .head_dim = r_.head_dim,
                                 .dim = rope.dim,
                                 .cos = turns.cos,
                                 .sin = turns.sin});
  }

  void DenseFeedForward(Mat<const float> in) {
    const Mat<float> hidden(hidden_.data, n_, r_.d_ff);
    if (r_.gated_ffn) {
      Gated(Role::kGate, Role::kUp, Pack(Role::kGate, in), hidden);
    } else {
      Project(Role::kUp, in, hidden, {.activation = r_.activation});
    }
    ProjectOut(Role::kDown, hidden);
  }

  void Gated(Role gate, Role up, const ActPack& pack, Mat<float> hidden) {
    Add(gate, GatedMatMulOp{.x = pack,
                            .gate = Get(gate),
                            .up = Get(up),
                            .gate_bias = BiasOf(gate),
                            .up_bias = BiasOf(up),
                            .activation = r_.activation,
                            .swiglu_alpha = r_.swiglu_alpha,
                            .swiglu_limit = r_.swiglu_limit,
                            .out = hidden});
  }

  // Packs rows for the experts' matrix of a role: row i of the pack is row index[i] of `in`, or its own row where there is no index.
  ActPack PackRouted(Role role, Mat<const float> in, const int32_t* index) {
    const int64_t routed = n_ * r_.top_k;
    const ActPack pack{.format = FormatFor(role), .rows = routed, .cols = in.cols, .data = pack_, .groups = {plan_.groups, 0}};
    Add(role, PackActOp{.x = in, .row_index = {index, index != nullptr ? static_cast<size_t>(routed) : 0}, .pack = pack});
    return pack;
  }

  void SparseFeedForward(Mat<const float> in) {
    const int64_t routed = n_ * r_.top_k;
    Project(Role::kRouter, in, router_);
    Add(Role::kRouter,
        RouteOp{.logits = router_, .top_k = r_.top_k, .rule = r_.routing, .experts = route_experts_, .weights = route_weights_});
    const Mat<float> hidden(hidden_.data, routed, r_.d_expert);
    rows_ = RowsOf::kRouted;
    Gated(Role::kExpertGate, Role::kExpertUp, PackRouted(Role::kExpertGate, in, plan_.group_tokens), hidden);
    const ActPack pack = PackRouted(Role::kExpertDown, hidden, nullptr);
    Add(Role::kExpertDown, MatMulOp{.x = pack,
                                    .w = Get(Role::kExpertDown),
                                    .bias = BiasOf(Role::kExpertDown),
                                    .out = expert_out_,
                                    .out_row = {plan_.group_slots, static_cast<size_t>(routed)}});
    rows_ = RowsOf::kBatch;
    Add(Component::kMoeCombine, MoeCombineOp{.y = expert_out_, .weights = route_weights_, .out = plan_.x});
    if (r_.d_shared > 0) SharedExperts(in);
  }

  // Into the residual stream, through their gate where they have one.
  void SharedExperts(Mat<const float> in) {
    const Mat<float> hidden(hidden_.data, n_, r_.d_shared);
    Gated(Role::kSharedExpertGate, Role::kSharedExpertUp, Pack(Role::kSharedExpertGate, in), hidden);
    if (!r_.shared_gate) return Project(Role::kSharedExpertDown, hidden, plan_.x, {.add_to_out = true});
    Project(Role::kSharedExpertDown, hidden, shared_out_);
    Project(Role::kSharedExpertSigmoid, in, shared_gate_);
    plan_.ops.push_back({{{layer_, Component::kSharedSigmoid}, {layer_, Component::kSharedDown}},
                         rows_,
                         GatedAddOp{.y = shared_out_, .gate = shared_gate_, .out = plan_.x}});
  }

  const Recipe& r_;
  const PlanSource& source_;
  const PlanOptions& options_;
  Arena& arena_;
  Plan& plan_;
  const int64_t n_;  // max_batch
  int32_t layer_ = -1;
  RowsOf rows_ = RowsOf::kBatch;

  Mat<float> normed_, ffn_normed_, block_out_, qkv_, k_, v_, attended_, hidden_, expert_out_, router_, route_weights_,
      shared_out_, shared_gate_;
  Mat<int32_t> route_experts_;
  RopeTurns turns_[2];  // of Recipe::rope and local_rope
  uint8_t* pack_ = nullptr;
};

// Sets an op's rows; one overload for each op.
class Rows {
 public:
  Rows(const Plan& plan, RowsOf rows, int64_t n, int64_t groups) : plan_(plan), rows_(rows), n_(n), groups_(groups) {}

  void operator()(EmbedOp& op) const { Set(op.ids, op.out); }
  void operator()(NormOp& op) const { Set(op.x, op.out); }
  void operator()(PackActOp& op) const {
    Set(op.pack);
    op.x.rows = !op.row_index.empty() ? n_ : op.pack.rows;
    if (!op.row_index.empty()) op.row_index = {op.row_index.data(), static_cast<size_t>(op.pack.rows)};
  }
  void operator()(MatMulOp& op) const {
    Set(op.x);
    op.out.rows = op.x.rows;
    if (!op.out_row.empty()) op.out_row = {op.out_row.data(), static_cast<size_t>(op.x.rows)};
  }
  void operator()(GatedMatMulOp& op) const {
    Set(op.x);
    op.out.rows = op.x.rows;
  }
  void operator()(RopeTableOp& op) const { Set(op.positions, op.cos, op.sin); }
  void operator()(RopeOp& op) const { Set(op.x, op.cos, op.sin); }
  void operator()(KvStoreOp& op) const { Set(op.k, op.v, op.rows); }
  void operator()(AttentionOp& op) const { Set(op.q, op.out, op.rows); }
  void operator()(RouteOp& op) const { Set(op.logits, op.experts, op.weights); }
  void operator()(MoeCombineOp& op) const {
    Set(op.weights, op.out);
    op.y.rows = n_ * op.weights.cols;
  }
  void operator()(GatedAddOp& op) const { Set(op.y, op.gate, op.out); }

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
  void SetOne(ActPack& pack) const {
    if (rows_ != RowsOf::kRouted) {
      pack.rows = n_;
      return;
    }
    pack.groups = {plan_.groups, static_cast<size_t>(groups_)};
    pack.rows = 0;
    for (const RowGroup& g : pack.groups) pack.rows += g.rows;
  }

  const Plan& plan_;
  RowsOf rows_;
  int64_t n_, groups_;
};

}  // namespace

std::vector<std::string> CannotRun(const Recipe& r) {
  std::vector<std::string> why;
  const bool sparse = std::any_of(r.layers.begin(), r.layers.end(), [](const LayerRecipe& l) { return l.sparse; });
  if (r.latent.kv_rank > 0) why.emplace_back("latent attention");
  if (sparse && r.routing == RoutingRule::kSigmoidThenTopKRenormed) why.emplace_back("routing by sigmoids");
  if (sparse && !r.gated_ffn) why.emplace_back("experts without a gate");
  if (sparse && r.post_norms) why.emplace_back("norms after a mixture of experts");
  if (r.norm == NormKind::kLayer && r.post_norms) why.emplace_back("LayerNorm after attention and feed-forward");
  if (r.mtp_layers > 0) why.emplace_back("layers for multi-token prediction");
  if (std::any_of(r.layers.begin(), r.layers.end(), [](const LayerRecipe& l) { return !(l.attention_scale > 0); })) {
    why.emplace_back("attention without a scale");
  }
  return why;
}

std::vector<KvLayerSpec> KvLayers(const Recipe& recipe, KvType type) {
  std::vector<KvLayerSpec> layers;
  for (const LayerRecipe& l : recipe.layers) layers.push_back({.window = l.window, .layout = LayoutOf(recipe, type)});
  return layers;
}

ActKind ActKindFor(DType weight, ActivationMode mode) {
  if (mode == ActivationMode::kF32) return ActKind::kF32;
  if (GetDTypeInfo(weight).quantised) return ActKind::kInt8;
  if (weight == DType::kBF16 && (mode == ActivationMode::kBF16 || HwyTargetHasBf16Dot())) return ActKind::kBF16;
  return ActKind::kF32;
}

void Reshape(const Plan& plan, int64_t n, int64_t groups, PlannedOp& op) { std::visit(Rows(plan, op.rows, n, groups), op.op); }

Status MakePlan(const PlanSource& source, const PlanOptions& options, Plan& plan) {
  Arena measured;
  Planner(source, options, measured, plan).Make();
  auto memory = AnonymousMemory::Allocate(measured.used(), true);
  if (!memory.ok()) return BadInput("not enough memory for the activations of a batch of " + std::to_string(options.max_batch));
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
  // The widest shapes: a whole batch of one sequence; of experts, all of it at each of top_k.
  const int64_t n = options.max_batch;
  const std::vector<KvRow> rows(static_cast<size_t>(std::min<int64_t>(n, 1024)));  // more than a tile of attention has
  std::vector<RowGroup> groups;
  for (int64_t i = 0; i < source.recipe.top_k; ++i) groups.push_back({.row_begin = i * n, .rows = n, .slice = i});
  plan.whole = {.row_begin = 0, .rows = n, .slice = 0};
  plan.groups = groups.data();
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
