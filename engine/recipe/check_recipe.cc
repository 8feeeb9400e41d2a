// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/check_recipe.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace tally {
namespace {

std::string Text(int64_t n) { return std::to_string(n); }

Status CheckDimensions(const Recipe& r) {
  const bool attends = r.layers.empty() || AnyLayer(r, &LayerRecipe::attends);
  const std::pair<const char*, int64_t> positive[] = {{"n_layers", r.n_layers},
                                                      {"d_model", r.d_model},
                                                      {"n_heads", attends ? r.n_heads : 1},
                                                      {"head_dim", attends ? r.head_dim : 1},
                                                      {"vocab", r.vocab}};
  for (const auto& [name, value] : positive) {
    if (value < 1) return BadInput(std::string(name) + " is " + Text(value) + "; expected at least 1");
  }
  if (r.layers.size() != static_cast<size_t>(r.n_layers)) {
    return BadInput("the recipe describes " + Text(static_cast<int64_t>(r.layers.size())) + " layers of " + Text(r.n_layers));
  }
  if (r.learned_positions && r.context < 1) return BadInput("learned positions need a context; it is " + Text(r.context));
  if (r.tied_head && r.head_bias) return BadInput("a head that is the embedding has no bias");
  if (r.first_position < 0 || r.first_position > kMaxWidth) return BadInput("first_position is " + Text(r.first_position));
  if (!r.pre_norms && !r.post_norms && !r.counted_only) return BadInput("the blocks have norms neither before nor after them");
  return {};
}

// Factors that a family computes may leave the range of a float.
Status CheckFactors(const Recipe& r) {
  const std::pair<const char*, float> positive[] = {
      {"norm_eps", r.norm_eps},         {"embedding_scale", r.embedding_scale}, {"residual_scale", r.residual_scale},
      {"logit_scale", r.logit_scale},   {"route_scale", r.route_scale},         {"scales.attention", r.scales.attention},
      {"scales.mamba", r.scales.mamba}, {"scales.gate", r.scales.gate},         {"scales.down", r.scales.down}};
  if (!(r.route_sum_eps >= 0)) return BadInput("route_sum_eps is " + std::to_string(r.route_sum_eps));
  if (!(r.post_norm_eps >= 0)) return BadInput("post_norm_eps is " + std::to_string(r.post_norm_eps));
  for (const auto& [name, value] : positive) {
    if (!std::isfinite(value) || !(value > 0)) {
      return BadInput(std::string(name) + " is " + std::to_string(value) + "; expected a positive finite number");
    }
  }
  for (const LayerRecipe& l : r.layers) {
    if (!std::isfinite(l.attention_scale)) return BadInput("attention_scale is " + std::to_string(l.attention_scale));
  }
  return {};
}

Status CheckLatent(const Recipe& r) {
  const LatentAttention& l = r.latent;
  const bool latent = AnyLayer(r, [](const LayerRecipe& x) { return x.mixers.has(Mixer::kLatentAttention); });
  if (latent != (l.kv_rank > 0))
    return BadInput("kv_rank is " + Text(l.kv_rank) + ", and it is layers of latent attention that have one");
  if (l.kv_rank == 0) return l.q_rank > 0 ? BadInput("q_rank is for latent attention, and there is no kv_rank") : Status();
  if (l.nope_dim < 1 || l.rope_dim < 1 || l.v_dim < 1) {
    return BadInput("latent attention needs nope_dim, rope_dim and v_dim of at least 1; they are " + Text(l.nope_dim) + ", " +
                    Text(l.rope_dim) + " and " + Text(l.v_dim));
  }
  if (int64_t{r.n_heads} * l.v_dim > kMaxWidth) {
    return BadInput(Text(r.n_heads) + " values of " + Text(l.v_dim) + " are wider than " + Text(kMaxWidth));
  }
  if (r.q_bias || r.k_bias || r.v_bias || r.o_bias || r.qk_norm != QkNormKind::kNone) {
    return BadInput("latent attention has neither biases nor norms of queries and keys");
  }
  return {};
}

Status CheckHeads(const LayerSizes& s) {
  if (s.n_kv_heads < 1 || s.n_heads % s.n_kv_heads != 0) {
    return BadInput(Text(s.n_heads) + " attention heads cannot share " + Text(s.n_kv_heads) + " key-value heads evenly");
  }
  if (int64_t{s.n_heads} * s.head_dim > kMaxWidth) {
    return BadInput(Text(s.n_heads) + " attention heads of " + Text(s.head_dim) + " are wider than " + Text(kMaxWidth));
  }
  return {};
}

Status CheckRope(const Rope& rope, int32_t head_dim) {
  if (rope.turned < 0 || rope.turned > rope.dim / 2) {
    return BadInput("rope turns " + Text(rope.turned) + " of " + Text(rope.dim / 2) + " pairs");
  }
  int64_t sections = 0;
  for (const int32_t section : rope.sections) {
    if (section < 0) return BadInput("a section of M-RoPE is " + Text(section));
    sections += section;
  }
  if (sections != 0 && sections != rope.dim / 2) {
    return BadInput("the sections of M-RoPE have " + Text(sections) + " of " + Text(rope.dim / 2) + " pairs");
  }
  if (rope.style == RopeStyle::kNone || (rope.dim >= 2 && rope.dim % 2 == 0 && rope.dim <= head_dim)) return {};
  return BadInput("rope turns " + Text(rope.dim) + " of a head's " + Text(head_dim) +
                  " dimensions; expected an even number, at most all");
}

// Checks the cache of an earlier layer that a layer's attention reads.
Status CheckShared(const Recipe& r, size_t layer) {
  const LayerRecipe& l = r.layers[layer];
  const auto bad = [&](const std::string& what) { return BadInput("layer " + std::to_string(layer) + " " + what); };
  if (l.cache_of < 0) return l.cache_of == -1 ? Status() : bad("reads the cache of layer " + Text(l.cache_of));
  const std::string source = "layer " + Text(l.cache_of);
  if (static_cast<size_t>(l.cache_of) >= layer) return bad("reads the cache of " + source + ", which is no earlier one");
  const LayerRecipe& from = r.layers[static_cast<size_t>(l.cache_of)];
  const LayerSizes own = SizesOf(r, l), of = SizesOf(r, from);
  if (l.mixers.has(Mixer::kLatentAttention) || !l.mixers.has(Mixer::kAttention) || r.fused_qkv) {
    return bad("reads the cache of another, and its own queries are not made by a matrix alone");
  }
  if (!from.mixers.has(Mixer::kAttention) || from.cache_of >= 0) return bad("reads the cache of " + source + ", which has none");
  if (own.n_kv_heads != of.n_kv_heads || own.head_dim != of.head_dim) return bad("has other key-value heads than " + source);
  if (l.chunk != from.chunk || (from.window > 0 && (l.window == 0 || l.window > from.window))) {
    return bad("sees positions that the cache of " + source + " does not keep");
  }
  return {};
}

Status CheckDeltaRule(const DeltaRule& d) {
  if (d.key_heads < 1 || d.value_heads < 1 || d.key_dim < 1 || d.value_dim < 1 || d.value_heads % d.key_heads != 0) {
    return BadInput("the delta rule cannot share " + Text(d.key_heads) + " key heads of " + Text(d.key_dim) + " among " +
                    Text(d.value_heads) + " value heads of " + Text(d.value_dim));
  }
  if (int64_t{d.value_heads} * std::max(d.key_dim, d.value_dim) > kMaxWidth) {
    return BadInput(Text(d.value_heads) + " value heads of " + Text(d.key_dim) + " x " + Text(d.value_dim) + " are wider than " +
                    Text(kMaxWidth));
  }
  if (d.gate_rank < 0 || d.gate_rank > kMaxWidth) return BadInput("gates of the delta rule have a rank of " + Text(d.gate_rank));
  if (!(d.decay_bound <= 0) || !std::isfinite(d.decay_bound) || (d.decay_bound != 0 && !d.channel_decay)) {
    return BadInput("logarithms of decays have a bound of " + std::to_string(d.decay_bound));
  }
  return d.l2_norm_eps > 0 ? Status() : BadInput("l2_norm_eps is " + std::to_string(d.l2_norm_eps));
}

Status CheckMamba2(const Mamba2& m) {
  if (m.heads < 1 || m.head_dim < 1 || m.groups < 1 || m.state_dim < 1 || m.heads % m.groups != 0) {
    return BadInput("Mamba-2 cannot share " + Text(m.groups) + " groups of " + Text(m.state_dim) + " among " + Text(m.heads) +
                    " heads of " + Text(m.head_dim));
  }
  const int64_t inner = int64_t{m.heads} * m.head_dim;
  if (std::max(inner, int64_t{m.heads} * m.state_dim) > kMaxWidth) {
    return BadInput(Text(m.heads) + " heads of " + Text(m.state_dim) + " x " + Text(m.head_dim) + " are wider than " +
                    Text(kMaxWidth));
  }
  if (m.norm_groups < 1 || inner % m.norm_groups != 0) {
    return BadInput("an output of " + Text(inner) + " cannot be normalised as " + Text(m.norm_groups) + " vectors");
  }
  if (!(m.dt_min >= 0) || !(m.dt_max > m.dt_min)) {
    return BadInput("steps are limited to " + std::to_string(m.dt_min) + " to " + std::to_string(m.dt_max));
  }
  for (const float factor : m.multipliers) {
    if (!std::isfinite(factor)) return BadInput("a multiplier of Mamba-2 is " + std::to_string(factor));
  }
  return {};
}

Status CheckRecurrent(const Recipe& r) {
  const auto any = [&](Mixer mixer) { return AnyLayer(r, [&](const LayerRecipe& l) { return l.mixers.has(mixer); }); };
  if (any(Mixer::kDeltaRule)) TALLY_RETURN_IF_ERROR(CheckDeltaRule(r.delta));
  if (any(Mixer::kMamba2)) TALLY_RETURN_IF_ERROR(CheckMamba2(r.mamba));
  if (AnyLayer(r, [](const LayerRecipe& l) { return l.mixers.has(Mixer::kDeltaRule) && l.mixers.has(Mixer::kMamba2); })) {
    return BadInput("a layer has the delta rule and Mamba-2");
  }
  if (AnyLayer(r, &LayerRecipe::recurrent) && (r.conv_taps < 1 || r.conv_taps > kMaxTaps)) {
    return BadInput("convolutions need 1 to " + Text(kMaxTaps) + " taps; conv_taps is " + Text(r.conv_taps));
  }
  return {};
}

Status CheckAttention(const Recipe& r) {
  if (AnyLayer(r, &LayerRecipe::attends)) TALLY_RETURN_IF_ERROR(CheckHeads(SizesOf(r, {})));
  if (r.fused_qkv && (r.q_bias != r.k_bias || r.q_bias != r.v_bias)) {
    return BadInput("q, k and v are one matrix here, with one bias or none (q_bias, k_bias and v_bias)");
  }
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const LayerRecipe& l = r.layers[i];
    const bool own = l.n_heads != 0 || l.n_kv_heads != 0 || l.head_dim != 0;
    if (l.n_heads < 0 || l.n_kv_heads < 0 || l.head_dim < 0 || l.d_ff < 0) return BadInput("a layer has a negative size");
    if (own && l.mixers.has(Mixer::kLatentAttention)) return BadInput("latent attention has the same heads in all layers");
    if (own) TALLY_RETURN_IF_ERROR(CheckHeads(SizesOf(r, l)));
    if (l.window > 0 && l.chunk > 0) return BadInput("a layer has a window and chunks");
    if (l.rope == LayerRope::kLocal && r.local_rope.style == RopeStyle::kNone) {
      return BadInput("a layer has the local rope, and there is none");
    }
    if (l.attends() && l.rope != LayerRope::kNone) {
      TALLY_RETURN_IF_ERROR(CheckRope(l.rope == LayerRope::kLocal ? r.local_rope : r.rope, SizesOf(r, l).head_dim));
    }
    TALLY_RETURN_IF_ERROR(CheckShared(r, i));
    if (l.v_is_k && (!r.v_norm || r.fused_qkv || !l.mixers.has(Mixer::kAttention))) {
      return BadInput("layer " + std::to_string(i) + " takes its keys for values, without a norm of them");
    }
  }
  if (r.v_norm && (r.fused_qkv || r.latent.kv_rank > 0)) return BadInput("v_norm is for values of a matrix of their own");
  if (r.qk_norm_after_rope && r.qk_norm != QkNormKind::kHead) return BadInput("qk_norm_after_rope is for norms of each head");
  if (!std::isfinite(r.temperature_scale) || !std::isfinite(r.temperature_offset) || !(r.temperature_floor > 0) ||
      !std::isfinite(r.temperature_floor) || !std::isfinite(r.post_norm_eps)) {
    return BadInput("the temperature of queries, or the eps of a norm, is not finite");
  }
  if (r.gate_softplus && r.latent.kv_rank > 0) return BadInput("gate_softplus is not for latent attention");
  if ((r.gate_each_head || r.gate_softplus) && !r.attention_gate) return BadInput("there is no gate of attention");
  if (r.delta.gate_rank > 0 && !r.delta.channel_decay) return BadInput("gate_rank is for decays by channel");
  if (r.temperature_scale != 0 && !r.temperature_everywhere && r.latent.kv_rank > 0) {
    return BadInput("a temperature of latent attention is for every layer");
  }
  if (r.attention_gate && r.latent.kv_rank > 0 && !r.gate_each_head)
    return BadInput("a gate of latent attention is of each head");
  if (r.local_rope.freq_factors) return BadInput("the local rope has no stored frequency factors");
  return CheckLatent(r);
}

Status CheckFeedForward(const Recipe& r) {
  const bool sparse = AnyLayer(r, &LayerRecipe::sparse);
  for (const LayerRecipe& l : r.layers) {
    if (l.dense() && SizesOf(r, l).d_ff < 1) return BadInput("the dense layers have no width: d_ff is " + Text(r.d_ff));
  }
  if (sparse && r.d_expert < 1) return BadInput("the experts have no width: d_expert is " + Text(r.d_expert));
  if (r.layer_embedding < 0 || r.layer_embedding > kMaxWidth) return BadInput("layer_embedding is " + Text(r.layer_embedding));
  if (int64_t{r.layer_embedding} * r.n_layers > kMaxWidth) {
    return BadInput("embeddings of " + Text(r.layer_embedding) + " for each of " + Text(r.n_layers) + " layers are wider than " +
                    Text(kMaxWidth));
  }
  if (r.expert_latent < 0 || r.expert_latent > kMaxWidth) return BadInput("expert_latent is " + Text(r.expert_latent));
  if (sparse && (r.top_k < 1 || r.top_k > r.n_experts)) {
    return BadInput("top_k is " + Text(r.top_k) + "; expected 1 to the number of experts, " + Text(r.n_experts));
  }
  if (sparse) {
    const int32_t size = r.expert_groups > 0 ? r.n_experts / r.expert_groups : 0;
    if (r.expert_groups < 1 || r.n_experts % r.expert_groups != 0 || r.kept_groups < 1 || r.kept_groups > r.expert_groups ||
        r.group_best < 1 || r.group_best > size || r.top_k > int64_t{size} * r.kept_groups) {
      return BadInput("top_k " + Text(r.top_k) + " experts cannot be chosen from " + Text(r.kept_groups) + " of " +
                      Text(r.expert_groups) + " groups of " + Text(r.n_experts) + " experts");
    }
    if (SoftmaxOfAll(r.routing) && r.group_best > 1) return BadInput("group_best is for routing by sigmoids");
  }
  if (r.shared_gate && r.d_shared < 1)
    return BadInput("shared_gate is for shared experts, and there are none: d_shared is " + Text(r.d_shared));
  if (!r.gated_ffn && r.scales.gate != 1) return BadInput("scales.gate is for a feed-forward with a gate");
  const bool xielu = r.activation == ActivationKind::kXielu, two = TakesTwo(r.activation);
  if (!r.gated_ffn && two) return BadInput("gated: this model's activation has a gate");
  if (r.activation == ActivationKind::kNone) return BadInput("the feed-forward has no activation");
  if (xielu && (r.gated_ffn || r.layer_embedding > 0)) return BadInput("gated: this model's activation has no gate");
  if ((r.stored_xielu || r.stored_xielu_beta || r.stored_xielu_eps) && !xielu)
    return BadInput("numbers of xIELU are stored, and it is not the activation");
  if (r.ungated_experts && two) return BadInput("ungated_experts: this model's activation has a gate");
  if (r.shared_activation && (r.d_shared > 0 || !r.pre_norms || xielu || two)) {
    return BadInput("shared_activation is for blocks with a norm before them and without shared experts");
  }
  for (const LayerRecipe& l : r.layers) {
    for (const float limit : {l.expert_limit, l.shared_limit}) {
      if (!(limit >= 0) || !std::isfinite(limit)) return BadInput("SwiGLU has a limit of " + std::to_string(limit));
      if (limit == 0) continue;
      if (!r.gated_ffn || r.activation != ActivationKind::kSilu) return BadInput("gated: limits are of SwiGLU");
    }
    if (l.expert_limit > 0 && r.ungated_experts) return BadInput("ungated_experts: limits are of SwiGLU");
    const Xielu& n = l.xielu;
    if (!std::isfinite(n.alpha_n) || !std::isfinite(n.alpha_p) || !std::isfinite(n.beta) || !(n.eps <= 0)) {
      return BadInput("a number of xIELU is not finite, or its eps is above 0");
    }
  }
  return {};
}

Status CheckCounted(const Recipe& r) {
  if (!r.counted_only) return {};
  for (const CountedTensor& t : r.counted_only->tensors) {
    if (t.layer < -1 || t.layer >= r.n_layers + std::max(r.mtp_layers, 0)) {
      return BadInput(t.name + " is of layer " + Text(t.layer) + " of " + Text(r.n_layers));
    }
  }
  return {};
}

// In double, whose rounding does not matter here: the largest published models have 10^12.
Status CheckSize(const Recipe& r) {
  constexpr double kMost = 1e15;
  LayerSizes most = SizesOf(r, {});
  for (const LayerRecipe& l : r.layers) {
    const LayerSizes s = SizesOf(r, l);
    most.n_heads = std::max(most.n_heads, s.n_heads);
    most.head_dim = std::max(most.head_dim, s.head_dim);
    most.d_ff = std::max(most.d_ff, s.d_ff);
  }
  const double width = r.d_model, heads = double{1} * most.n_heads * std::max(most.head_dim, r.latent.nope_dim + r.latent.v_dim);
  const double latent = double{1} * r.latent.q_rank + r.latent.kv_rank;
  const double conv = r.conv_taps > 0 ? 4 * width * width : 0;
  const double delta = double{1} * r.delta.value_heads * (3.0 * r.delta.key_dim + 3.0 * r.delta.value_dim + 2);
  const double mamba = double{1} * r.mamba.heads * (3.0 * r.mamba.head_dim + 2.0 * r.mamba.state_dim + 1);
  const double layer = 4 * width * heads + conv + width * (delta + mamba + 2.0 * r.expert_latent) + latent * (width + heads) +
                       3 * width * (double{1} * most.d_ff + double{1} * r.n_experts * r.d_expert + r.d_shared);
  const double tables = double{1} * r.layer_embedding * r.n_layers * (r.vocab + 3 * width);
  const double all = (double{1} * r.n_layers + r.mtp_layers) * layer + 2 * width * r.vocab + tables +
                     (r.learned_positions ? width * r.context : 0);
  if (all > kMost) return BadInput("the model would have more than 10^15 parameters");
  return {};
}

}  // namespace

Status CheckRecipe(const Recipe& recipe) {
  TALLY_RETURN_IF_ERROR(CheckDimensions(recipe));
  TALLY_RETURN_IF_ERROR(CheckFactors(recipe));
  TALLY_RETURN_IF_ERROR(CheckAttention(recipe));
  TALLY_RETURN_IF_ERROR(CheckRecurrent(recipe));
  TALLY_RETURN_IF_ERROR(CheckFeedForward(recipe));
  TALLY_RETURN_IF_ERROR(CheckCounted(recipe));
  return CheckSize(recipe);
}

}  // namespace tally
