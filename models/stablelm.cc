// SPDX-License-Identifier: Apache-2.0
// Llama's decoder with LayerNorm:
//   StableLM (Stability AI 2023 and 2024)  rope of a quarter of each head; in StableLM 2 12B both blocks read the same norm of the layer's
//                                          input, and there is a LayerNorm of each head's query and key, which is read from GGUF alone
//   Orion (OrionStar 2024)
//   Nemotron-4 and Minitron (NVIDIA 2024)  rope of half of each head, a feed-forward of two matrices with relu(x)^2 between them; norms
//                                          multiply by 1 + w: Hugging Face stores w, GGUF 1 + w
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kStableGguf[] = {"stablelm"}, kStableHf[] = {"StableLmForCausalLM", "StableLMEpochForCausalLM"},
                           kStableTypes[] = {"stablelm", "stablelm_epoch"};
constexpr std::string_view kOrionGguf[] = {"orion"}, kOrionHf[] = {"OrionForCausalLM"}, kOrionTypes[] = {"orion"};
constexpr std::string_view kNemotronGguf[] = {"nemotron"}, kNemotronHf[] = {"NemotronForCausalLM"},
                           kNemotronTypes[] = {"nemotron"};

#define TALLY_LAYER "model.layers.#."
#define TALLY_BIASES                                                                                       \
  {Role::kOutputNormBias, "model.norm.bias"}, {Role::kAttnNormBias, TALLY_LAYER "input_layernorm.bias"}, { \
    Role::kFfnNormBias, TALLY_LAYER "post_attention_layernorm.bias"                                        \
  }
constexpr RoleName kNames[] = {TALLY_BIASES};
constexpr RoleName kNemotronNames[] = {TALLY_BIASES,
                                       {Role::kOutputNorm, "model.norm.weight", Storage::kPlusOne},
                                       {Role::kAttnNorm, TALLY_LAYER "input_layernorm.weight", Storage::kPlusOne},
                                       {Role::kFfnNorm, TALLY_LAYER "post_attention_layernorm.weight", Storage::kPlusOne}};
#undef TALLY_BIASES
#undef TALLY_LAYER

void ReadNormed(Config& c, ModelSpec& spec, DecoderDefaults defaults) {
  defaults.norm_eps = 1e-5;
  defaults.gguf_eps = "attention.layer_norm_epsilon";
  ReadDecoder(c, spec, defaults);
  ReadFeedForwardWidth(c, spec.recipe);
  spec.recipe.norm = NormKind::kLayer;
}

void ReadStable(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadNormed(c, spec, {.n_heads = 32, .context = 4096, .vocab = 50304, .rotated = 0.25, .hf_eps = "layer_norm_eps|norm_eps"});
  ExpectSilu(c);
  const auto has = [&](Role role) { return AnyLayerHas(c.inventory(), r, role); };
  const bool parallel = c.gguf() ? !has(Role::kFfnNorm) && has(Role::kAttnNorm) : c.Bool("use_parallel_residual", false);
  if (parallel) r.all.residual.kind = Residual::kParallelOneNorm;
  SetBiases(r, c.gguf() ? has(Role::kQBias) : c.Bool("use_qkv_bias", false), false);
  if (c.gguf() && has(Role::kQNorm)) r.all.attention.qk_norm = QkNormKind::kEachHead;
  if (!c.gguf()) c.ExpectBool("qk_layernorm", false);
}

void ReadOrion(Config& c, ModelSpec& spec) {
  ReadNormed(c, spec, {.n_heads = 40, .context = 4096, .vocab = 84608});
  ExpectSilu(c);
  if (!c.gguf()) c.ExpectBool("attention_bias", false);
}

void ReadNemotron(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadNormed(c, spec, {.n_heads = 48, .context = 4096, .vocab = 256000, .rotated = 0.5, .hf_eps = "norm_eps"});
  if (!c.gguf()) c.ExpectText("hidden_act", "relu2");
  r.all.network.gated = false;
  r.all.network.activation = ActivationKind::kRelu2;
  const auto has = [&](Role role) { return AnyLayerHas(c.inventory(), r, role); };
  const bool bias = c.gguf() ? has(Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? has(Role::kOBias) : bias);
  r.all.ffn.bias = c.gguf() ? has(Role::kUpBias) : c.Bool("mlp_bias", false);
}

}  // namespace

extern constinit const Family kStableLmFamily = {"stablelm", kStableGguf, kStableHf, kStableTypes, ReadStable, kNames};
extern constinit const Family kOrionFamily = {"orion", kOrionGguf, kOrionHf, kOrionTypes, ReadOrion, kNames};
extern constinit const Family kNemotronFamily = {"nemotron",     kNemotronGguf, kNemotronHf,
                                                 kNemotronTypes, ReadNemotron,  kNemotronNames};

}  // namespace tally
