// Llama 1 to 3 (Touvron et al. 2023, Dubey et al. 2024) and Mistral 7B (Jiang et al. 2023: the same with a
// sliding window on every layer): RMSNorm, rotary positions, grouped key-value heads, SiLU-gated
// feed-forward. GGUF stores the rows of q and k so that adjacent pairs turn; Hugging Face so that halves of a
// head do.
#include "engine/base/format.h"
#include "models/binding.h"
#include "models/config.h"
#include "models/families.h"
#include "models/names.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"llama"};
constexpr std::string_view kHf[] = {"LlamaForCausalLM", "MistralForCausalLM"};
constexpr std::string_view kHfTypes[] = {"llama", "mistral"};

Result<ModelSpec> ReadGgufFile(const Inventory& inventory) {
  ModelSpec spec;
  Recipe& r = spec.recipe;
  r.family = "llama";
  Config c(inventory, "llama.");
  if (c.Int("expert_count", 0, kMaxExperts, 0) > 0) c.Unsupported("expert_count", "above 0 (a Mixtral-style mixture of experts)");
  ReadGgufDecoder(c, r);
  r.rope.style = RopeStyle::kAdjacentPair;
  r.rope.freq_factors = IsStored(inventory, "rope_freqs.weight");
  ReadGgufRope(c, r, /*yarn_truncate=*/true);
  r.d_ff = c.Int("feed_forward_length", 1, kMaxWidth);
  const int32_t window = c.Int("attention.sliding_window", 0, kMaxContext, 0);
  CheckHeads(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  r.layers.assign(r.n_layers, {.window = window});
  UsualAttentionScale(r);
  r.tied_head = !IsStored(inventory, "output.weight");
  r.q_bias = AnyLayerHas(inventory, r, "blk.#.attn_q.bias");
  r.k_bias = AnyLayerHas(inventory, r, "blk.#.attn_k.bias");
  r.v_bias = AnyLayerHas(inventory, r, "blk.#.attn_v.bias");
  r.o_bias = AnyLayerHas(inventory, r, "blk.#.attn_output.bias");
  r.ffn_bias = AnyLayerHas(inventory, r, "blk.#.ffn_up.bias");
  return Finish(c, std::move(spec), {GgufNames()});
}

Result<ModelSpec> ReadHfDirectory(const Inventory& inventory) {
  ModelSpec spec;
  Recipe& r = spec.recipe;
  r.family = "llama";
  Config c(inventory, "");
  const std::vector<std::string> architectures = c.Strings("architectures");
  const bool mistral = architectures.empty() ? c.String("model_type", "") == "mistral" : architectures[0] == "MistralForCausalLM";
  ReadHfDecoder(c, r, {.norm_eps = 1e-6, .n_kv_heads = mistral ? 8 : 0});
  r.rope.style = RopeStyle::kRotateHalf;
  r.rope.dim = r.head_dim;
  ReadHfRope(c, r, 10000);
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  if (const std::string act = c.String("hidden_act", "silu"); act != "silu" && act != "swish")
    c.Unsupported("hidden_act", Quote(act));
  // Llama's published classes have no window, whatever the config says. Mistral's has one of 4096 where the config says
  // nothing, and none where it says null (transformers, configuration_mistral.py).
  const bool windowed = mistral && !c.IsNull("sliding_window");
  const int32_t window = windowed ? c.Int("sliding_window", 0, kMaxContext, 4096) : 0;
  CheckHeads(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  r.layers.assign(r.n_layers, {.window = window});
  UsualAttentionScale(r);
  r.q_bias = r.k_bias = r.v_bias = r.o_bias = !mistral && c.Bool("attention_bias", false);
  r.ffn_bias = !mistral && c.Bool("mlp_bias", false);
  ReadHfTying(c, false, spec);
  for (int32_t i = 0; i < r.n_layers; ++i) {  // old exports keep the frequencies
    const std::string name = "model.layers." + std::to_string(i) + ".self_attn.rotary_emb.inv_freq";
    if (IsStored(inventory, name)) spec.buffers.push_back(name);
  }
  return Finish(c, std::move(spec), {HfDecoderNames()});
}

Result<ModelSpec> Read(const Inventory& inventory) {
  return inventory.format == FileFormat::kGguf ? ReadGgufFile(inventory) : ReadHfDirectory(inventory);
}

}  // namespace

constinit const Family kLlamaFamily = {"llama", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
