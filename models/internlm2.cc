// SPDX-License-Identifier: Apache-2.0
// InternLM2 and 2.5 (InternLM team 2024): Llama's decoder. Hugging Face stores q, k and v as one tensor: for each key-value head
// its queries, its key and its value. GGUF splits them, and permutes q and k as it does Llama's. Defaults are those of the code
// published beside the weights.
#include "models/family.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"internlm2"};
constexpr std::string_view kHf[] = {"InternLM2ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"internlm2"};

#define TALLY_LAYER "model.layers.#."
#define TALLY_QKV TALLY_LAYER "attention.wqkv."
// clang-format off
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "model.tok_embeddings.weight"},    {Role::kHead, "output.weight"},
    {Role::kAttnNorm, TALLY_LAYER "attention_norm.weight"},    {Role::kFfnNorm, TALLY_LAYER "ffn_norm.weight"},
    {Role::kQ, TALLY_QKV "weight", Storage::kPlain, QOfGroups}, {Role::kQBias, TALLY_QKV "bias", Storage::kPlain, QOfGroups},
    {Role::kK, TALLY_QKV "weight", Storage::kPlain, KOfGroups}, {Role::kKBias, TALLY_QKV "bias", Storage::kPlain, KOfGroups},
    {Role::kV, TALLY_QKV "weight", Storage::kPlain, VOfGroups}, {Role::kVBias, TALLY_QKV "bias", Storage::kPlain, VOfGroups},
    {Role::kO, TALLY_LAYER "attention.wo.weight"},             {Role::kOBias, TALLY_LAYER "attention.wo.bias"},
    {Role::kGate, TALLY_LAYER "feed_forward.w1.weight"},       {Role::kUp, TALLY_LAYER "feed_forward.w3.weight"},
    {Role::kDown, TALLY_LAYER "feed_forward.w2.weight"},
};
// clang-format on
#undef TALLY_QKV
#undef TALLY_LAYER

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .n_heads = 32, .context = 2048, .vocab = 103168});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("bias", true);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
}

}  // namespace

extern constinit const Family kInternLm2Family = {"internlm2", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
