// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (OLMo team 2024): Llama's decoder with norms after both blocks instead of before them, and RMSNorm of all heads'
// queries, and keys, together. OLMo 3 (2025): the same with a sliding window on three layers of four, whose rope is not scaled. GGUF
// calls both olmo2.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"olmo2"};
constexpr std::string_view kHf[] = {"Olmo2ForCausalLM", "Olmo3ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"olmo2", "olmo3"};

constexpr RoleName kHfNames[] = {{Role::kAttnPostNorm, "model.layers.#.post_attention_layernorm.weight"},
                                 {Role::kFfnPostNorm, "model.layers.#.post_feedforward_layernorm.weight"}};

void ReadWindows(Config& c, Recipe& r) {
  const int32_t window = c.gguf()                     ? c.Int("attention.sliding_window", 0, kMaxContext, 0)
                         : c.IsNull("sliding_window") ? 0
                                                      : c.Int("sliding_window", 1, kMaxContext, 4096);
  if (window > 0) r.family = "olmo3";
  if (c.gguf()) {
    ReadWindowPattern(c, r, "attention.sliding_window_pattern", window, 4);
  } else if (!ReadHfLayerTypes(c, r, window)) {
    SetWindows(r, window, 4);
  }
  r.local_rope = {.style = r.rope.style, .dim = r.rope.dim, .theta = r.rope.theta};
  if (!c.gguf()) {
    r.local_rope.theta = c.Positive("rope_parameters.sliding_attention.rope_theta", r.rope.theta);
    c.ExpectText("rope_parameters.sliding_attention.rope_type", "default");
  }
  if (r.local_rope == r.rope) r.local_rope = {};
  for (LayerRecipe& layer : r.layers) {
    if (layer.attention.window > 0 && r.local_rope.style != RopeStyle::kNone) layer.attention.rope = LayerRope::kLocal;
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_heads = 32, .context = 2048, .vocab = 50304});
  ReadFeedForwardWidth(c, r);
  r.all.residual.pre_norms = false;
  r.all.residual.post_norms = true;
  r.all.attention.qk_norm = QkNormKind::kWhole;
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ExpectSilu(c);
  if (c.gguf() || c.Is({"Olmo3ForCausalLM", "olmo3"})) ReadWindows(c, r);
}

}  // namespace

extern constinit const Family kOlmo2Family = {"olmo2", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
