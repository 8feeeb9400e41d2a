// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/check_recipe.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>

namespace tally {
namespace {

std::string Text(int64_t n) { return std::to_string(n); }

Status CheckDimensions(const Recipe& r) {
  const std::pair<const char*, int64_t> positive[] = {{"n_layers", r.n_layers}, {"d_model", r.d_model}, {"vocab", r.vocab}};
  for (const auto& [name, value] : positive) {
    if (value < 1) return BadInput(std::string(name) + " is " + Text(value) + "; expected at least 1");
  }
  if (r.layers.size() != static_cast<size_t>(r.n_layers)) {
    return BadInput("the recipe describes " + Text(static_cast<int64_t>(r.layers.size())) + " layers of " + Text(r.n_layers));
  }
  if (r.learned_positions && r.context < 1) return BadInput("learned positions need a context; it is " + Text(r.context));
  if (r.tied_head && r.head_bias) return BadInput("a head that is the embedding has no bias");
  if (r.first_position < 0 || r.first_position > kMaxWidth) return BadInput("first_position is " + Text(r.first_position));
  if (r.layer_embedding < 0 || r.layer_embedding > kMaxWidth) return BadInput("layer_embedding is " + Text(r.layer_embedding));
  if (int64_t{r.layer_embedding} * r.n_layers > kMaxWidth) {
    return BadInput("embeddings of " + Text(r.layer_embedding) + " for each of " + Text(r.n_layers) + " layers are wider than " +
                    Text(kMaxWidth));
  }
  if (r.local_rope.freq_factors) return BadInput("the local rope has no stored frequency factors");
  return {};
}

// Factors that a family computes may leave the range of a float.
Status CheckFactors(std::initializer_list<std::pair<const char*, float>> positive) {
  for (const auto& [name, value] : positive) {
    if (!std::isfinite(value) || !(value > 0)) {
      return BadInput(std::string(name) + " is " + std::to_string(value) + "; expected a positive finite number");
    }
  }
  return {};
}

Status CheckResidual(const Recipe& r, const ResidualRule& x) {
  TALLY_RETURN_IF_ERROR(CheckFactors({{"residual_scale", x.scale}}));
  if (!(x.post_norm_eps >= 0) || !std::isfinite(x.post_norm_eps)) {
    return BadInput("post_norm_eps is " + std::to_string(x.post_norm_eps));
  }
  if (!x.pre_norms && !x.post_norms && !r.counted_only) return BadInput("the blocks have norms neither before nor after them");
  return {};
}

Status CheckHeads(const Attention& a) {
  if (a.n_heads < 1 || a.head_dim < 1) {
    const bool heads = a.n_heads < 1;
    return BadInput(std::string(heads ? "n_heads" : "head_dim") + " is " + Text(heads ? a.n_heads : a.head_dim) +
                    "; expected at least 1");
  }
  if (a.n_kv_heads < 1 || a.n_heads % a.n_kv_heads != 0) {
    return BadInput(Text(a.n_heads) + " attention heads cannot share " + Text(a.n_kv_heads) + " key-value heads evenly");
  }
  if (int64_t{a.n_heads} * a.head_dim > kMaxWidth) {
    return BadInput(Text(a.n_heads) + " attention heads of " + Text(a.head_dim) + " are wider than " + Text(kMaxWidth));
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
  const Attention& own = l.attention;
  const auto bad = [&](const std::string& what) { return BadInput("layer " + std::to_string(layer) + " " + what); };
  if (own.cache_of < 0) return own.cache_of == -1 ? Status() : bad("reads the cache of layer " + Text(own.cache_of));
  const std::string source = "layer " + Text(own.cache_of);
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

Status CheckLatent(const Attention& a, const LatentAttention& l) {
  if (l.kv_rank < 1) return BadInput("kv_rank is " + Text(l.kv_rank) + ", and there are layers of latent attention");
  if (l.nope_dim < 1 || l.rope_dim < 1 || l.v_dim < 1) {
    return BadInput("latent attention needs nope_dim, rope_dim and v_dim of at least 1; they are " + Text(l.nope_dim) + ", " +
                    Text(l.rope_dim) + " and " + Text(l.v_dim));
  }
  if (int64_t{a.n_heads} * l.v_dim > kMaxWidth) {
    return BadInput(Text(a.n_heads) + " values of " + Text(l.v_dim) + " are wider than " + Text(kMaxWidth));
  }
  if (a.q_bias || a.k_bias || a.v_bias || a.o_bias || a.qk_norm != QkNormKind::kNone) {
    return BadInput("latent attention has neither biases nor norms of queries and keys");
  }
  return {};
}

Status CheckTaps(int32_t taps) {
  if (taps >= 1 && taps <= kMaxTaps) return {};
  return BadInput("convolutions need 1 to " + Text(kMaxTaps) + " taps; conv_taps is " + Text(taps));
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
  if (d.gate_rank > 0 && !d.channel_decay) return BadInput("gate_rank is for decays by channel");
  if (!(d.decay_bound <= 0) || !std::isfinite(d.decay_bound) || (d.decay_bound != 0 && !d.channel_decay)) {
    return BadInput("logarithms of decays have a bound of " + std::to_string(d.decay_bound));
  }
  if (!(d.l2_norm_eps > 0)) return BadInput("l2_norm_eps is " + std::to_string(d.l2_norm_eps));
  return CheckTaps(d.taps);
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
  TALLY_RETURN_IF_ERROR(CheckFactors({{"scales.mamba", m.out_scale}}));
  return CheckTaps(m.taps);
}

Status CheckNetwork(const Recipe& r, const Network& n) {
  TALLY_RETURN_IF_ERROR(CheckFactors({{"scales.gate", n.gate_scale}, {"scales.down", n.down_scale}}));
  const bool xielu = n.activation == ActivationKind::kXielu;
  if (!n.gated && n.gate_scale != 1) return BadInput("scales.gate is for a feed-forward with a gate");
  if (!n.gated && TakesTwo(n.activation)) return BadInput("gated: this model's activation has a gate");
  if (n.activation == ActivationKind::kNone) return BadInput("the feed-forward has no activation");
  if (xielu && (n.gated || r.layer_embedding > 0)) return BadInput("gated: this model's activation has no gate");
  if ((n.stored_xielu || n.stored_xielu_beta || n.stored_xielu_eps) && !xielu)
    return BadInput("numbers of xIELU are stored, and it is not the activation");
  const Xielu& x = n.xielu;
  if (!std::isfinite(x.alpha_n) || !std::isfinite(x.alpha_p) || !std::isfinite(x.beta) || !(x.eps <= 0)) {
    return BadInput("a number of xIELU is not finite, or its eps is above 0");
  }
  return {};
}

Status CheckExperts(const LayerRecipe& l) {
  const Experts& x = l.experts;
  const ActivationKind activation = l.network.activation;
  TALLY_RETURN_IF_ERROR(CheckFactors({{"route_scale", x.route_scale}}));
  if (!(x.route_sum_eps >= 0)) return BadInput("route_sum_eps is " + std::to_string(x.route_sum_eps));
  if (x.width < 1) return BadInput("the experts have no width: d_expert is " + Text(x.width));
  if (x.latent < 0 || x.latent > kMaxWidth) return BadInput("expert_latent is " + Text(x.latent));
  if (x.top_k < 1 || x.top_k > x.n_experts) {
    return BadInput("top_k is " + Text(x.top_k) + "; expected 1 to the number of experts, " + Text(x.n_experts));
  }
  const int32_t size = x.groups > 0 ? x.n_experts / x.groups : 0;
  if (x.groups < 1 || x.n_experts % x.groups != 0 || x.kept_groups < 1 || x.kept_groups > x.groups || x.group_best < 1 ||
      x.group_best > size || x.top_k > int64_t{size} * x.kept_groups) {
    return BadInput("top_k " + Text(x.top_k) + " experts cannot be chosen from " + Text(x.kept_groups) + " of " + Text(x.groups) +
                    " groups of " + Text(x.n_experts) + " experts");
  }
  if (SoftmaxOfAll(x.routing) && x.group_best > 1) return BadInput("group_best is for routing by sigmoids");
  if (x.shared_gate && x.shared_width < 1) {
    return BadInput("shared_gate is for shared experts, and there are none: d_shared is " + Text(x.shared_width));
  }
  if (x.ungated && TakesTwo(activation)) return BadInput("ungated_experts: this model's activation has a gate");
  if (x.shared_activation &&
      (x.shared_width > 0 || !l.residual.pre_norms || activation == ActivationKind::kXielu || TakesTwo(activation))) {
    return BadInput("shared_activation is for blocks with a norm before them and without shared experts");
  }
  for (const float limit : {x.limit, x.shared_limit}) {
    if (!(limit >= 0) || !std::isfinite(limit)) return BadInput("SwiGLU has a limit of " + std::to_string(limit));
    if (limit == 0) continue;
    if (!l.network.gated || activation != ActivationKind::kSilu) return BadInput("gated: limits are of SwiGLU");
  }
  if (x.limit > 0 && x.ungated) return BadInput("ungated_experts: limits are of SwiGLU");
  return {};
}

Status CheckLayer(const Recipe& r, size_t layer) {
  const LayerRecipe& l = r.layers[layer];
  const Attention& a = l.attention;
  if (std::min({a.n_heads, a.n_kv_heads, a.head_dim, l.ffn.width}) < 0) return BadInput("a layer has a negative size");
  TALLY_RETURN_IF_ERROR(CheckResidual(r, l.residual));
  if (l.attends()) TALLY_RETURN_IF_ERROR(CheckAttention(r, layer));
  if (l.mixers.has(Mixer::kLatentAttention)) TALLY_RETURN_IF_ERROR(CheckLatent(l.attention, l.latent));
  if (l.mixers.has(Mixer::kShortConv)) TALLY_RETURN_IF_ERROR(CheckTaps(l.conv.taps));
  if (l.mixers.has(Mixer::kDeltaRule)) TALLY_RETURN_IF_ERROR(CheckDeltaRule(l.delta));
  if (l.mixers.has(Mixer::kMamba2)) TALLY_RETURN_IF_ERROR(CheckMamba2(l.mamba));
  if (l.mixers.has(Mixer::kDeltaRule) && l.mixers.has(Mixer::kMamba2)) return BadInput("a layer has the delta rule and Mamba-2");
  if (l.dense() && l.ffn.width < 1) return BadInput("the dense layers have no width: d_ff is " + Text(l.ffn.width));
  if (!l.feed_forward.empty()) TALLY_RETURN_IF_ERROR(CheckNetwork(r, l.network));
  if (l.sparse()) TALLY_RETURN_IF_ERROR(CheckExperts(l));
  return {};
}

// The symbols of the closed forms, and the step's groups of rows by expert, are the model's.
Status CheckAlike(const Recipe& r) {
  const auto alike = [&](Mixer mixer, auto block) {
    const LayerRecipe& first = FirstLayer(r, mixer);
    return std::ranges::all_of(r.layers, [&](const LayerRecipe& l) { return !l.mixers.has(mixer) || l.*block == first.*block; });
  };
  const auto experts = [&](Experts x) {  // these two may differ
    x.limit = x.shared_limit = 0;
    return x;
  };
  const bool same_experts = std::ranges::all_of(
      r.layers, [&](const LayerRecipe& l) { return !l.sparse() || experts(l.experts) == experts(ExpertsOf(r)); });
  if (!alike(Mixer::kLatentAttention, &LayerRecipe::latent) || !alike(Mixer::kShortConv, &LayerRecipe::conv) ||
      !alike(Mixer::kDeltaRule, &LayerRecipe::delta) || !alike(Mixer::kMamba2, &LayerRecipe::mamba) || !same_experts) {
    return BadInput("layers have blocks of one kind and different sizes");
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
  const double width = r.d_model;
  const auto size = [&](const LayerRecipe& l) {
    const Attention& a = l.attention;
    const double heads = double{1} * a.n_heads * std::max(a.head_dim, l.latent.nope_dim + l.latent.v_dim);
    const double latent = double{1} * l.latent.q_rank + l.latent.kv_rank;
    const double conv = l.taps() > 0 ? 4 * width * width : 0;
    const double delta = double{1} * l.delta.value_heads * (3.0 * l.delta.key_dim + 3.0 * l.delta.value_dim + 2);
    const double mamba = double{1} * l.mamba.heads * (3.0 * l.mamba.head_dim + 2.0 * l.mamba.state_dim + 1);
    return 4 * width * heads + conv + width * (delta + mamba + 2.0 * l.experts.latent) + latent * (width + heads) +
           3 * width * (double{1} * l.ffn.width + double{1} * l.experts.n_experts * l.experts.width + l.experts.shared_width);
  };
  double layers = r.mtp_layers * size(r.all);
  for (const LayerRecipe& l : r.layers) layers += size(l);
  const double tables = double{1} * r.layer_embedding * r.n_layers * (r.vocab + 3 * width);
  const double all = layers + 2 * width * r.vocab + tables + (r.learned_positions ? width * r.context : 0);
  if (all > kMost) return BadInput("the model would have more than 10^15 parameters");
  return {};
}

}  // namespace

Status CheckRecipe(const Recipe& recipe) {
  TALLY_RETURN_IF_ERROR(CheckDimensions(recipe));
  TALLY_RETURN_IF_ERROR(CheckFactors(
      {{"norm_eps", recipe.norm_eps}, {"embedding_scale", recipe.embedding_scale}, {"logit_scale", recipe.logit_scale}}));
  for (size_t i = 0; i < recipe.layers.size(); ++i) TALLY_RETURN_IF_ERROR(CheckLayer(recipe, i));
  TALLY_RETURN_IF_ERROR(CheckAlike(recipe));
  TALLY_RETURN_IF_ERROR(CheckCounted(recipe));
  return CheckSize(recipe);
}

}  // namespace tally
