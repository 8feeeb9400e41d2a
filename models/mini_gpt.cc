// SPDX-License-Identifier: Apache-2.0
// Mini-GPT of a course text ("Lab 02, Parameter inventory"): GPT-2's decoder with rope in place of learned positions, and with
// biases in the feed-forward but not in attention. The text counts 103,680 parameters. It leaves open how pairs turn, theta, eps,
// the kind of GELU and the trained length. config.json is a schema of Tally's own: model_type "mini-gpt", GPT-2's keys,
// rope_theta, and attention_bias for the text's variant with biases. Names of tensors are nanoGPT's: q, k and v are one matrix,
// all of q, then k, then v.
#include "models/family.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kHfTypes[] = {"mini-gpt"};

#define TALLY_LAYER "transformer.h.#."
#define TALLY_QKV TALLY_LAYER "attn.c_attn."
// clang-format off
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "transformer.wte.weight"},
    {Role::kOutputNorm, "transformer.ln_f.weight"},    {Role::kOutputNormBias, "transformer.ln_f.bias"},
    {Role::kAttnNorm, TALLY_LAYER "ln_1.weight"},      {Role::kAttnNormBias, TALLY_LAYER "ln_1.bias"},
    {Role::kFfnNorm, TALLY_LAYER "ln_2.weight"},       {Role::kFfnNormBias, TALLY_LAYER "ln_2.bias"},
    {Role::kQ, TALLY_QKV "weight", Storage::kPlain, QInTurn}, {Role::kQBias, TALLY_QKV "bias", Storage::kPlain, QInTurn},
    {Role::kK, TALLY_QKV "weight", Storage::kPlain, KInTurn}, {Role::kKBias, TALLY_QKV "bias", Storage::kPlain, KInTurn},
    {Role::kV, TALLY_QKV "weight", Storage::kPlain, VInTurn}, {Role::kVBias, TALLY_QKV "bias", Storage::kPlain, VInTurn},
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
               .tied = true,
               .hf_eps = "layer_norm_epsilon",
               .hf_layers = "n_layer",
               .hf_width = "n_embd",
               .hf_heads = "n_head",
               .hf_context = "n_positions"});
  r.all.ffn.width = c.Int("n_inner", 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm = NormKind::kLayer;
  r.all.network.gated = false;
  r.all.ffn.bias = true;
  r.all.network.activation = ReadGelu(c, "activation_function", "gelu");
  const bool bias = c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  if (r.all.attention.n_kv_heads != r.all.attention.n_heads) c.Fail("as many key-value heads as heads are expected");
  c.ExpectBool("scale_attn_weights", true);
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) c.ExpectBool(key, false);
}

}  // namespace

extern constinit const Family kMiniGptFamily = {"mini-gpt", {}, {}, kHfTypes, Read, kHfNames};

}  // namespace tally
