#include "engine/graph/decoder.h"

#include <algorithm>
#include <cstring>

#include "engine/base/checked.h"
#include "engine/base/finite.h"
#include "engine/kernels/embed.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/router.h"

namespace tally {

ActKind ActKindFor(DType weight, ActivationMode mode) {
  if (mode == ActivationMode::kF32) return ActKind::kF32;
  const ActKind own = FormatOf(weight).act;
  const bool slow = own == ActKind::kBF16 && mode != ActivationMode::kBF16 && !HwyTargetHasBf16Dot();
  return slow ? ActKind::kF32 : own;
}

// Elements a row of the batch needs of each buffer.
struct Decoder::Sizes {
  uint64_t x, q, kv, hidden, expert_out, router, rope, routes, pack_bytes;

  explicit Sizes(const Recipe& r) {
    x = static_cast<uint64_t>(r.d_model);
    q = static_cast<uint64_t>(r.n_heads) * static_cast<uint64_t>(r.head_dim);
    kv = static_cast<uint64_t>(r.n_kv_heads) * static_cast<uint64_t>(r.head_dim);
    if (r.fused_qkv) q += 2 * kv;
    const uint64_t slots = static_cast<uint64_t>(std::max(r.top_k, 0));
    bool sparse = false, dense = false;
    for (const LayerRecipe& l : r.layers) (l.sparse ? sparse : dense) = true;
    const uint64_t dense_width = dense ? static_cast<uint64_t>(r.d_ff) : 0,
                   expert_width = sparse ? static_cast<uint64_t>(r.d_expert) : 0;
    hidden = std::max(dense_width, slots * expert_width);
    expert_out = sparse ? slots * x : 0;
    router = sparse ? static_cast<uint64_t>(r.n_experts) : 0;
    routes = sparse ? slots : 0;
    rope = static_cast<uint64_t>(r.rope.dim / 2);
    // f32 packs are the largest: one row of the widest input, or one per slot of an expert's inputs.
    const uint64_t widest = std::max({x, q, hidden, sparse ? slots * x : 0});
    pack_bytes = 4 * RoundUp(widest, 2);
  }
  uint64_t BytesPerRow() const {
    return 4 * (2 * x + q + 2 * kv + q + hidden + expert_out + router + 2 * rope + 2 * routes) + pack_bytes;
  }
};

uint64_t Decoder::PlanBytes(const Recipe& recipe, const DecoderOptions& options, int threads) {
  const Sizes sizes(recipe);
  const uint64_t widest = std::max<uint64_t>(sizes.x, std::max(sizes.q, sizes.hidden));
  const uint64_t rows = static_cast<uint64_t>(options.max_batch), logit_rows = static_cast<uint64_t>(options.max_logit_rows);
  const uint64_t scratch = MostMatMulScratchBytes(widest, rows);
  const uint64_t activations = SaturatingMul(rows, sizes.BytesPerRow());
  const uint64_t logits = SaturatingMul(4 * static_cast<uint64_t>(recipe.vocab), logit_rows);
  return SaturatingAdd(activations, SaturatingAdd(SaturatingMul(static_cast<uint64_t>(threads), scratch), logits));
}

Decoder::Decoder(const Recipe& recipe, const PackedWeights& weights, DecoderOptions options)
    : recipe_(recipe), weights_(weights), options_(options) {}

Result<std::unique_ptr<Decoder>> Decoder::Create(const Recipe& recipe, const PackedWeights& weights, DecoderOptions options) {
  std::unique_ptr<Decoder> d(new Decoder(recipe, weights, options));
  TALLY_ASSIGN_OR_RETURN(d->rope_, MakeRopeFrequencies(recipe.rope, weights.HostVector(Role::kRopeFactors)));
  const Sizes s(recipe);
  const uint64_t n = static_cast<uint64_t>(options.max_batch);
  const bool ok = CheckedMul(n, s.BytesPerRow()) && d->x_.Resize(n * s.x) && d->normed_.Resize(n * s.x) &&
                  d->q_.Resize(n * s.q) && d->k_.Resize(n * s.kv) && d->v_.Resize(n * s.kv) && d->attended_.Resize(n * s.q) &&
                  d->hidden_.Resize(n * s.hidden) && d->expert_out_.Resize(n * s.expert_out) && d->router_.Resize(n * s.router) &&
                  d->cos_.Resize(n * s.rope) && d->sin_.Resize(n * s.rope) && d->route_weights_.Resize(n * s.routes) &&
                  d->route_experts_.Resize(n * s.routes) && d->pack_.Resize(n * s.pack_bytes + 64);
  if (!ok) return BadInput("not enough memory for the activations of a batch of " + std::to_string(n));
  return d;
}

Result<ActPack> Decoder::Pack(Executor& exec, Site site, Mat<const float> in, ActFormat format,
                              std::span<const int32_t> row_index, std::span<const RowGroup> groups) {
  ActPack pack;
  pack.format = format;
  pack.cols = in.cols;
  pack.data = pack_.data();
  if (groups.empty()) {
    single_group_ = {.row_begin = 0, .rows = in.rows, .slice = 0};
    pack.groups = {&single_group_, 1};
    pack.rows = in.rows;
    if (packed_from_ == in.data && packed_format_ == format) return pack;  // q, k and v share one
    packed_from_ = in.data;
    packed_format_ = format;
  } else {
    pack.groups = groups;
    pack.rows = groups.back().row_begin + groups.back().rows;
    packed_from_ = nullptr;
  }
  TALLY_RETURN_IF_ERROR(exec.Run(site, PackActOp{.x = in, .row_index = row_index, .pack = pack}));
  return pack;
}

Status Decoder::Norm(Executor& exec, Site site, Role weight, Role bias, Mat<const float> in, Mat<float> out, int64_t groups) {
  packed_from_ = nullptr;  // whatever was packed is about to be replaced
  return exec.Run(site, NormOp{.kind = groups > 1 ? NormKind::kRms : recipe_.norm,
                               .x = in,
                               .groups = groups,
                               .weight = Get(weight, site.layer),
                               .bias = recipe_.norm == NormKind::kLayer ? Get(bias, site.layer) : WeightView{},
                               .eps = recipe_.norm_eps,
                               .out = out});
}

Status Decoder::Project(Executor& exec, int32_t layer, Component component, Role weight, Role bias, const Mat<const float>& in,
                        Mat<float> out, bool add_to_out, ActivationKind activation) {
  const Site site{layer, component};
  const WeightView& w = Get(weight, layer);
  const ActivationMode mode = component == Component::kRouter ? ActivationMode::kF32 : options_.activations;
  TALLY_ASSIGN_OR_RETURN(const ActPack pack, Pack(exec, site, in, ActFormatFor(w.dtype, ActKindFor(w.dtype, mode))));
  return exec.Run(site, MatMulOp{.x = pack,
                                 .w = w,
                                 .bias = Get(bias, layer),
                                 .activation = activation,
                                 .add_to_out = add_to_out,
                                 .out = out,
                                 .out_row = {},
                                 .work_class = component == Component::kRouter ? WorkClass::kRouter : WorkClass::kLinear});
}

Status Decoder::Embed(Executor& exec, const StepBatch& batch) {
  const Mat<float> x(x_.data(), rows_, recipe_.d_model);
  TALLY_RETURN_IF_ERROR(
      exec.Run({-1, Component::kEmbedding}, EmbedOp{.ids = batch.tokens, .table = Get(Role::kTokenEmbedding), .out = x}));
  if (!recipe_.learned_positions) return {};
  return exec.Run({-1, Component::kPositionEmbedding},
                  EmbedOp{.ids = positions_, .table = Get(Role::kPositionEmbedding), .add_to_out = true, .out = x});
}

Status Decoder::RopeTables(Executor& exec, const StepBatch& batch) {
  if (recipe_.rope.style == RopeStyle::kNone) return {};
  const int64_t half = recipe_.rope.dim / 2;
  return exec.Run({-1, Component::kRope}, RopeTableOp{.positions = positions_,
                                                      .inv_freq = rope_.inv_freq,
                                                      .magnitude = rope_.magnitude,
                                                      .cos = Mat<float>(cos_.data(), rows_, half),
                                                      .sin = Mat<float>(sin_.data(), rows_, half)});
}

Status Decoder::AttentionBlock(Executor& exec, int32_t layer, const StepBatch& batch, const KvCache& cache) {
  const Recipe& r = recipe_;
  const int64_t q_cols = int64_t{r.n_heads} * r.head_dim, kv_cols = int64_t{r.n_kv_heads} * r.head_dim;
  const Mat<float> x(x_.data(), rows_, r.d_model), normed(normed_.data(), rows_, r.d_model);
  TALLY_RETURN_IF_ERROR(Norm(exec, {layer, Component::kAttnNorm}, Role::kAttnNorm, Role::kAttnNormBias, x, normed));

  Mat<float> q(q_.data(), rows_, q_cols), k(k_.data(), rows_, kv_cols), v(v_.data(), rows_, kv_cols);
  if (r.fused_qkv) {
    const Mat<float> qkv(q_.data(), rows_, q_cols + 2 * kv_cols);
    TALLY_RETURN_IF_ERROR(Project(exec, layer, Component::kAttnQkv, Role::kQkv, Role::kQkvBias, normed, qkv, false));
    q = qkv.Cols(0, q_cols);
    k = qkv.Cols(q_cols, kv_cols);
    v = qkv.Cols(q_cols + kv_cols, kv_cols);
  } else {
    TALLY_RETURN_IF_ERROR(Project(exec, layer, Component::kAttnQ, Role::kQ, Role::kQBias, normed, q, false));
    TALLY_RETURN_IF_ERROR(Project(exec, layer, Component::kAttnK, Role::kK, Role::kKBias, normed, k, false));
    TALLY_RETURN_IF_ERROR(Project(exec, layer, Component::kAttnV, Role::kV, Role::kVBias, normed, v, false));
  }
  if (r.qk_norm == QkNormKind::kHead) {
    TALLY_RETURN_IF_ERROR(Norm(exec, {layer, Component::kAttnQNorm}, Role::kQNorm, Role::kQNorm, q, q, r.n_heads));
    TALLY_RETURN_IF_ERROR(Norm(exec, {layer, Component::kAttnKNorm}, Role::kKNorm, Role::kKNorm, k, k, r.n_kv_heads));
  }
  if (r.rope.style != RopeStyle::kNone) {
    const Mat<const float> cos(cos_.data(), rows_, r.rope.dim / 2), sin(sin_.data(), rows_, r.rope.dim / 2);
    for (const auto& [m, heads] : {std::pair{q, r.n_heads}, std::pair{k, r.n_kv_heads}}) {
      TALLY_RETURN_IF_ERROR(exec.Run(
          {layer, Component::kRope},
          RopeOp{
              .style = r.rope.style, .x = m, .heads = heads, .head_dim = r.head_dim, .dim = r.rope.dim, .cos = cos, .sin = sin}));
    }
  }
  const std::span<const KvTable> tables = cache.Tables(layer);
  TALLY_RETURN_IF_ERROR(exec.Run({layer, Component::kKvStore}, KvStoreOp{.k = k,
                                                                         .v = v,
                                                                         .kv_heads = r.n_kv_heads,
                                                                         .head_dim = r.head_dim,
                                                                         .type = options_.kv,
                                                                         .rows = batch.kv_rows,
                                                                         .tables = tables}));
  const LayerRecipe& l = r.layers[static_cast<size_t>(layer)];
  const Mat<float> attended(attended_.data(), rows_, q_cols);
  TALLY_RETURN_IF_ERROR(
      exec.Run({layer, Component::kAttention}, AttentionOp{.q = q,
                                                           .out = attended,
                                                           .heads = r.n_heads,
                                                           .kv_heads = r.n_kv_heads,
                                                           .head_dim = r.head_dim,
                                                           .scale = l.attention_scale,
                                                           .window = l.window,
                                                           .sinks = r.sinks ? Get(Role::kSinks, layer) : WeightView{},
                                                           .type = options_.kv,
                                                           .rows = batch.kv_rows,
                                                           .tables = tables}));
  packed_from_ = nullptr;
  return Project(exec, layer, Component::kAttnOutput, Role::kO, Role::kOBias, attended, x, true);
}

Status Decoder::FeedForward(Executor& exec, int32_t layer) {
  const Mat<float> x(x_.data(), rows_, recipe_.d_model), normed(normed_.data(), rows_, recipe_.d_model);
  TALLY_RETURN_IF_ERROR(Norm(exec, {layer, Component::kFfnNorm}, Role::kFfnNorm, Role::kFfnNormBias, x, normed));
  return recipe_.layers[static_cast<size_t>(layer)].sparse ? SparseFeedForward(exec, layer) : DenseFeedForward(exec, layer);
}

Status Decoder::DenseFeedForward(Executor& exec, int32_t layer) {
  const Recipe& r = recipe_;
  const Mat<float> x(x_.data(), rows_, r.d_model), normed(normed_.data(), rows_, r.d_model),
      hidden(hidden_.data(), rows_, r.d_ff);
  if (r.gated_ffn) {
    const Site site{layer, Component::kFfnGateUp};
    const WeightView &gate = Get(Role::kGate, layer), &up = Get(Role::kUp, layer);
    TALLY_ASSIGN_OR_RETURN(const ActPack pack,
                           Pack(exec, site, normed, ActFormatFor(gate.dtype, ActKindFor(gate.dtype, options_.activations))));
    TALLY_RETURN_IF_ERROR(exec.Run(site, GatedMatMulOp{.x = pack,
                                                       .gate = gate,
                                                       .up = up,
                                                       .gate_bias = Get(Role::kGateBias, layer),
                                                       .up_bias = Get(Role::kUpBias, layer),
                                                       .activation = r.activation,
                                                       .swiglu_alpha = r.swiglu_alpha,
                                                       .swiglu_limit = r.swiglu_limit,
                                                       .out = hidden}));
  } else {
    TALLY_RETURN_IF_ERROR(
        Project(exec, layer, Component::kFfnGateUp, Role::kUp, Role::kUpBias, normed, hidden, false, r.activation));
  }
  packed_from_ = nullptr;
  return Project(exec, layer, Component::kFfnDown, Role::kDown, Role::kDownBias, hidden, x, true);
}

// Groups the step's (token, slot) pairs by expert: within an expert by token.
void Decoder::RouteRows(int64_t n) {
  const int64_t k = recipe_.top_k;
  expert_begin_.assign(static_cast<size_t>(recipe_.n_experts) + 1, 0);
  for (int64_t i = 0; i < n * k; ++i) ++expert_begin_[static_cast<size_t>(route_experts_[static_cast<size_t>(i)]) + 1];
  groups_.clear();
  for (size_t e = 0; e + 1 < expert_begin_.size(); ++e) {
    const int64_t rows = expert_begin_[e + 1];
    expert_begin_[e + 1] += expert_begin_[e];
    if (rows > 0) groups_.push_back({.row_begin = expert_begin_[e], .rows = rows, .slice = static_cast<int64_t>(e)});
  }
  group_tokens_.resize(static_cast<size_t>(n * k));
  group_slots_.resize(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < n * k; ++i) {
    const size_t at = static_cast<size_t>(expert_begin_[static_cast<size_t>(route_experts_[static_cast<size_t>(i)])]++);
    group_tokens_[at] = static_cast<int32_t>(i / k);
    group_slots_[at] = static_cast<int32_t>(i);
  }
}

Status Decoder::SparseFeedForward(Executor& exec, int32_t layer) {
  const Recipe& r = recipe_;
  const int64_t slots = rows_ * r.top_k;
  const Mat<float> x(x_.data(), rows_, r.d_model), normed(normed_.data(), rows_, r.d_model);
  const Mat<float> logits(router_.data(), rows_, r.n_experts), weights(route_weights_.data(), rows_, r.top_k);
  const Mat<float> hidden(hidden_.data(), slots, r.d_expert), y(expert_out_.data(), slots, r.d_model);
  TALLY_RETURN_IF_ERROR(Project(exec, layer, Component::kRouter, Role::kRouter, Role::kRouterBias, normed, logits, false));
  TALLY_RETURN_IF_ERROR(
      exec.Run({layer, Component::kRouter}, RouteOp{.logits = logits,
                                                    .top_k = r.top_k,
                                                    .rule = r.routing,
                                                    .experts = Mat<int32_t>(route_experts_.data(), rows_, r.top_k),
                                                    .weights = weights}));
  RouteRows(rows_);

  const WeightView &gate = Get(Role::kExpertGate, layer), &up = Get(Role::kExpertUp, layer),
                   &down = Get(Role::kExpertDown, layer);
  const Site gate_up{layer, Component::kFfnGateUp}, down_site{layer, Component::kFfnDown};
  TALLY_ASSIGN_OR_RETURN(ActPack pack,
                         Pack(exec, gate_up, normed, ActFormatFor(gate.dtype, ActKindFor(gate.dtype, options_.activations)),
                              group_tokens_, groups_));
  TALLY_RETURN_IF_ERROR(exec.Run(gate_up, GatedMatMulOp{.x = pack,
                                                        .gate = gate,
                                                        .up = up,
                                                        .gate_bias = Get(Role::kExpertGateBias, layer),
                                                        .up_bias = Get(Role::kExpertUpBias, layer),
                                                        .activation = r.activation,
                                                        .swiglu_alpha = r.swiglu_alpha,
                                                        .swiglu_limit = r.swiglu_limit,
                                                        .out = hidden}));
  TALLY_ASSIGN_OR_RETURN(
      pack, Pack(exec, down_site, hidden, ActFormatFor(down.dtype, ActKindFor(down.dtype, options_.activations)), {}, groups_));
  TALLY_RETURN_IF_ERROR(exec.Run(down_site, MatMulOp{.x = pack,
                                                     .w = down,
                                                     .bias = Get(Role::kExpertDownBias, layer),
                                                     .activation = ActivationKind::kNone,
                                                     .add_to_out = false,
                                                     .out = y,
                                                     .out_row = group_slots_}));
  return exec.Run({layer, Component::kMoeCombine}, MoeCombineOp{.y = y, .weights = weights, .out = x});
}

Status Decoder::Head(Executor& exec, const StepBatch& batch, Mat<float> logits) {
  if (batch.logit_rows.empty()) return {};
  // Only the rows that are asked for go on; they move up in place, in ascending order.
  const int64_t n = static_cast<int64_t>(batch.logit_rows.size());
  const Mat<float> x(x_.data(), rows_, recipe_.d_model), normed(normed_.data(), n, recipe_.d_model);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t row = batch.logit_rows[static_cast<size_t>(i)];
    if (row != i) std::memcpy(x.Row(i), x.Row(row), static_cast<size_t>(recipe_.d_model) * sizeof(float));
  }
  TALLY_RETURN_IF_ERROR(Norm(exec, {-1, Component::kOutputNorm}, Role::kOutputNorm, Role::kOutputNormBias, x.Rows(0, n), normed));
  return Project(exec, -1, Component::kHead, Role::kHead, Role::kHeadBias, normed, logits, false);
}

Status Decoder::Forward(Executor& exec, const StepBatch& batch, const KvCache& cache, Mat<float> logits) {
  rows_ = static_cast<int64_t>(batch.tokens.size());
  if (rows_ == 0 || rows_ > options_.max_batch) return InternalError("a batch of " + std::to_string(rows_) + " rows");
  positions_.resize(batch.kv_rows.size());
  for (size_t i = 0; i < positions_.size(); ++i) positions_[i] = batch.kv_rows[i].position;
  packed_from_ = nullptr;
  TALLY_RETURN_IF_ERROR(Embed(exec, batch));
  TALLY_RETURN_IF_ERROR(RopeTables(exec, batch));
  for (int32_t layer = 0; layer < recipe_.n_layers; ++layer) {
    TALLY_RETURN_IF_ERROR(AttentionBlock(exec, layer, batch, cache));
    TALLY_RETURN_IF_ERROR(FeedForward(exec, layer));
  }
  finite_ = batch.logit_rows.size() == batch.tokens.size() || AllFinite(Mat<const float>(x_.data(), rows_, recipe_.d_model));
  return Head(exec, batch, logits);
}

}  // namespace tally
