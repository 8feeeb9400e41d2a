// SPDX-License-Identifier: Apache-2.0
// GPT-Neo (Black et al. 2021) and TinyStories (Eldan and Li 2023): GPT-2's decoder with q, k and v apart and without biases, q.k
// not scaled, and a sliding window on every other layer. GGUF has no such model.
#include "engine/base/format.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"GPTNeoForCausalLM"};
constexpr std::string_view kHfTypes[] = {"gpt_neo"};

#define TALLY_LAYER "transformer.h.#."
#define TALLY_ATTN TALLY_LAYER "attn.attention."
// clang-format off
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "transformer.wte.weight"}, {Role::kPositionEmbedding, "transformer.wpe.weight"},
    {Role::kOutputNorm, "transformer.ln_f.weight"},    {Role::kOutputNormBias, "transformer.ln_f.bias"},
    {Role::kAttnNorm, TALLY_LAYER "ln_1.weight"},      {Role::kAttnNormBias, TALLY_LAYER "ln_1.bias"},
    {Role::kFfnNorm, TALLY_LAYER "ln_2.weight"},       {Role::kFfnNormBias, TALLY_LAYER "ln_2.bias"},
    {Role::kQ, TALLY_ATTN "q_proj.weight"},            {Role::kK, TALLY_ATTN "k_proj.weight"},
    {Role::kV, TALLY_ATTN "v_proj.weight"},
    {Role::kO, TALLY_ATTN "out_proj.weight"},          {Role::kOBias, TALLY_ATTN "out_proj.bias"},
    {Role::kUp, TALLY_LAYER "mlp.c_fc.weight"},        {Role::kUpBias, TALLY_LAYER "mlp.c_fc.bias"},
    {Role::kDown, TALLY_LAYER "mlp.c_proj.weight"},    {Role::kDownBias, TALLY_LAYER "mlp.c_proj.bias"},
};
// clang-format on
#undef TALLY_ATTN
#undef TALLY_LAYER

// attention_layers names each layer's kind. Without it the layers are global and local in turn, the published default of
// attention_types, which says the same in nested lists.
void ReadWindows(Config& c, Recipe& r) {
  const int32_t window = c.Int("window_size", 1, kMaxContext, 256);
  const std::vector<std::string> kinds = c.Strings("attention_layers");
  if (kinds.empty() && c.Has("attention_types")) c.Unsupported("attention_types", "without attention_layers");
  if (!kinds.empty() && kinds.size() != r.layers.size()) {
    return c.Fail("attention_layers lists " + std::to_string(kinds.size()) + " layers of " + std::to_string(r.layers.size()));
  }
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const std::string kind = !kinds.empty() ? kinds[i] : i % 2 == 0 ? "global" : "local";
    if (kind != "global" && kind != "local") c.Unsupported("attention_layers", Quote(kind));
    r.layers[i].attention.window = kind == "local" ? window : 0;
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 2048,
               .vocab = 50257,
               .tied = true,
               .hf_eps = "layer_norm_epsilon",
               .rope = false,
               .hf_layers = "num_layers|num_hidden_layers",
               .hf_heads = "num_heads|num_attention_heads"});
  r.all.ffn.width = c.Int("intermediate_size", 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm = NormKind::kLayer;
  r.learned_positions = r.all.ffn.bias = true;
  SetBiases(r, false, true);
  r.all.network.gated = false;
  r.all.network.activation = ReadGelu(c, "activation_function", "gelu_new");
  SetAttentionScale(r, 1);
  ReadWindows(c, r);
}

}  // namespace

extern constinit const Family kGptNeoFamily = {"gpt-neo", {}, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
