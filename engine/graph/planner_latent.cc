// SPDX-License-Identifier: Apache-2.0
// The block of latent attention, absorbed (DeepSeek-V2, section 2.1.2): a head's query is brought to the compressed keys by its part of
// W^UK, so that all heads attend over one compressed key, and its part of W^UV makes the head's value from what it attended to.
#include <algorithm>

#include "engine/graph/planner_heads.h"

namespace tally {
namespace {

// One head, whose value is a part of its key. Every process with query heads has it.
KvLayout LatentLayout(const LayerRecipe& layer, const LayerPart& part, KvType type) {
  const int64_t rank = layer.latent.kv_rank;
  return {.type = type,
          .kv_heads = part.attention.heads.size() > 0 ? 1 : 0,
          .k_dim = rank + layer.latent.rope_dim,
          .v_dim = rank,
          .shared = true};
}

class LatentPlanner final : public HeadsPlanner {
 public:
  explicit LatentPlanner(PlanBuilder& builder) : HeadsPlanner(builder, Mixer::kLatentAttention) {}
  void Buffers() override;
  Role Make(Mat<float> in) override;

 private:
  void PlanHeads(Mat<const float> in);
  void LowNorm(Role role, Mat<float> x);
  void ProjectHeads(Role role, const Heads& in, const Heads& out);

  Mat<float> q_, q_low_;  // [n, H (D_n + D_r)], [n, R_q]
  Mat<float> key_;        // [n, R_kv + D_r]
  Mat<float> q_of_keys_;  // [n, H (R_kv + D_r)]: the queries for the compressed keys
  Mat<float> attended_;   // [n, H R_kv]
  Mat<float> values_;     // [n, H D_v]
  Mat<float> gate_;       // [n, H]
};

void LatentPlanner::Buffers() {
  const LayerRecipe& layer = FirstLayer(b_.recipe(), Mixer::kLatentAttention);
  const auto& l = layer.latent;
  const int64_t H =
      PartOfHeads(layer.attention.n_heads, layer.attention.n_heads, b_.shard().whole_mixers ? Shard() : b_.shard()).heads.size();
  const uint64_t rows = SaturatingMul(static_cast<uint64_t>(b_.max_batch()), static_cast<uint64_t>(H));
  b_.plan().heads = H;
  b_.plan().head_groups = b_.Take<RowGroup>(static_cast<uint64_t>(H));
  b_.plan().head_rows = b_.Take<int32_t>(rows);
  q_ = b_.Floats(H * layer.attention.head_dim);
  q_low_ = b_.Floats(l.q_rank);
  key_ = b_.Floats(l.kv_rank + l.rope_dim);
  q_of_keys_ = b_.Floats(H * (l.kv_rank + l.rope_dim));
  attended_ = b_.Floats(H * l.kv_rank);
  values_ = b_.Floats(H * l.v_dim);
  if (layer.attention.gate) gate_ = b_.Floats(H);
  b_.RoomForPartials(H, l.kv_rank);
  b_.Widest(std::max(
      {layer.attention.n_heads * layer.attention.head_dim, layer.attention.n_heads * std::max(l.kv_rank, l.v_dim), l.q_rank}));
  b_.Room(int64_t{layer.attention.n_heads} * l.v_dim);
}

Role LatentPlanner::Make(Mat<float> in) {
  const LatentAttention& l = b_.layer().latent;
  if (b_.part().attention.heads.size() > 0) PlanHeads(in);
  const Columns heads = [Dv = int64_t{l.v_dim}](const Shard&, const LayerPart& p) {
    return std::vector{Span{p.attention.heads.begin * Dv, p.attention.heads.end * Dv}};
  };
  b_.ProjectOut(Role::kO, Component::kAttnKv, values_, int64_t{b_.layer().attention.n_heads} * l.v_dim, heads, b_.part().mixed);
  return Role::kO;
}

// Plans this process's heads. All of them attend over the same latent key and value.
void LatentPlanner::PlanHeads(Mat<const float> in) {
  const Attention& a = b_.layer().attention;
  const LatentAttention& l = b_.layer().latent;
  const int64_t H = b_.part().attention.heads.size(), D = a.head_dim, rank = l.kv_rank, Dr = l.rope_dim, Dn = l.nope_dim;
  const Mat<float>&q = q_, &key = key_, &q_of_keys = q_of_keys_;
  SharedPack shared;
  if (a.gate) b_.Project(Role::kAttnGate, in, gate_, {.activation = ActivationKind::kSigmoid, .shared = &shared});
  if (l.q_rank > 0) {
    b_.Project(Role::kQA, in, q_low_, {.shared = &shared});
    b_.Project(Role::kKvA, in, key, {.shared = &shared});
    LowNorm(Role::kQANorm, q_low_);
    b_.Project(Role::kQB, q_low_, q);
  } else {
    b_.Project(Role::kQ, in, q, {.shared = &shared});
    b_.Project(Role::kKvA, in, key, {.shared = &shared});
  }
  LowNorm(Role::kKvANorm, key.Cols(0, rank));
  Rotate({key.Cols(rank, Dr), Dr, Dr}, 1);
  const KvLayout layout = LatentLayout(b_.layer(), b_.part(), b_.options().kv);
  StoreKv(key, {}, layout, Work::kWhole);
  const As as(b_, Work::kOwn);
  if (a.temperature.scale != 0 && a.temperature.everywhere) {
    b_.Add(Component::kAttention, ScaleRowsOp{.x = q, .weights = b_.temperature(), .out = q});
  }
  const Heads rotated = {q_of_keys.Cols(rank, q_of_keys.cols - rank), rank + Dr, Dr};
  Rotate({q.Cols(Dn, q.cols - Dn), D, Dr}, H, &rotated);
  if (!Rotates() && Dr > 0) {  // copied only
    b_.Add(Component::kRope, RopeOp{.style = RopeStyle::kNone,
                                    .x = q.Cols(Dn, q.cols - Dn),
                                    .heads = H,
                                    .head_dim = D,
                                    .dim = Dr,
                                    .cos = {},
                                    .sin = {},
                                    .out = rotated.m,
                                    .out_head_dim = rotated.stride});
  }
  ProjectHeads(Role::kKB, {q, D, Dn}, {q_of_keys, rank + Dr, rank});
  Attend(q_of_keys, attended_, b_.part().attention.heads, layout, b_.shard().rank > 0);
  ProjectHeads(Role::kVB, {attended_, rank, rank}, {values_, l.v_dim, l.v_dim});
  if (!a.gate) return;
  const Mat<float> values(values_.data, b_.max_batch() * H, l.v_dim), gates(gate_.data, b_.max_batch() * H, 1);
  b_.SetRows(RowsOf::kHeads);
  b_.Add(Role::kAttnGate, ScaleRowsOp{.x = values, .weights = gates, .out = values});
  b_.SetRows(RowsOf::kBatch);
}

// The norm between the two matrices of a chain.
void LatentPlanner::LowNorm(Role role, Mat<float> x) {
  b_.Add(role, NormOp{.kind = NormKind::kRms,
                      .x = x,
                      .groups = 1,
                      .weight = b_.Get(role),
                      .bias = {},
                      .eps = b_.layer().latent.norm_eps,
                      .out = x});
}

// Each head's part of `in` times its slice of the role's weight, into its part of `out`.
void LatentPlanner::ProjectHeads(Role role, const Heads& in, const Heads& out) {
  const int64_t rows = b_.max_batch() * b_.plan().heads;
  const std::span<const int32_t> index(b_.plan().head_rows, static_cast<size_t>(rows));
  const Mat<float> from(in.m.data, rows, in.dim, in.stride), to(out.m.data, rows, out.dim, out.stride);
  b_.SetRows(RowsOf::kHeads);
  const ActPack pack{
      .format = b_.FormatFor(role), .rows = rows, .cols = in.dim, .data = b_.pack(), .groups = {b_.plan().head_groups, 0}};
  b_.Add(role, PackActOp{.x = from, .row_index = index, .pack = pack});
  b_.Add(role, MatMulOp{.x = pack, .w = b_.Get(role), .bias = {}, .out = to, .out_row = index});
  b_.SetRows(RowsOf::kBatch);
}

}  // namespace

const BlockPlan kLatentAttentionPlan = {NewPlanner<LatentPlanner>, [](const LayerRecipe& l, const LayerPart& part, KvType type) {
                                          return std::optional(KvCache(l, LatentLayout(l, part, type)));
                                        }};

}  // namespace tally
