// SPDX-License-Identifier: Apache-2.0
// BLOOM (BigScience 2022): a LayerNorm of the embedding and before each block, linear biases of the scores in place of positions
// (ALiBi), tanh-GELU, head tied to the embedding. Hugging Face stores q, k and v of a head one after another, GGUF all of q, then
// k, then v. The makers' checkpoints carry no prefix; those that transformers saves have "transformer.".
#include "models/family.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"bloom"};
constexpr std::string_view kHf[] = {"BloomForCausalLM", "BloomModel"};
constexpr std::string_view kHfTypes[] = {"bloom"};

#define TALLY_LAYER "~h.#."
#define TALLY_QKV TALLY_LAYER "self_attention.query_key_value."
// clang-format off
constexpr RoleName kHfNames[] = {  // ~: the optional prefix "transformer."
    {Role::kTokenEmbedding, "~word_embeddings.weight"},         {Role::kHead, "lm_head.weight"},
    {Role::kEmbeddingNorm, "~word_embeddings_layernorm.weight"},
    {Role::kEmbeddingNormBias, "~word_embeddings_layernorm.bias"},
    {Role::kOutputNorm, "~ln_f.weight"},                        {Role::kOutputNormBias, "~ln_f.bias"},
    {Role::kAttnNorm, TALLY_LAYER "input_layernorm.weight"},    {Role::kAttnNormBias, TALLY_LAYER "input_layernorm.bias"},
    {Role::kFfnNorm, TALLY_LAYER "post_attention_layernorm.weight"},
    {Role::kFfnNormBias, TALLY_LAYER "post_attention_layernorm.bias"},
    {Role::kQ, TALLY_QKV "weight", Storage::kPlain, QOfGroups}, {Role::kQBias, TALLY_QKV "bias", Storage::kPlain, QOfGroups},
    {Role::kK, TALLY_QKV "weight", Storage::kPlain, KOfGroups}, {Role::kKBias, TALLY_QKV "bias", Storage::kPlain, KOfGroups},
    {Role::kV, TALLY_QKV "weight", Storage::kPlain, VOfGroups}, {Role::kVBias, TALLY_QKV "bias", Storage::kPlain, VOfGroups},
    {Role::kO, TALLY_LAYER "self_attention.dense.weight"},      {Role::kOBias, TALLY_LAYER "self_attention.dense.bias"},
    {Role::kUp, TALLY_LAYER "mlp.dense_h_to_4h.weight"},        {Role::kUpBias, TALLY_LAYER "mlp.dense_h_to_4h.bias"},
    {Role::kDown, TALLY_LAYER "mlp.dense_4h_to_h.weight"},      {Role::kDownBias, TALLY_LAYER "mlp.dense_4h_to_h.bias"},
};
// clang-format on
#undef TALLY_QKV
#undef TALLY_LAYER

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  FindPrefix(c, "transformer.");
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 2048,  // that of all published models; most leave it out
               .vocab = 250880,
               .tied = true,
               .hf_eps = "layer_norm_epsilon",
               .gguf_eps = "attention.layer_norm_epsilon",
               .rope = false,
               .hf_layers = "n_layer|num_hidden_layers",
               .hf_width = "n_embed|hidden_size",
               .hf_heads = "n_head|num_attention_heads",
               .hf_context = "seq_length"});
  r.all.ffn.width = c.Int(c.Pick("feed_forward_length", "n_inner"), 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm = NormKind::kLayer;
  r.embedding_norm = r.all.ffn.bias = true;
  SetBiases(r, true, true);
  r.alibi_bias = 8;
  constexpr std::string_view kAlibi = "attention.max_alibi_bias";
  if (c.gguf() && c.Positive(kAlibi, 8) != 8) c.Unsupported(kAlibi, "other than 8");
  r.all.network.gated = false;
  r.all.network.activation = ActivationKind::kGeluTanh;
  if (r.all.attention.n_kv_heads != r.all.attention.n_heads) c.Fail("as many key-value heads as heads are expected");
  c.ExpectBool("apply_residual_connection_post_layernorm", false);
}

}  // namespace

extern constinit const Family kBloomFamily = {"bloom", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufFusedQkv};

}  // namespace tally
