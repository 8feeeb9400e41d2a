// SPDX-License-Identifier: Apache-2.0
// The blocks of attention.
#include "engine/graph/planner.h"

#include <algorithm>

namespace tally {
namespace {

constexpr int64_t kFewQueries = 32;  // rows times heads that are split over positions at least

}  // namespace

KvLayout KvLayoutOf(const Recipe& r, KvType type) {
  if (r.latent.kv_rank == 0) return {.type = type, .kv_heads = r.n_kv_heads, .k_dim = r.head_dim};
  const int64_t rank = r.latent.kv_rank;
  return {.type = type, .kv_heads = 1, .k_dim = rank + r.latent.rope_dim, .v_dim = rank, .shared = true};
}

void Planner::Attention(Mat<const float> in) {
  const int64_t D = r_.head_dim, q_cols = r_.n_heads * D, kv_cols = r_.n_kv_heads * D;
  Mat<float> q = qkv_, k = k_, v = v_;
  SharedPack shared;
  if (r_.fused_qkv) {
    Project(Role::kQkv, in, qkv_);
    q = qkv_.Cols(0, q_cols);
    k = qkv_.Cols(q_cols, kv_cols);
    v = qkv_.Cols(q_cols + kv_cols, kv_cols);
  } else {
    Project(Role::kQ, in, q, {.shared = &shared});
    Project(Role::kK, in, k, {.shared = &shared});
    Project(Role::kV, in, v, {.shared = &shared});
  }
  if (r_.qk_norm != QkNormKind::kUnweighted) QkNorms(q, k);
  if (r_.qkv_limit != 0) {
    Add(r_.fused_qkv ? Role::kQkv : Role::kQ, ElementwiseOp{.x = q, .limit = r_.qkv_limit});
    Add(r_.fused_qkv ? Role::kQkv : Role::kK, ElementwiseOp{.x = k, .limit = r_.qkv_limit});
    Add(r_.fused_qkv ? Role::kQkv : Role::kV, ElementwiseOp{.x = v, .limit = r_.qkv_limit});
  }
  Rotate({q, D, LayersRope().dim}, r_.n_heads);
  Rotate({k, D, LayersRope().dim}, r_.n_kv_heads);
  if (r_.qk_norm == QkNormKind::kUnweighted && Rotates()) QkNorms(q, k);
  if (r_.temperature_scale != 0 && layer().rope == LayerRope::kNone) {
    Add(Component::kAttention, ScaleRowsOp{.x = q, .weights = temperature_, .out = q});
  }
  Attend(q, k, v, attended_);
  ProjectOut(Role::kO, attended_);
}

// Latent attention, absorbed (DeepSeek-V2, section 2.1.2): a head's query is brought to the compressed keys by its part of W^UK, so
// that all heads attend over one compressed key, and what a head attended to is brought to its value by its part of W^UV.
void Planner::LatentAttention(Mat<const float> in) {
  const int64_t H = r_.n_heads, D = r_.head_dim, rank = r_.latent.kv_rank, Dr = r_.latent.rope_dim, Dn = r_.latent.nope_dim;
  SharedPack shared;
  if (r_.latent.q_rank > 0) {
    Project(Role::kQA, in, q_low_, {.shared = &shared});
    Project(Role::kKvA, in, k_, {.shared = &shared});
    QkNorm(Role::kQANorm, q_low_, 1);
    Project(Role::kQB, q_low_, qkv_);
  } else {
    Project(Role::kQ, in, qkv_, {.shared = &shared});
    Project(Role::kKvA, in, k_, {.shared = &shared});
  }
  QkNorm(Role::kKvANorm, k_.Cols(0, rank), 1);
  const Heads rotated = {latent_q_.Cols(rank, latent_q_.cols - rank), rank + Dr, Dr};
  Rotate({qkv_.Cols(Dn, qkv_.cols - Dn), D, Dr}, H, &rotated);
  Rotate({k_.Cols(rank, Dr), Dr, Dr}, 1);
  ProjectHeads(Role::kKB, {qkv_, D, Dn}, {latent_q_, rank + Dr, rank});
  Attend(latent_q_, k_, {}, latent_out_);
  ProjectHeads(Role::kVB, {latent_out_, rank, rank}, {attended_, r_.latent.v_dim, r_.latent.v_dim});
  ProjectOut(Role::kO, attended_);
}

// Each head's part of `in` times its slice of the role's weight, into its part of `out`.
void Planner::ProjectHeads(Role role, const Heads& in, const Heads& out) {
  const int64_t rows = n_ * r_.n_heads;
  const std::span<const int32_t> index(plan_.head_rows, static_cast<size_t>(rows));
  const Mat<float> from(in.m.data, rows, in.dim, in.stride), to(out.m.data, rows, out.dim, out.stride);
  rows_ = RowsOf::kHeads;
  const ActPack pack{.format = FormatFor(role), .rows = rows, .cols = in.dim, .data = pack_, .groups = {plan_.head_groups, 0}};
  Add(role, PackActOp{.x = from, .row_index = index, .pack = pack});
  Add(role, MatMulOp{.x = pack, .w = Get(role), .bias = {}, .out = to, .out_row = index});
  rows_ = RowsOf::kBatch;
}

void Planner::Attend(Mat<const float> q, Mat<const float> k, Mat<const float> v, Mat<float> out) {
  const std::span<const KvRow> rows(plan_.kv_rows, static_cast<size_t>(n_));
  const KvLayout layout = KvLayoutOf(r_, options_.kv);
  Add(Component::kKvStore, KvStoreOp{.k = k, .v = v, .layout = layout, .rows = rows, .tables = {}});
  Add(Component::kAttention, AttentionOp{.q = q,
                                         .out = out,
                                         .heads = r_.n_heads,
                                         .layout = layout,
                                         .scale = layer().attention_scale,
                                         .window = layer().window,
                                         .chunk = layer().chunk,
                                         .softcap = r_.attention_softcap,
                                         .sinks = r_.sinks ? Get(Role::kSinks) : WeightView{},
                                         .slopes = plan_.slopes,
                                         .rows = rows,
                                         .tables = {},
                                         .partials = plan_.partials});
}

// For a row of all heads, or of few heads several rows.
void Planner::Partials() {
  const int64_t v_dim = KvLayoutOf(r_, options_.kv).v_dim, ranges = options_.context / (kRangeBlocks * kKvBlock) + 1;
  if (options_.context == 0 || ranges < 2) return;
  const int64_t queries = std::max<int64_t>(r_.n_heads, kFewQueries);
  const uint64_t floats =
      SaturatingMul(static_cast<uint64_t>(queries * AttentionPartials::PartialFloats(v_dim)), static_cast<uint64_t>(ranges));
  plan_.partials = {.data = arena_.Take<float>(floats), .queries = queries, .ranges = ranges};
}

void Planner::QkNorms(Mat<float> q, Mat<float> k) {
  if (r_.qk_norm == QkNormKind::kNone) return;
  const bool whole = r_.qk_norm == QkNormKind::kWhole;
  QkNorm(Role::kQNorm, q, whole ? 1 : r_.n_heads);
  QkNorm(Role::kKNorm, k, whole ? 1 : r_.n_kv_heads);
}

void Planner::QkNorm(Role role, Mat<float> x, int64_t groups) {
  Add(role, NormOp{.kind = r_.qk_norm == QkNormKind::kEachHead ? NormKind::kLayer : NormKind::kRms,
                   .x = x,
                   .groups = groups,
                   .weight = r_.qk_norm == QkNormKind::kUnweighted ? WeightView{} : Get(role),
                   .bias = {},
                   .eps = Latent() ? r_.latent.norm_eps : r_.norm_eps,
                   .out = x});
}

// Into `out`, or in place.
void Planner::Rotate(const Heads& x, int64_t heads, const Heads* out) {
  if (!Rotates()) return;
  const RopeTurns& turns = turns_[layer().rope == LayerRope::kLocal ? 1 : 0];
  Add(Component::kRope, RopeOp{.style = LayersRope().style,
                               .x = x.m,
                               .heads = heads,
                               .head_dim = x.stride,
                               .dim = x.dim,
                               .cos = turns.cos,
                               .sin = turns.sin,
                               .out = out != nullptr ? out->m : Mat<float>(),
                               .out_head_dim = out != nullptr ? out->stride : 0});
}

}  // namespace tally
