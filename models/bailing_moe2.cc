// SPDX-License-Identifier: Apache-2.0
// Ling 2.0 and Ring 2.0 (inclusionAI 2025): q, k and v as one matrix, RMSNorm of each head's query and key, rope of half a head; experts by
// sigmoids with a bias that only the choice sees, chosen from a few groups, beside shared ones, dense layers first; layers for
// multi-token prediction, which are not run. Sarvam-30B (Sarvam 2026) is the same with rope of the whole head: it subtracts the mean of
// the bias, which changes no choice. GGUF counts the layers for prediction among the blocks.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"bailingmoe2"};
constexpr std::string_view kHf[] = {"BailingMoeV2ForCausalLM", "SarvamMoEForCausalLM"};
constexpr std::string_view kHfTypes[] = {"bailing_moe_v2", "sarvam_moe"};

#define TALLY_LAYER "model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kTokenEmbedding, "model.word_embeddings.weight"},
                                 {Role::kQkv, TALLY_LAYER "attention.query_key_value.weight"},
                                 {Role::kQkvBias, TALLY_LAYER "attention.query_key_value.bias"},
                                 {Role::kQNorm, TALLY_LAYER "attention.query_layernorm.weight"},
                                 {Role::kKNorm, TALLY_LAYER "attention.key_layernorm.weight"},
                                 {Role::kO, TALLY_LAYER "attention.dense.weight"},
                                 {Role::kOBias, TALLY_LAYER "attention.dense.bias"},
                                 {Role::kRouterBias, TALLY_LAYER "mlp.gate.expert_bias"},
                                 {Role::kSharedExpertGate, TALLY_LAYER "mlp.shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_LAYER "mlp.shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_LAYER "mlp.shared_experts.down_proj.weight"}};
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {{Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

void ReadMixture(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadExperts(c, r, "num_experts", "moe_intermediate_size");
  const int32_t shared = c.Int(c.Pick("expert_shared_count", "num_shared_experts"), 0, kMaxExperts, c.gguf() ? 1 : 0);
  const std::string_view width_key = c.Pick("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size");
  SetSharedWidth(c, r, int64_t{shared} * c.Int(width_key, 1, kMaxWidth, r.all.experts.width), "num_shared_experts");
  SetSparseFrom(r, c.Int(c.Pick("leading_dense_block_count", "first_k_dense_replace"), 0, kMaxLayers, 0));
  ReadSigmoidRouting(c, r, /*normed=*/true);
  if (!c.gguf()) r.all.experts.router_bias = c.Bool("moe_router_enable_expert_bias", true);
  for (const char* key : {"score_function", "scoring_func"}) c.ExpectText(key, "sigmoid");
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .n_kv_heads = 4, .rope_theta = 600000, .rotated = 1});
  ReadFeedForwardWidth(c, r);
  if (c.gguf()) {
    ReadGgufPredictionLayers(c, spec);
  } else {
    ReadHfPredictionLayers(c, spec);
    c.ExpectBool("norm_topk_prob", true);  // the published code always divides
  }
  ReadMixture(c, spec);
  r.all.attention.fused_qkv = true;
  r.all.attention.qk_norm = c.gguf() || c.Bool("use_qk_norm", true) ? QkNormKind::kHead : QkNormKind::kNone;
  SetBiases(r, !c.gguf() && c.Bool("use_qkv_bias", false), !c.gguf() && c.Bool("use_bias", false));
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kBailingMoe2Family = {"bailing-moe2", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
