// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (OLMo team 2024): Llama's decoder with norms after both blocks instead of before them, and RMSNorm of all heads'
// queries, and keys, together.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"olmo2"};
constexpr std::string_view kHf[] = {"Olmo2ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"olmo2"};

constexpr RoleName kHfNames[] = {{Role::kAttnPostNorm, "model.layers.#.post_attention_layernorm.weight"},
                                 {Role::kFfnPostNorm, "model.layers.#.post_feedforward_layernorm.weight"}};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_heads = 32, .context = 2048, .vocab = 50304});
  ReadFeedForwardWidth(c, r);
  r.pre_norms = false;
  r.post_norms = true;
  r.qk_norm = QkNormKind::kWhole;
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ExpectSilu(c);
  constexpr std::string_view kWindow = "attention.sliding_window";
  if (c.gguf() && c.Int(kWindow, 0, kMaxContext, 0) > 0) c.Unsupported(kWindow, "(OLMo 3)");
}

}  // namespace

extern constinit const Family kOlmo2Family = {"olmo2", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
