// SPDX-License-Identifier: Apache-2.0
// Trinity (Arcee 2025, "afmoe"): embeddings times the root of the width; norms before and after both blocks, RMSNorm of each head's query
// and key, attention's output times the sigmoid of a gate; three layers with a sliding window and rope, then one that sees all of the past
// without rope; experts by sigmoids with a bias that only the choice sees, beside shared ones, dense layers first.
#include <cmath>

#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"afmoe"};
constexpr std::string_view kHf[] = {"AfmoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"afmoe"};

#define TALLY_LAYER "model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kAttnPostNorm, TALLY_LAYER "post_attention_layernorm.weight"},
                                 {Role::kFfnNorm, TALLY_LAYER "pre_mlp_layernorm.weight"},
                                 {Role::kFfnPostNorm, TALLY_LAYER "post_mlp_layernorm.weight"},
                                 {Role::kAttnGate, TALLY_LAYER "self_attn.gate_proj.weight"},
                                 {Role::kRouter, TALLY_LAYER "mlp.router.gate.weight"},
                                 {Role::kRouterBias, TALLY_LAYER "mlp.expert_bias"},
                                 {Role::kSharedExpertGate, TALLY_LAYER "mlp.shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_LAYER "mlp.shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_LAYER "mlp.shared_experts.down_proj.weight"}};
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {{Role::kAttnGate, "blk.#.attn_gate.weight"}, {Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

// GGUF: each fourth layer has no rope.
void ReadWindows(Config& c, Recipe& r) {
  const int32_t window =
      c.Int(c.Pick("attention.sliding_window", "sliding_window"), 1, kMaxContext, c.gguf() ? kMaxContext : 1024);
  const int32_t period = c.gguf() ? 4 : c.Int("global_attn_every_n_layers", 1, kMaxLayers, 4);
  if (c.gguf() || !ReadHfLayerTypes(c, r, window)) {
    ReadWindowPattern(c, r, c.Pick("attention.sliding_window_pattern", ""), window, period);
  }
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const bool turns = c.gguf() ? (i + 1) % 4 != 0 : r.layers[i].attention.window > 0;
    r.layers[i].attention.rope = turns ? LayerRope::kGlobal : LayerRope::kNone;
  }
}

void ReadMixture(Config& c, Recipe& r) {
  ReadExperts(c, r, "num_experts", "moe_intermediate_size");
  const int64_t shared =
      int64_t{c.Int(c.Pick("expert_shared_count", "num_shared_experts"), 0, kMaxExperts, c.gguf() ? 0 : 2)} * r.all.experts.width;
  SetSharedWidth(c, r, shared, "num_shared_experts");
  const int32_t dense = c.Int(c.Pick("leading_dense_block_count", "num_dense_layers"), 0, kMaxLayers, c.gguf() ? 0 : 1);
  SetSparseFrom(r, dense);
  ReadSigmoidRouting(c, r, /*normed=*/true, 1, "route_scale");
  if (!c.gguf())
    r.all.experts.routing = c.Bool("route_norm", true) ? RoutingRule::kSigmoidThenTopKRenormed : RoutingRule::kSigmoidThenTopK;
  c.ExpectText("score_func", "sigmoid");
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .head_dim = 128, .n_heads = 16, .context = 16384, .vocab = 200192});
  if (c.gguf()) c.ExpectNumber("rope.freq_base_swa", r.rope.theta);
  ReadFeedForwardWidth(c, r);
  ReadWindows(c, r);
  ReadMixture(c, r);
  const bool scaled = c.gguf() || c.Bool("mup_enabled", false);
  r.embedding_scale = scaled ? std::sqrt(static_cast<float>(r.d_model)) : 1;
  r.all.residual.post_norms = true;
  r.all.attention.qk_norm = QkNormKind::kHead;
  r.all.attention.gate = true;
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kAfmoeFamily = {"afmoe", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
