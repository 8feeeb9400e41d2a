// SPDX-License-Identifier: Apache-2.0
// Gemma (Gemma team 2024): Llama's decoder with embeddings scaled by the root of the width, GeGLU, heads of 256, head tied. Gemma
// 2 (Gemma team 2024): norms before and after both blocks, a sliding window on every other layer from the first on, and scores
// and logits bounded by tanh. Norms multiply by 1 + w: Hugging Face stores w, GGUF 1 + w.
#include <cmath>

#include "models/family.h"
#include "models/gemma_names.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"gemma"};
constexpr std::string_view kHf[] = {"GemmaForCausalLM"};
constexpr std::string_view kHfTypes[] = {"gemma"};
constexpr std::string_view kGguf2[] = {"gemma2"};
constexpr std::string_view kHf2[] = {"Gemma2ForCausalLM"};
constexpr std::string_view kHfTypes2[] = {"gemma2"};

constexpr RoleName kHfNames[] = {
    {Role::kOutputNorm, "model.norm.weight", Storage::kPlusOne},
    {Role::kAttnNorm, "model.layers.#.input_layernorm.weight", Storage::kPlusOne},
    {Role::kFfnNorm, "model.layers.#.post_attention_layernorm.weight", Storage::kPlusOne},
};

void ReadBoth(Config& c, ModelSpec& spec, int32_t n_heads, int32_t n_kv_heads) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_kv_heads = n_kv_heads,
               .head_dim = 256,
               .n_heads = n_heads,
               .context = 8192,
               .vocab = 256000,
               .tied = true});
  ReadFeedForwardWidth(c, r);
  r.embedding_scale = std::sqrt(static_cast<float>(r.d_model));
  r.all.network.activation = ReadGelu(c, "hidden_activation", "gelu_pytorch_tanh");
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  c.ExpectBool("use_bidirectional_attention", false);
}

// Published checkpoints have "gelu" in hidden_act and were trained with the tanh-GELU: hidden_act says only that it is a GELU.
void Read(Config& c, ModelSpec& spec) {
  ReadBoth(c, spec, 16, 16);
  ReadGelu(c, "hidden_act", "gelu");
}

// q.k is divided by the square root of this. GGUF has no key for it; of the published models only the one of 46 layers (27B) uses
// another value than head_dim.
double QueryScalar(Config& c, const Recipe& r) {
  if (c.gguf()) return r.n_layers == 46 ? EvenHeadDim(c, r) : r.all.attention.head_dim;
  return c.Positive("query_pre_attn_scalar", 256);
}

float Softcap(Config& c, std::string_view key, double otherwise) {
  return c.IsNull(key) ? 0 : static_cast<float>(c.Positive(key, otherwise));
}

void Read2(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadBoth(c, spec, 8, 4);
  r.all.residual.post_norms = true;
  SetAttentionScale(r, 1 / std::sqrt(QueryScalar(c, r)));
  r.all.attention.softcap = Softcap(c, "attn_logit_softcapping", 50);
  r.logit_softcap = Softcap(c, "final_logit_softcapping", 30);
  const std::string_view key = c.Pick("attention.sliding_window", "sliding_window");
  const int32_t window = c.IsNull(key) ? 0 : c.Int(key, 1, kMaxContext, 4096);
  if (c.gguf()) return ReadWindowPattern(c, r, "attention.sliding_window_pattern", window, 2);
  if (!ReadHfLayerTypes(c, r, window)) SetWindows(r, window, 2);
}

}  // namespace

extern constinit const Family kGemmaFamily = {"gemma", kGguf, kHf, kHfTypes, Read, kHfNames};
extern constinit const Family kGemma2Family = {"gemma2", kGguf2, kHf2, kHfTypes2, Read2, kGemmaNames};

}  // namespace tally
