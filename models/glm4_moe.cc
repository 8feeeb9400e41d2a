// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 (Zhipu 2025): partial rope, biases of q, k and v, in the largest RMSNorm of each head's query and key; routing by
// sigmoids with a bias that only the choice sees, a shared expert, dense layers first, layers for multi-token prediction. Solar Open
// (Upstage 2026) is the same with experts in all layers and rope of the whole head. GGUF counts those layers among the blocks.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"glm4moe"};
constexpr std::string_view kHf[] = {"Glm4MoeForCausalLM", "SolarOpenForCausalLM"};
constexpr std::string_view kHfTypes[] = {"glm4_moe", "solar_open"};

constexpr RoleName kHfNames[] = {{Role::kRouterBias, "model.layers.#.mlp.gate.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, "model.layers.#.mlp.shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, "model.layers.#.mlp.shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, "model.layers.#.mlp.shared_experts.down_proj.weight"}};
constexpr RoleName kGgufNames[] = {{Role::kFfnNorm, "blk.#.post_attention_norm.weight"},
                                   {Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool solar = c.Is({"SolarOpenForCausalLM", "solar_open"});
  if (solar) {
    ReadDecoder(c, spec,
                {.norm_eps = 1e-5,
                 .n_kv_heads = 8,
                 .head_dim = 128,
                 .n_heads = 64,
                 .context = 131072,
                 .vocab = 196608,
                 .rope_theta = 1e6,
                 .rotated = 1});
    r.all.ffn.width = c.Int("intermediate_size", 1, kMaxWidth, 10944);  // no layer has it
    c.ExpectNumber("first_k_dense_replace", 0);
    c.ExpectBool("use_qk_norm", false);
  } else {
    ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_kv_heads = 8, .n_heads = 96, .context = 131072, .vocab = 151552, .rotated = 0.5});
    ReadFeedForwardWidth(c, r);
  }
  ReadSharedExperts(c, spec, solar ? 0 : -1);
  if (c.gguf()) ReadGgufPredictionLayers(c, spec);
  ReadSigmoidRouting(c, r, /*normed=*/true);
  r.all.experts.router_bias = true;
  const bool qk_norm = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQNorm) : c.Bool("use_qk_norm", false);
  if (qk_norm) r.all.attention.qk_norm = QkNormKind::kHead;
  SetBiases(r, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false), false);
  ExpectSilu(c);
  if (c.gguf() && c.Has("rope.dimension_sections")) c.Unsupported("rope.dimension_sections", "(of GLM-4.5V)");
}

}  // namespace

extern constinit const Family kGlm4MoeFamily = {"glm4-moe", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames, {}, {}, true};

}  // namespace tally
