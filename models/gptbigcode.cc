// SPDX-License-Identifier: Apache-2.0
// GPT-BigCode: SantaCoder (Ben Allal et al. 2023), StarCoder (Li et al. 2023), Granite Code 20B (Mishra et al. 2024). GPT-2's
// decoder with one key-value head for all heads, or with one for each. Hugging Face stores the queries of a key-value head, then
// its key and its value. GGUF calls it starcoder, and does not name the activation: StarCoder's is the exact GELU.
#include "models/family.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"starcoder"};
constexpr std::string_view kHf[] = {"GPTBigCodeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"gpt_bigcode"};

#define TALLY_LAYER "transformer.h.#."
#define TALLY_QKV TALLY_LAYER "attn.c_attn."
// clang-format off
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "transformer.wte.weight"}, {Role::kPositionEmbedding, "transformer.wpe.weight"},
    {Role::kOutputNorm, "transformer.ln_f.weight"},    {Role::kOutputNormBias, "transformer.ln_f.bias"},
    {Role::kAttnNorm, TALLY_LAYER "ln_1.weight"},      {Role::kAttnNormBias, TALLY_LAYER "ln_1.bias"},
    {Role::kFfnNorm, TALLY_LAYER "ln_2.weight"},       {Role::kFfnNormBias, TALLY_LAYER "ln_2.bias"},
    {Role::kQ, TALLY_QKV "weight", Storage::kPlain, QOfGroups}, {Role::kQBias, TALLY_QKV "bias", Storage::kPlain, QOfGroups},
    {Role::kK, TALLY_QKV "weight", Storage::kPlain, KOfGroups}, {Role::kKBias, TALLY_QKV "bias", Storage::kPlain, KOfGroups},
    {Role::kV, TALLY_QKV "weight", Storage::kPlain, VOfGroups}, {Role::kVBias, TALLY_QKV "bias", Storage::kPlain, VOfGroups},
    {Role::kO, TALLY_LAYER "attn.c_proj.weight"},      {Role::kOBias, TALLY_LAYER "attn.c_proj.bias"},
    {Role::kUp, TALLY_LAYER "mlp.c_fc.weight"},        {Role::kUpBias, TALLY_LAYER "mlp.c_fc.bias"},
    {Role::kDown, TALLY_LAYER "mlp.c_proj.weight"},    {Role::kDownBias, TALLY_LAYER "mlp.c_proj.bias"},
};
// clang-format on
#undef TALLY_QKV
#undef TALLY_LAYER

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 1024,
               .vocab = 50257,
               .tied = true,
               .hf_eps = "layer_norm_epsilon",
               .gguf_eps = "attention.layer_norm_epsilon",
               .rope = false,
               .hf_layers = "n_layer|num_hidden_layers",
               .hf_width = "n_embd|hidden_size",
               .hf_heads = "n_head|num_attention_heads",
               .hf_context = "n_positions|max_position_embeddings"});
  if (!c.gguf()) r.all.attention.n_kv_heads = c.Bool("multi_query", true) ? 1 : r.all.attention.n_heads;
  r.all.ffn.width = c.Int(c.Pick("feed_forward_length", "n_inner"), 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm = NormKind::kLayer;
  r.learned_positions = r.all.ffn.bias = true;
  SetBiases(r, true, true);
  r.all.network.gated = false;
  r.all.network.activation = ReadGelu(c, "activation_function", c.Pick("gelu", "gelu_pytorch_tanh"));
  if (!c.Bool("scale_attn_weights", true)) SetAttentionScale(r, 1);
  c.ExpectBool("add_cross_attention", false);
}

}  // namespace

extern constinit const Family kGptBigCodeFamily = {"gpt-bigcode", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufFusedQkv};

}  // namespace tally
