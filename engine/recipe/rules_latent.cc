// SPDX-License-Identifier: Apache-2.0
// Latent attention.
#include <string>

#include "engine/recipe/block_rules.h"

namespace tally {
namespace {

Status CheckLatent(const Recipe& r, size_t layer) {
  TALLY_RETURN_IF_ERROR(CheckAttention(r, layer));
  const Attention& a = r.layers[layer].attention;
  const LatentAttention& l = r.layers[layer].latent;
  if (l.kv_rank < 1) return BadInput("kv_rank is " + std::to_string(l.kv_rank) + ", and there are layers of latent attention");
  if (l.nope_dim < 1 || l.rope_dim < 1 || l.v_dim < 1) {
    return BadInput("latent attention needs nope_dim, rope_dim and v_dim of at least 1; they are " + std::to_string(l.nope_dim) +
                    ", " + std::to_string(l.rope_dim) + " and " + std::to_string(l.v_dim));
  }
  if (int64_t{a.n_heads} * l.v_dim > kMaxWidth) {
    return BadInput(std::to_string(a.n_heads) + " values of " + std::to_string(l.v_dim) + " are wider than " +
                    std::to_string(kMaxWidth));
  }
  if (a.q_bias || a.k_bias || a.v_bias || a.o_bias || a.qk_norm != QkNormKind::kNone) {
    return BadInput("latent attention has neither biases nor norms of queries and keys");
  }
  return {};
}

double LatentParameters(const Recipe& r, const LayerRecipe& l) {
  const double width = r.d_model, heads = double{1} * l.attention.n_heads * (l.latent.nope_dim + l.latent.v_dim);
  return 4 * width * heads + (double{1} * l.latent.q_rank + l.latent.kv_rank) * (width + heads);
}

// Every head has a key of its own until they are compressed.
void DivideLatent(const LayerRecipe& l, const Dividers& by, LayerPart& part) {
  part.attention = PartOfHeads(l.attention.n_heads, l.attention.n_heads, by.shard);
}

bool HoldLatent(const DividedWeight& w) {
  if (w.division != Division::kHeadSlices) return HoldHeads(w);
  w.held.slices = w.part.attention.heads;
  w.Add({0, w.rows}, w.copied);
  return true;
}

}  // namespace

const BlockRules kLatentAttentionRules = {
    .check = CheckLatent,
    .alike = [](const LayerRecipe& a, const LayerRecipe& b) { return a.latent == b.latent; },
    .parameters = LatentParameters,
    .divide = DivideLatent,
    .hold = HoldLatent};

}  // namespace tally
