// SPDX-License-Identifier: Apache-2.0
// Attention, and what latent attention has of it.
#include <algorithm>
#include <cmath>
#include <string>

#include "engine/recipe/block_rules.h"

namespace tally {
namespace {

Status CheckHeads(const Attention& a) {
  if (a.n_heads < 1 || a.head_dim < 1) {
    const bool heads = a.n_heads < 1;
    return BadInput(std::string(heads ? "n_heads" : "head_dim") + " is " + std::to_string(heads ? a.n_heads : a.head_dim) +
                    "; expected at least 1");
  }
  if (a.n_kv_heads < 1 || a.n_heads % a.n_kv_heads != 0) {
    return BadInput(std::to_string(a.n_heads) + " attention heads cannot share " + std::to_string(a.n_kv_heads) +
                    " key-value heads evenly");
  }
  if (int64_t{a.n_heads} * a.head_dim > kMaxWidth) {
    return BadInput(std::to_string(a.n_heads) + " attention heads of " + std::to_string(a.head_dim) + " are wider than " +
                    std::to_string(kMaxWidth));
  }
  return {};
}

Status CheckRope(const Rope& rope, int32_t head_dim) {
  if (rope.turned < 0 || rope.turned > rope.dim / 2) {
    return BadInput("rope turns " + std::to_string(rope.turned) + " of " + std::to_string(rope.dim / 2) + " pairs");
  }
  int64_t sections = 0;
  for (const int32_t section : rope.sections) {
    if (section < 0) return BadInput("a section of M-RoPE is " + std::to_string(section));
    sections += section;
  }
  if (sections != 0 && sections != rope.dim / 2) {
    return BadInput("the sections of M-RoPE have " + std::to_string(sections) + " of " + std::to_string(rope.dim / 2) + " pairs");
  }
  if (rope.style == RopeStyle::kNone || (rope.dim >= 2 && rope.dim % 2 == 0 && rope.dim <= head_dim)) return {};
  return BadInput("rope turns " + std::to_string(rope.dim) + " of a head's " + std::to_string(head_dim) +
                  " dimensions; expected an even number, at most all");
}

// Checks the cache of an earlier layer that a layer's attention reads.
Status CheckShared(const Recipe& r, size_t layer) {
  const LayerRecipe& l = r.layers[layer];
  const Attention& own = l.attention;
  const auto bad = [&](const std::string& what) { return BadInput("layer " + std::to_string(layer) + " " + what); };
  if (own.cache_of < 0) return own.cache_of == -1 ? Status() : bad("reads the cache of layer " + std::to_string(own.cache_of));
  const std::string source = "layer " + std::to_string(own.cache_of);
  if (static_cast<size_t>(own.cache_of) >= layer) return bad("reads the cache of " + source + ", which is no earlier one");
  const LayerRecipe& from = r.layers[static_cast<size_t>(own.cache_of)];
  const Attention& of = from.attention;
  if (l.mixers.has(Mixer::kLatentAttention) || !l.mixers.has(Mixer::kAttention) || own.fused_qkv) {
    return bad("reads the cache of another, and its own queries are not made by a matrix alone");
  }
  if (!from.mixers.has(Mixer::kAttention) || of.cache_of >= 0) return bad("reads the cache of " + source + ", which has none");
  if (own.n_kv_heads != of.n_kv_heads || own.head_dim != of.head_dim) return bad("has other key-value heads than " + source);
  if (own.chunk != of.chunk || (of.window > 0 && (own.window == 0 || own.window > of.window))) {
    return bad("sees positions that the cache of " + source + " does not keep");
  }
  return {};
}

double AttentionParameters(const Recipe& r, const LayerRecipe& l) {
  return 4.0 * r.d_model * l.attention.n_heads * l.attention.head_dim;
}

void DivideAttention(const LayerRecipe& l, const Dividers& by, LayerPart& part) {
  part.attention = PartOfHeads(l.attention.n_heads, l.attention.n_kv_heads, by.shard);
}

bool HoldAttention(const DividedWeight& w) {
  const Attention& a = w.layer.attention;
  const HeadPart& part = w.part.attention;
  const bool kv_copied = w.copied || part.copy;
  const auto kv_heads = [&] { w.Add(Times(part.groups, w.rows / a.n_kv_heads), kv_copied); };
  switch (w.division) {
    case Division::kKvHeads: kv_heads(); return true;
    case Division::kQkv: {
      const int64_t D = a.head_dim, q = a.n_heads * D, kv = a.n_kv_heads * D;
      w.Add(Times(part.heads, D), w.copied);
      w.Add(Plus(Times(part.groups, D), q), kv_copied);
      w.Add(Plus(Times(part.groups, D), q + kv), kv_copied);
      return true;
    }
    case Division::kQNorm:
      a.qk_norm == QkNormKind::kEachHead ? w.Add(Times(part.heads, w.rows / a.n_heads), w.copied) : w.Add({0, w.rows}, w.later);
      return true;
    case Division::kKNorm: a.qk_norm == QkNormKind::kEachHead ? kv_heads() : w.Add({0, w.rows}, w.later); return true;
    default: return HoldHeads(w);
  }
}

}  // namespace

Status CheckAttention(const Recipe& r, size_t layer) {
  const LayerRecipe& l = r.layers[layer];
  const Attention& a = l.attention;
  const bool latent = l.mixers.has(Mixer::kLatentAttention);
  TALLY_RETURN_IF_ERROR(CheckHeads(a));
  TALLY_RETURN_IF_ERROR(CheckFactors({{"scales.attention", a.out_scale}}));
  if (!std::isfinite(a.scale)) return BadInput("attention_scale is " + std::to_string(a.scale));
  if (a.window > 0 && a.chunk > 0) return BadInput("a layer has a window and chunks");
  if (a.rope == LayerRope::kLocal && r.local_rope.style == RopeStyle::kNone) {
    return BadInput("a layer has the local rope, and there is none");
  }
  if (a.rope != LayerRope::kNone) {
    TALLY_RETURN_IF_ERROR(CheckRope(a.rope == LayerRope::kLocal ? r.local_rope : r.rope, a.head_dim));
  }
  TALLY_RETURN_IF_ERROR(CheckShared(r, layer));
  if (a.fused_qkv && (a.q_bias != a.k_bias || a.q_bias != a.v_bias)) {
    return BadInput("q, k and v are one matrix here, with one bias or none (q_bias, k_bias and v_bias)");
  }
  if (a.v_is_k && (!a.v_norm || a.fused_qkv || !l.mixers.has(Mixer::kAttention))) {
    return BadInput("layer " + std::to_string(layer) + " takes its keys for values, without a norm of them");
  }
  if (a.v_norm && (a.fused_qkv || latent)) return BadInput("v_norm is for values of a matrix of their own");
  if (a.qk_norm_after_rope && a.qk_norm != QkNormKind::kHead) return BadInput("qk_norm_after_rope is for norms of each head");
  const Temperature& t = a.temperature;
  if (!std::isfinite(t.scale) || !std::isfinite(t.offset) || !(t.floor > 0) || !std::isfinite(t.floor)) {
    return BadInput("the temperature of queries is not finite");
  }
  if (t.scale != 0 && !t.everywhere && latent) return BadInput("a temperature of latent attention is for every layer");
  if (a.gate_softplus && latent) return BadInput("gate_softplus is not for latent attention");
  if ((a.gate_each_head || a.gate_softplus) && !a.gate) return BadInput("there is no gate of attention");
  if (a.gate && latent && !a.gate_each_head) return BadInput("a gate of latent attention is of each head");
  return {};
}

bool HoldHeads(const DividedWeight& w) {
  if (w.division != Division::kHeads) return false;
  w.Add(Times(w.part.attention.heads, w.rows / w.layer.attention.n_heads), w.copied);
  return true;
}

const BlockRules kAttentionRules = {
    .check = CheckAttention, .parameters = AttentionParameters, .divide = DivideAttention, .hold = HoldAttention};

}  // namespace tally
