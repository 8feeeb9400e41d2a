// SPDX-License-Identifier: Apache-2.0
// SmolLM3 (Hugging Face 2025): Llama's decoder with layers that have no rope, every fourth in the published model. GGUF permutes
// q and k as it does Llama's, and has no key for those layers: a file implies every fourth.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"smollm3"};
constexpr std::string_view kHf[] = {"SmolLM3ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"smollm3"};

// Without layer_types, the layers without rope have the window.
void ReadWindows(Config& c, Recipe& r) {
  const bool windowed = c.Bool("use_sliding_window", false) && !c.IsNull("sliding_window");
  const int32_t window = windowed ? c.Int("sliding_window", 1, kMaxContext, 0) : 0;
  if (ReadHfLayerTypes(c, r, window)) return;
  for (LayerRecipe& layer : r.layers) layer.attention.window = layer.attention.rope == LayerRope::kNone ? window : 0;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(
      c, spec,
      {.norm_eps = 1e-6, .n_kv_heads = 4, .n_heads = 16, .context = 32768, .vocab = 128256, .rope_theta = 2e6, .tied = true});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  ReadNoRopeLayers(c, r);
  if (!c.gguf()) ReadWindows(c, r);
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
  r.all.ffn.bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kUpBias) : c.Bool("mlp_bias", false);
}

}  // namespace

extern constinit const Family kSmolLm3Family = {"smollm3", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
