// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 with experts (Baidu 2025): Llama's attention; experts by the softmax of all, with a bias that only the choice sees, their
// weights divided by their sum, beside shared ones, dense layers first. Layers for multi-token prediction are not run.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"ernie4_5-moe"};
constexpr std::string_view kHf[] = {"Ernie4_5_MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"ernie4_5_moe"};

#define TALLY_MLP "model.layers.#.mlp."
constexpr RoleName kHfNames[] = {{Role::kRouterBias, TALLY_MLP "moe_statics.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, TALLY_MLP "shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_MLP "shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_MLP "shared_experts.down_proj.weight"}};
#undef TALLY_MLP
constexpr RoleName kGgufNames[] = {{Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

void ReadMixture(Config& c, Recipe& r) {
  ReadExperts(c, r, "moe_num_experts|num_experts", "moe_intermediate_size");
  ReadUngatedExperts(c, r);
  const int64_t shared = c.gguf() ? int64_t{c.Int("expert_shared_feed_forward_length", 0, kMaxWidth, 0)}
                                  : int64_t{c.Int("moe_num_shared_experts", 0, kMaxExperts, 2)} * r.all.experts.width;
  SetSharedWidth(c, r, shared, "moe_num_shared_experts");
  const int32_t dense =
      c.gguf() ? c.Int("leading_dense_block_count", 0, kMaxLayers, 0) : c.Int("moe_layer_start_index", 0, kMaxLayers, 1);
  const int32_t step = c.Int(c.Pick("interleave_moe_layer_step", "moe_layer_interval"), 1, kMaxLayers, 1);
  int32_t last = c.gguf() ? -1 : c.Int("moe_layer_end_index", -1, kMaxLayers, -1);
  if (last < 0) last = r.n_layers - 1;
  for (int32_t i = dense; i < r.n_layers; ++i) SetSparse(r.layers[static_cast<size_t>(i)], (i + 1) % step == 0 && i <= last);
  r.all.experts.routing = RoutingRule::kSoftmaxThenTopKRenormed;
  r.all.experts.route_scale = static_cast<float>(c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : 1);
  r.all.experts.router_bias = !c.gguf() || AnyLayerHas(c.inventory(), r, "blk.#.exp_probs_b.bias");
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(
      c, spec,
      {.norm_eps = 1e-5, .n_kv_heads = 4, .n_heads = 20, .context = 131072, .vocab = 103424, .rope_theta = 500000, .tied = true});
  ReadFeedForwardWidth(c, r);
  ReadMixture(c, r);
  for (const char* part : {"~model.mtp_block.", "~model.mtp_emb_norm.", "~model.mtp_hidden_norm.", "~model.mtp_linear_proj."}) {
    if (!c.gguf()) AddNotRun(c, spec, ExpandName(part, -1, c.tensor_prefix));
  }
  c.ExpectBool("use_bias", false);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kErnie45MoeFamily = {"ernie4.5-moe", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
