// SPDX-License-Identifier: Apache-2.0
// Qwen3 (Qwen team 2025): Llama's decoder with RMSNorm of each head's query and key; and its mixture of experts. GGUF has no key for
// dividing the chosen experts' weights by their sum: a file of the mixture implies it.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"qwen3", "qwen3moe"};
constexpr std::string_view kHf[] = {"Qwen3ForCausalLM", "Qwen3MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"qwen3", "qwen3_moe"};

// Of a mixture: all layers have it (transformers, modeling_qwen3_moe.py).
void ReadWindow(Config& c, Recipe& r) {
  if (c.gguf() || !c.Bool("use_sliding_window", false) || c.IsNull("sliding_window")) return;
  const int32_t window = c.Int("sliding_window", 1, kMaxContext, 4096);
  for (LayerRecipe& layer : r.layers) layer.window = window;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool mixture = c.Is({"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"});
  ReadDecoder(
      c, spec,
      {.norm_eps = 1e-6, .n_kv_heads = mixture ? 4 : 32, .head_dim = mixture ? 0 : 128, .context = 32768, .vocab = 151936});
  ReadFeedForwardWidth(c, r);
  r.qk_norm = QkNormKind::kHead;
  if (mixture) {
    r.family = "qwen3-moe";
    ReadExperts(c, r, "num_experts|num_local_experts", "moe_intermediate_size");
    r.routing = SoftmaxRule(c, /*normed_by_default=*/c.gguf());
    ReadQwenSparseLayers(c, r);
    ReadWindow(c, r);
  } else {
    ReadQwenWindows(c, r);
  }
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kQwen3Family = {"qwen3", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
