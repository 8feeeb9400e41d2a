// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 (Zhipu 2025): partial rope, biases of q, k and v, in the largest RMSNorm of each head's query and key; routing by
// sigmoids with a bias that only the choice sees, a shared expert, dense layers first, layers for multi-token prediction, which
// are not run. GGUF counts those layers among the blocks.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"glm4moe"};
constexpr std::string_view kHf[] = {"Glm4MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"glm4_moe"};

constexpr RoleName kHfNames[] = {{Role::kRouterBias, "model.layers.#.mlp.gate.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, "model.layers.#.mlp.shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, "model.layers.#.mlp.shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, "model.layers.#.mlp.shared_experts.down_proj.weight"}};
constexpr RoleName kGgufNames[] = {{Role::kFfnNorm, "blk.#.post_attention_norm.weight"},
                                   {Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

void ReadRouting(Config& c, Recipe& r) {
  const bool normed = c.Bool(c.Pick("expert_weights_norm", "norm_topk_prob"), !c.gguf());
  r.routing = normed ? RoutingRule::kSigmoidThenTopKRenormed : RoutingRule::kSigmoidThenTopK;
  r.router_bias = true;
  r.route_scale =
      static_cast<float>(c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : c.Positive("routed_scaling_factor", 1));
  r.expert_groups = c.Int(c.Pick("expert_group_count", "n_group"), 1, kMaxExperts, 1);
  r.kept_groups = c.Int(c.Pick("expert_group_used_count", "topk_group"), 1, r.expert_groups, 1);
  r.group_best = r.expert_groups > 1 ? 2 : 1;
  constexpr int32_t kSigmoid = 2;
  if (c.gguf() && c.Int("expert_gating_func", 0, 255, kSigmoid) != kSigmoid) c.Unsupported("expert_gating_func", "other than 2");
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_kv_heads = 8, .n_heads = 96, .context = 131072, .vocab = 151552, .rotated = 0.5});
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec);
  if (c.gguf()) ReadGgufPredictionLayers(c, spec);
  ReadRouting(c, r);
  const bool qk_norm = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQNorm) : c.Bool("use_qk_norm", false);
  if (qk_norm) r.qk_norm = QkNormKind::kHead;
  SetBiases(r, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false), false);
  ExpectSilu(c);
  if (c.gguf() && c.Has("rope.dimension_sections")) c.Unsupported("rope.dimension_sections", "(of GLM-4.5V)");
}

}  // namespace

extern constinit const Family kGlm4MoeFamily = {"glm4-moe", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
