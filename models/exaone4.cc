// SPDX-License-Identifier: Apache-2.0
// EXAONE 4 (LG AI Research 2025), dense: Llama's decoder with norms after both blocks instead of before them and RMSNorm of each head's
// query and key. The larger has a sliding window and rope on three layers of four, then a layer that sees all of the past and has no rope;
// the smaller no window, and rope on all. GGUF has a list of which layers have the window; a file without one has none, but for the
// model of 64 layers.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"exaone4"};
constexpr std::string_view kHf[] = {"Exaone4ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"exaone4"};

constexpr RoleName kHfNames[] = {{Role::kAttnPostNorm, "model.layers.#.post_attention_layernorm.weight"},
                                 {Role::kFfnPostNorm, "model.layers.#.post_feedforward_layernorm.weight"}};

// With windows the layers without one have no rope.
void ReadWindows(Config& c, Recipe& r) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const bool told = c.gguf() ? r.n_layers == 64 || c.Has(kPattern) : !c.IsNull("sliding_window");
  const std::string_view key = c.Pick("attention.sliding_window", "sliding_window");
  const int32_t window = told ? c.Int(key, c.gguf() ? 0 : 1, kMaxContext, 4096) : 0;
  const bool none = window == 0;
  if (c.gguf() && !none) {
    ReadWindowPattern(c, r, kPattern, window, 4);
  } else if (!c.gguf() && !ReadHfLayerTypes(c, r, window)) {  // a pattern of letters ("LLLG") comes with layer_types
    SetWindows(r, window, none ? 1 : c.Int("sliding_window_pattern", 1, kMaxLayers, 4));
  }
  for (LayerRecipe& layer : r.layers)
    layer.attention.rope = none || layer.attention.window > 0 ? LayerRope::kGlobal : LayerRope::kNone;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_kv_heads = 32, .n_heads = 32, .context = 2048, .vocab = 102400});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  r.all.residual.pre_norms = false;
  r.all.residual.post_norms = true;
  r.all.attention.qk_norm = QkNormKind::kHead;
  if (c.gguf()) ReadGgufPredictionLayers(c, spec);
  ReadWindows(c, r);
  r.rope.freq_factors = c.gguf() && IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
}

}  // namespace

extern constinit const Family kExaone4Family = {"exaone4", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
