// DeepSeekMoE (Dai et al. 2024): shared experts beside those that are chosen among, dense layers first. DeepSeek-V2 and -V3 (2024): the
// same with multi-head latent attention; V3, whose architecture Kimi-K2 has too, with routing by sigmoids, a bias that only the choice
// sees, and layers for multi-token prediction. Defaults are those of transformers and of the code published beside the weights.
#include <cmath>

#include "engine/base/format.h"
#include "engine/recipe/rope_freqs.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"DeepseekForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"deepseek", "deepseek_v2", "deepseek_v3"};

#define TALLY_LAYER "model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kQA, TALLY_LAYER "self_attn.q_a_proj.weight"},
                                 {Role::kQANorm, TALLY_LAYER "self_attn.q_a_layernorm.weight"},
                                 {Role::kQB, TALLY_LAYER "self_attn.q_b_proj.weight"},
                                 {Role::kKvA, TALLY_LAYER "self_attn.kv_a_proj_with_mqa.weight"},
                                 {Role::kKvANorm, TALLY_LAYER "self_attn.kv_a_layernorm.weight"},
                                 {Role::kKvB, TALLY_LAYER "self_attn.kv_b_proj.weight"},
                                 {Role::kRouterBias, TALLY_LAYER "mlp.gate.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, TALLY_LAYER "mlp.shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_LAYER "mlp.shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_LAYER "mlp.shared_experts.down_proj.weight"}};
#undef TALLY_LAYER

void ReadLatent(Config& c, Recipe& r) {
  LatentAttention& l = r.latent;
  l.kv_rank = c.Int("kv_lora_rank", 1, kMaxWidth);
  l.q_rank = c.Int("q_lora_rank", 1, kMaxWidth, c.IsNull("q_lora_rank") ? 0 : 1536);
  l.nope_dim = c.Int("qk_nope_head_dim", 1, kMaxHeads, 128);
  l.rope_dim = c.Int("qk_rope_head_dim", 1, kMaxHeads, 64);
  l.v_dim = c.Int("v_head_dim", 1, kMaxHeads, 128);
  r.rope.style = RopeStyle::kAdjacentPair;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool v2 = c.Is({"DeepseekV2ForCausalLM", "deepseek_v2"}), v3 = c.Is({"DeepseekV3ForCausalLM", "deepseek_v3"});
  if (v2) r.family = "deepseek-v2";
  if (v3) r.family = "deepseek-v3";
  if (v2 || v3) ReadLatent(c, r);
  ReadDecoder(c, spec, {.norm_eps = 1e-6});
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec);
  ExpectSilu(c);
  if (c.Bool("attention_bias", false)) c.Unsupported("attention_bias", "true");
  constexpr std::string_view kAllDim = "rope_scaling.mscale_all_dim|rope_parameters.mscale_all_dim";
  if (r.latent.kv_rank > 0 && r.rope.scaling.kind == RopeScalingKind::kYarn && c.Has(kAllDim)) {
    SetAttentionScale(r, UsualAttentionScale(r) * std::pow(YarnMagnitude(r.rope.scaling.factor, c.Positive(kAllDim)), 2));
  }
  if (!v2 && !v3) {
    if (const std::string f = c.String("scoring_func", "softmax"); f != "softmax") c.Unsupported("scoring_func", Quote(f));
    if (const std::string m = c.String("topk_method", "greedy"); m != "greedy") c.Unsupported("topk_method", Quote(m));
    if (c.Positive("routed_scaling_factor", 1) != 1) c.Unsupported("routed_scaling_factor", "other than 1");
  }
  if (!v3) {
    r.routing = SoftmaxRule(c, false);
    return;
  }
  r.routing = RoutingRule::kSigmoidThenTopKRenormed;
  r.router_bias = c.String("topk_method", "noaux_tc") == "noaux_tc";
  if (const std::string f = c.String("scoring_func", "sigmoid"); f != "sigmoid") c.Unsupported("scoring_func", Quote(f));
  if (!c.Bool("norm_topk_prob", true)) c.Unsupported("norm_topk_prob", "false");
}

}  // namespace

extern constinit const Family kDeepseekFamily = {"deepseek", {}, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
