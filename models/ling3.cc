// SPDX-License-Identifier: Apache-2.0
// Ling 3.0 (inclusionAI 2026): groups of layers of Kimi Delta Attention that end with a layer of latent attention, whose heads' outputs are
// gated; layers that fill no group are of the latter. The logarithm of a decay is a bound times a sigmoid; GGUF stores A itself, not -A. A
// mixture of experts as DeepSeek-V3's beside a shared one of a width of its own; the SwiGLU of a layer's experts may be limited. Layers for
// multi-token prediction are not run.
#include <algorithm>

#include "engine/base/format.h"
#include "models/kda.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"bailingmoe3"};
constexpr std::string_view kHf[] = {"BailingMoeV3ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"bailing_moe_v3"};

constexpr RoleName kGgufNames[] = {TALLY_KDA_GGUF,
                                   {Role::kAttnGate, "blk.#.attn_gate.weight"},
                                   {Role::kDeltaGate, "blk.#.ssm_g_a.weight"},
                                   {Role::kDeltaAlpha, "blk.#.ssm_f_a.weight"}};
#define TALLY_MIXER "model.layers.#.attention."
#define TALLY_MLP "model.layers.#.mlp."
constexpr RoleName kHfNames[] = {TALLY_KDA_HF(TALLY_MIXER, TALLY_MLP),
                                 {Role::kTokenEmbedding, "model.word_embeddings.weight"},
                                 {Role::kO, TALLY_MIXER "dense.weight"},
                                 {Role::kAttnGate, TALLY_MIXER "g_proj.weight"},
                                 {Role::kSsmA, TALLY_MIXER "A_log", Storage::kExp},
                                 {Role::kDeltaAlpha, TALLY_MIXER "f_proj.weight"},
                                 {Role::kDeltaGate, TALLY_MIXER "g_proj.weight"},
                                 {Role::kRouterBias, TALLY_MLP "gate.expert_bias"}};
#undef TALLY_MIXER
#undef TALLY_MLP

// Limits of the SwiGLU of experts or of shared ones, of each layer, layers for multi-token prediction included; 0 or null: none. The
// published class ignores them; the models were trained with them, and SGLang, MLX and llama.cpp apply them.
void ReadLimits(Config& c, Recipe& r, std::string_view key, float Experts::*limit) {
  if (!c.Has(key) || (!c.gguf() && c.IsNull(key))) return;
  const std::vector<double> limits = c.Doubles(key);
  const size_t layers = r.layers.size();
  if (limits.size() != layers && limits.size() != layers + static_cast<size_t>(r.mtp_layers)) {
    return c.Fail(std::string(key) + " lists " + std::to_string(limits.size()) + " layers of " + std::to_string(layers));
  }
  for (size_t i = 0; i < layers; ++i) {
    if (limits[i] < 0) return c.Fail(std::string(key) + " has " + NumberText(limits[i]));
    if (limits[i] != 0 && !r.layers[i].sparse()) return c.Unsupported(key, NumberText(limits[i]) + " of a dense layer");
    r.layers[i].experts.*limit = static_cast<float>(limits[i]);
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadKdaLatent(c, r);
  r.rope.style = c.gguf() || c.Bool("rope_interleave", true) ? RopeStyle::kAdjacentPair : RopeStyle::kRotateHalf;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .gguf_absent_heads = true});
  const int32_t group = c.gguf() ? 1 : c.Int("layer_group_size", 1, kMaxLayers), whole = r.n_layers / group * group;
  ReadKda(c, r, "num_attention_heads", "head_dim", "short_conv_kernel_size",
          [&](int32_t layer) { return (layer + 1) % group != 0 && layer < whole; });
  r.all.attention.gate = r.all.attention.gate_each_head = true;
  r.all.delta.decay_bound = static_cast<float>(c.Double(c.Pick("kda.gate_lower_bound", "kda_lower_bound"), c.gguf() ? 0 : -5));
  if (c.ok() && r.all.delta.decay_bound >= 0)
    c.Fail(std::string(c.Pick("kda.gate_lower_bound", "kda_lower_bound")) + " is not negative");
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec);
  const int64_t experts = c.gguf() ? 1 : std::max(1, c.Int("num_shared_experts", 0, kMaxExperts, 1));
  const std::string_view width = c.Pick("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size");
  SetSharedWidth(c, r,
                 experts * c.Int(width, 1, kMaxWidth, c.gguf() ? std::max(r.all.experts.shared_width, 1) : r.all.experts.width),
                 "num_shared_experts");
  if (c.gguf()) ReadGgufPredictionLayers(c, spec);
  ReadSigmoidRouting(c, r, /*normed=*/true);
  ExpectSilu(c);
  c.ExpectBool(c.Pick("kda.safe_gate", "kda_safe_gate"), true);
  ReadLimits(c, r, c.Pick("swiglu_clamp_exp", "expert_swiglu_limit_list"), &Experts::limit);
  ReadLimits(c, r, c.Pick("swiglu_clamp_shexp", "share_expert_swiglu_limit_list"), &Experts::shared_limit);
  if (c.gguf()) return;
  for (const char* key : {"no_kda_lora", "moe_router_enable_expert_bias", "norm_topk_prob"}) c.ExpectBool(key, true);
  for (const char* key : {"use_bias", "use_qkv_bias", "use_mla_nope", "use_kda_lora", "use_nGPT", "scale_router_input",
                          "value_norm", "up_proj_norm"}) {
    c.ExpectBool(key, false);
  }
  c.ExpectText("gated_attention_proj_granularity_type", "head_wise");
  c.ExpectText("topk_method", "noaux_tc");
  if (c.Has("rope_scaling.mscale_all_dim")) c.Unsupported("rope_scaling.mscale_all_dim", "in this architecture");
  for (const char* key : {"scoring_func", "score_function"}) c.ExpectText(key, "sigmoid");
  c.Bool("use_qk_norm", true);  // the published code has no other norms of queries and keys
}

}  // namespace

extern constinit const Family kLing3Family = {"ling-3", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
