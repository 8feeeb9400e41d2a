// SPDX-License-Identifier: Apache-2.0
// StarCoder2 (Lozhkov et al. 2024): LayerNorm, rope, grouped key-value heads, a sliding window on every layer, tanh-GELU, biases
// everywhere. GGUF has no key for the window: with its files all of the past is seen.
#include "engine/base/format.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"starcoder2"};
constexpr std::string_view kHf[] = {"Starcoder2ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"starcoder2"};

#define TALLY_LAYER "model.layers.#."
constexpr RoleName kHfNames[] = {
    {Role::kOutputNormBias, "model.norm.bias"},
    {Role::kAttnNormBias, TALLY_LAYER "input_layernorm.bias"},
    {Role::kFfnNormBias, TALLY_LAYER "post_attention_layernorm.bias"},
    {Role::kUp, TALLY_LAYER "mlp.c_fc.weight"},
    {Role::kUpBias, TALLY_LAYER "mlp.c_fc.bias"},
    {Role::kDown, TALLY_LAYER "mlp.c_proj.weight"},
    {Role::kDownBias, TALLY_LAYER "mlp.c_proj.bias"},
};
#undef TALLY_LAYER

void ReadBiases(Config& c, Recipe& r) {
  const Inventory& files = c.inventory();
  const bool all = !c.gguf() && c.Bool("use_bias", true);
  r.all.attention.q_bias = c.gguf() ? AnyLayerHas(files, r, Role::kQBias) : all;
  r.all.attention.k_bias = c.gguf() ? AnyLayerHas(files, r, Role::kKBias) : all;
  r.all.attention.v_bias = c.gguf() ? AnyLayerHas(files, r, Role::kVBias) : all;
  r.all.attention.o_bias = c.gguf() ? AnyLayerHas(files, r, Role::kOBias) : all;
  r.all.ffn.bias = c.gguf() ? AnyLayerHas(files, r, Role::kUpBias) : all;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .n_kv_heads = 2,
               .context = 4096,
               .vocab = 49152,
               .tied = true,
               .hf_eps = "norm_epsilon",
               .gguf_eps = "attention.layer_norm_epsilon"});
  ReadFeedForwardWidth(c, r);
  ReadBiases(c, r);
  r.norm = NormKind::kLayer;
  r.all.network.gated = false;
  r.all.network.activation = ReadGelu(c, "hidden_act", "gelu_pytorch_tanh");
  const int32_t window = c.Has("sliding_window") ? c.Int("sliding_window", 1, kMaxContext) : 0;
  for (LayerRecipe& layer : r.layers) layer.attention.window = window;
  c.ExpectText("norm_type", "layer_norm");
  c.ExpectText("mlp_type", "default");
}

}  // namespace

extern constinit const Family kStarcoder2Family = {"starcoder2", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
