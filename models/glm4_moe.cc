// GLM-4.5 (Zhipu 2025): partial rope, biases of q, k and v, routing by sigmoids with a bias that only the choice sees, a shared expert,
// dense layers first, layers for multi-token prediction.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"Glm4MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"glm4_moe"};

constexpr RoleName kHfNames[] = {{Role::kRouterBias, "model.layers.#.mlp.gate.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, "model.layers.#.mlp.shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, "model.layers.#.mlp.shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, "model.layers.#.mlp.shared_experts.down_proj.weight"}};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_kv_heads = 8, .context = 131072, .rotated = 0.5});
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec);
  r.routing = RoutingRule::kSigmoidThenTopKRenormed;
  r.router_bias = true;
  if (!c.Bool("norm_topk_prob", true)) c.Unsupported("norm_topk_prob", "false");
  if (c.Bool("use_qk_norm", false)) r.qk_norm = QkNormKind::kHead;
  SetBiases(r, c.Bool("attention_bias", false), false);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kGlm4MoeFamily = {"glm4-moe", {}, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
