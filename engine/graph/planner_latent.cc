// SPDX-License-Identifier: Apache-2.0
// The block of latent attention, absorbed (DeepSeek-V2, section 2.1.2): a head's query is brought to the compressed keys by its part of
// W^UK, so that all heads attend over one compressed key, and its part of W^UV makes the head's value from what it attended to.
#include <algorithm>

#include "engine/graph/planner.h"

namespace tally {

KvLayout LatentLayout(const LayerRecipe& layer, const LayerPart& part, KvType type) {
  const int64_t rank = layer.latent.kv_rank;
  return {.type = type,
          .kv_heads = part.attention.heads.size() > 0 ? 1 : 0,
          .k_dim = rank + layer.latent.rope_dim,
          .v_dim = rank,
          .shared = true};
}

void Planner::LatentBuffers() {
  const LayerRecipe& layer = FirstLayer(r_, Mixer::kLatentAttention);
  const auto& l = layer.latent;
  if (l.kv_rank == 0) return;
  const int64_t H =
      PartOfHeads(layer.attention.n_heads, layer.attention.n_heads, shard_.whole_mixers ? Shard() : shard_).heads.size();
  const uint64_t rows = SaturatingMul(static_cast<uint64_t>(n_), static_cast<uint64_t>(H));
  plan_.heads = H;
  plan_.head_groups = arena_.Take<RowGroup>(static_cast<uint64_t>(H));
  plan_.head_rows = arena_.Take<int32_t>(rows);
  latent_.q = Floats(H * layer.attention.head_dim);
  latent_.q_low = Floats(l.q_rank);
  latent_.key = Floats(l.kv_rank + l.rope_dim);
  latent_.q_of_keys = Floats(H * (l.kv_rank + l.rope_dim));
  latent_.attended = Floats(H * l.kv_rank);
  latent_.values = Floats(H * l.v_dim);
  if (layer.attention.gate) latent_.gate = Floats(H);
  Partials(H, l.kv_rank);
  Widest(std::max(
      {layer.attention.n_heads * layer.attention.head_dim, layer.attention.n_heads * std::max(l.kv_rank, l.v_dim), l.q_rank}));
  Room(int64_t{layer.attention.n_heads} * l.v_dim);
}

void Planner::LatentAttention(Mat<const float> in) {
  if (part_.attention.heads.size() > 0) LatentHeads(in);
  const Columns heads = [Dv = int64_t{layer().latent.v_dim}](const Shard&, const LayerPart& p) {
    return std::vector{Span{p.attention.heads.begin * Dv, p.attention.heads.end * Dv}};
  };
  ProjectOut(Role::kO, Component::kAttnKv, latent_.values, int64_t{layer().attention.n_heads} * layer().latent.v_dim, heads,
             part_.mixed);
}

// Plans this process's heads. All of them attend over the same latent key and value.
void Planner::LatentHeads(Mat<const float> in) {
  const int64_t H = part_.attention.heads.size(), D = layer().attention.head_dim, rank = layer().latent.kv_rank,
                Dr = layer().latent.rope_dim, Dn = layer().latent.nope_dim;
  const Mat<float>&q = latent_.q, &key = latent_.key, &q_of_keys = latent_.q_of_keys;
  SharedPack shared;
  if (layer().attention.gate)
    Project(Role::kAttnGate, in, latent_.gate, {.activation = ActivationKind::kSigmoid, .shared = &shared});
  if (layer().latent.q_rank > 0) {
    Project(Role::kQA, in, latent_.q_low, {.shared = &shared});
    Project(Role::kKvA, in, key, {.shared = &shared});
    QkNorm(Role::kQANorm, latent_.q_low, 1);
    Project(Role::kQB, latent_.q_low, q);
  } else {
    Project(Role::kQ, in, q, {.shared = &shared});
    Project(Role::kKvA, in, key, {.shared = &shared});
  }
  QkNorm(Role::kKvANorm, key.Cols(0, rank), 1);
  Rotate({key.Cols(rank, Dr), Dr, Dr}, 1);
  const KvLayout layout = LatentLayout(layer(), part_, options_.kv);
  StoreKv(Mixer::kLatentAttention, key, {}, layout);
  const As as(*this, Work::kOwn);
  if (layer().attention.temperature.scale != 0 && layer().attention.temperature.everywhere) {
    Add(Component::kAttention, ScaleRowsOp{.x = q, .weights = temperature_, .out = q});
  }
  const Heads rotated = {q_of_keys.Cols(rank, q_of_keys.cols - rank), rank + Dr, Dr};
  Rotate({q.Cols(Dn, q.cols - Dn), D, Dr}, H, &rotated);
  if (!Rotates() && Dr > 0) {  // copied only
    Add(Component::kRope, RopeOp{.style = RopeStyle::kNone,
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
  Attend(Mixer::kLatentAttention, q_of_keys, latent_.attended, part_.attention.heads, layout);
  ProjectHeads(Role::kVB, {latent_.attended, rank, rank}, {latent_.values, layer().latent.v_dim, layer().latent.v_dim});
  if (!layer().attention.gate) return;
  const Mat<float> values(latent_.values.data, n_ * H, layer().latent.v_dim), gates(latent_.gate.data, n_ * H, 1);
  rows_ = RowsOf::kHeads;
  Add(Role::kAttnGate, ScaleRowsOp{.x = values, .weights = gates, .out = values});
  rows_ = RowsOf::kBatch;
}

// Each head's part of `in` times its slice of the role's weight, into its part of `out`.
void Planner::ProjectHeads(Role role, const Heads& in, const Heads& out) {
  const int64_t rows = n_ * plan_.heads;
  const std::span<const int32_t> index(plan_.head_rows, static_cast<size_t>(rows));
  const Mat<float> from(in.m.data, rows, in.dim, in.stride), to(out.m.data, rows, out.dim, out.stride);
  rows_ = RowsOf::kHeads;
  const ActPack pack{.format = FormatFor(role), .rows = rows, .cols = in.dim, .data = pack_, .groups = {plan_.head_groups, 0}};
  Add(role, PackActOp{.x = from, .row_index = index, .pack = pack});
  Add(role, MatMulOp{.x = pack, .w = Get(role), .bias = {}, .out = to, .out_row = index});
  rows_ = RowsOf::kBatch;
}

}  // namespace tally
