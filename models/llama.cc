// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3 (Touvron et al. 2023, Dubey et al. 2024), Mistral 7B (Jiang et al. 2023: the same with a sliding window on every
// layer) and Mixtral (Jiang et al. 2024: with a mixture of experts in every layer, too): RMSNorm, rotary positions, grouped key-value
// heads, SiLU-gated feed-forward. GGUF calls all of them llama, and stores the rows of q and k so that adjacent pairs turn; Hugging
// Face so that halves of a head do.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"llama"};
constexpr std::string_view kHf[] = {"LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"};
constexpr std::string_view kHfTypes[] = {"llama", "mistral", "mixtral"};

constexpr RoleName kMixtralNames[] = {{Role::kRouter, "model.layers.#.block_sparse_moe.gate.weight"},
                                      {Role::kExpertGate, "model.layers.#.block_sparse_moe.experts.*.w1.weight"},
                                      {Role::kExpertUp, "model.layers.#.block_sparse_moe.experts.*.w3.weight"},
                                      {Role::kExpertDown, "model.layers.#.block_sparse_moe.experts.*.w2.weight"}};

// Llama's published classes have no window, whatever the config says. Mistral's has one of 4096 if the config says nothing, and none if it
// says null (transformers, configuration_mistral.py); Mixtral's none in both cases.
int32_t ReadWindow(Config& c, bool mistral, bool mixtral) {
  if (c.gguf()) return c.Int("attention.sliding_window", 0, kMaxContext, 0);
  const bool windowed = (mistral || mixtral) && !c.IsNull("sliding_window");
  return windowed ? c.Int("sliding_window", mixtral ? 1 : 0, kMaxContext, mixtral ? 0 : 4096) : 0;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool mistral = c.Is({"MistralForCausalLM", "mistral"});
  const bool mixtral = c.gguf() ? c.Int("expert_count", 0, kMaxExperts, 0) > 0 : c.Is({"MixtralForCausalLM", "mixtral"});
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec,
              mixtral ? DecoderDefaults{.norm_eps = 1e-5, .n_kv_heads = 8, .context = 131072, .vocab = 32000, .rope_theta = 1e6}
                      : DecoderDefaults{
                            .norm_eps = 1e-6, .n_kv_heads = mistral ? 8 : 0, .context = mistral ? 131072 : 2048, .vocab = 32000});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  const int32_t window = ReadWindow(c, mistral, mixtral);
  for (LayerRecipe& layer : r.layers) {
    layer.attention.window = window;
    SetSparse(layer, mixtral);
  }
  if (mixtral) {
    r.family = "mixtral";
    ReadExperts(c, r, "num_local_experts|num_experts", "intermediate_size");
    ReadUngatedExperts(c, r);
    r.all.experts.routing = RoutingRule::kTopKThenSoftmax;
  }
  if (c.gguf()) {
    const Inventory& files = c.inventory();
    r.rope.freq_factors = IsStored(files, GgufName(Role::kRopeFactors, -1));
    r.all.attention.q_bias = AnyLayerHas(files, r, Role::kQBias);
    r.all.attention.k_bias = AnyLayerHas(files, r, Role::kKBias);
    r.all.attention.v_bias = AnyLayerHas(files, r, Role::kVBias);
    r.all.attention.o_bias = AnyLayerHas(files, r, Role::kOBias);
    r.all.ffn.bias = AnyLayerHas(files, r, Role::kUpBias);
  } else if (!mistral && !mixtral) {
    const bool bias = c.Bool("attention_bias", false);
    SetBiases(r, bias, bias);
    r.all.ffn.bias = c.Bool("mlp_bias", false);
  }
}

}  // namespace

extern constinit const Family kLlamaFamily = {"llama", kGguf, kHf, kHfTypes, Read, kMixtralNames};

}  // namespace tally
