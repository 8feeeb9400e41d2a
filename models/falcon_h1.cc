// SPDX-License-Identifier: Apache-2.0
// Falcon-H1 (TII 2025): in each layer attention and Mamba-2 read the same normalised input, and their outputs are added up; published
// factors of embeddings, keys, logits and of the parts of a layer. Converters multiply the weights of GGUF files by them. A factor of
// attention's input counts twice in q.k and once in the values. Defaults are those of transformers.
#include <algorithm>

#include "models/family.h"
#include "models/mamba.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"falcon-h1"};
constexpr std::string_view kHf[] = {"FalconH1ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"falcon_h1"};

#define TALLY_LAYER "model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kOutputNorm, "model.final_layernorm.weight"},
                                 {Role::kFfnNorm, TALLY_LAYER "pre_ff_layernorm.weight"},
                                 TALLY_MAMBA_HF(TALLY_LAYER "mamba."),
                                 {Role::kGate, TALLY_LAYER "feed_forward.gate_proj.weight"},
                                 {Role::kUp, TALLY_LAYER "feed_forward.up_proj.weight"},
                                 {Role::kDown, TALLY_LAYER "feed_forward.down_proj.weight"}};
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {
    TALLY_MAMBA_GGUF, {Role::kFfnNorm, "blk.#.ffn_norm"}, {Role::kFfnNorm, "blk.#.ffn_norm.weight"}};

void ReadFactors(Config& c, Recipe& r) {
  const auto list = [&](std::string_view key, size_t n) {
    std::vector<double> factors = c.Doubles(key);
    if (!factors.empty() && factors.size() != n)
      c.Fail(std::string(key) + " lists " + std::to_string(factors.size()) + " factors");
    factors.resize(n, 1);
    return factors;
  };
  r.embedding_scale = static_cast<float>(c.Positive("embedding_multiplier", 1));
  r.logit_scale = static_cast<float>(c.Positive("lm_head_multiplier", 1));
  const double in = c.Positive("attention_in_multiplier", 1);
  SetAttentionScale(r, UsualAttentionScale(r) * in * in * c.Positive("key_multiplier", 1));
  r.all.attention.out_scale = static_cast<float>(in * c.Positive("attention_out_multiplier", 1));
  r.all.mamba.out_scale = static_cast<float>(c.Positive("ssm_out_multiplier", 1));
  const std::vector<double> mlp = list("mlp_multipliers", 2), ssm = list("ssm_multipliers", 5);
  r.all.network.gate_scale = static_cast<float>(mlp[0]);
  r.all.network.down_scale = static_cast<float>(mlp[1]);
  const double ssm_in = c.Positive("ssm_in_multiplier", 1);
  for (size_t i = 0; i < ssm.size(); ++i) r.all.mamba.multipliers[i] = static_cast<float>(ssm_in * ssm[i]);
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_kv_heads = 8, .n_heads = 32, .context = 8192, .vocab = 128000});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  for (LayerRecipe& layer : r.layers) layer.mixers = {Mixer::kAttention, Mixer::kMamba2};
  const bool own_width = !c.gguf() && !c.IsNull("mamba_d_ssm");
  ReadMamba2(c, r, {.inner = own_width ? c.Int("mamba_d_ssm", 1, kMaxWidth, 1024) : 0});
  if (c.gguf()) {
    r.all.mamba.norm = AnyLayerHas(c.inventory(), r, Role::kSsmNorm);
    return;
  }
  r.all.mamba.norm = c.Bool("mamba_rms_norm", false);
  r.all.mamba.norm_groups = r.all.mamba.groups;
  r.all.mamba.norm_first = c.Bool("mamba_norm_before_gate", true);
  ReadFactors(c, r);
  for (const char* key : {"attention_bias", "mlp_bias", "projectors_bias"}) c.ExpectBool(key, false);
}

}  // namespace

extern constinit const Family kFalconH1Family = {"falcon-h1", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
