// SPDX-License-Identifier: Apache-2.0
// Falcon (Almazrouei et al. 2023): LayerNorm, rope, exact GELU, both blocks on the layer's input (parallel residual) with one norm or two,
// one key-value head (7B) or groups (40B and 180B, the "new decoder architecture"). Sequential blocks, a key-value head for each head, and
// biases are options. Hugging Face stores the queries of a key-value head, then its key and its value; GGUF all of q, then k, then v. If
// there are two norms, GGUF calls the feed-forward's attn_norm. GGUF does not name the activation: the published models' is the exact GELU.
// ALiBi is refused: the published code rounds its biases to bf16.
#include "models/family.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"falcon"};
constexpr std::string_view kHf[] = {"FalconForCausalLM"};
constexpr std::string_view kHfTypes[] = {"falcon"};

#define TALLY_LAYER "transformer.h.#."
#define TALLY_QKV TALLY_LAYER "self_attention.query_key_value."
// clang-format off
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "transformer.word_embeddings.weight"}, {Role::kHead, "lm_head.weight"},
    {Role::kOutputNorm, "transformer.ln_f.weight"},             {Role::kOutputNormBias, "transformer.ln_f.bias"},
    {Role::kAttnNorm, TALLY_LAYER "input_layernorm.weight"},    {Role::kAttnNormBias, TALLY_LAYER "input_layernorm.bias"},
    {Role::kAttnNorm, TALLY_LAYER "ln_attn.weight"},            {Role::kAttnNormBias, TALLY_LAYER "ln_attn.bias"},
    {Role::kFfnNorm, TALLY_LAYER "post_attention_layernorm.weight"},
    {Role::kFfnNormBias, TALLY_LAYER "post_attention_layernorm.bias"},
    {Role::kFfnNorm, TALLY_LAYER "ln_mlp.weight"},              {Role::kFfnNormBias, TALLY_LAYER "ln_mlp.bias"},
    {Role::kQ, TALLY_QKV "weight", Storage::kPlain, QOfGroups}, {Role::kQBias, TALLY_QKV "bias", Storage::kPlain, QOfGroups},
    {Role::kK, TALLY_QKV "weight", Storage::kPlain, KOfGroups}, {Role::kKBias, TALLY_QKV "bias", Storage::kPlain, KOfGroups},
    {Role::kV, TALLY_QKV "weight", Storage::kPlain, VOfGroups}, {Role::kVBias, TALLY_QKV "bias", Storage::kPlain, VOfGroups},
    {Role::kO, TALLY_LAYER "self_attention.dense.weight"},      {Role::kOBias, TALLY_LAYER "self_attention.dense.bias"},
    {Role::kUp, TALLY_LAYER "mlp.dense_h_to_4h.weight"},        {Role::kUpBias, TALLY_LAYER "mlp.dense_h_to_4h.bias"},
    {Role::kDown, TALLY_LAYER "mlp.dense_4h_to_h.weight"},      {Role::kDownBias, TALLY_LAYER "mlp.dense_4h_to_h.bias"},
};
constexpr std::string_view kQkv = "blk.#.attn_qkv.weight", kQkvBias = "blk.#.attn_qkv.bias";
constexpr RoleName kGgufNames[] = {
    {Role::kAttnNorm, "blk.#.attn_norm_2.weight"},              {Role::kAttnNormBias, "blk.#.attn_norm_2.bias"},
    {Role::kAttnNorm, "blk.#.attn_norm.weight"},                {Role::kAttnNormBias, "blk.#.attn_norm.bias"},
    {Role::kFfnNorm, "blk.#.attn_norm.weight"},                 {Role::kFfnNormBias, "blk.#.attn_norm.bias"},
    {Role::kQ, kQkv, Storage::kPlain, QInTurn}, {Role::kQBias, kQkvBias, Storage::kPlain, QInTurn},
    {Role::kK, kQkv, Storage::kPlain, KInTurn}, {Role::kKBias, kQkvBias, Storage::kPlain, KInTurn},
    {Role::kV, kQkv, Storage::kPlain, VInTurn}, {Role::kVBias, kQkvBias, Storage::kPlain, VInTurn},
};
// clang-format on
#undef TALLY_QKV
#undef TALLY_LAYER

// The second norm of a GGUF file with two norms must be in every layer: if it is missing, the first has its name.
void ExpectSecondNorms(Config& c, const Recipe& r) {
  for (int32_t i = 0; i < r.n_layers; ++i) {
    for (const char* name : {"blk.#.attn_norm_2.weight", "blk.#.attn_norm_2.bias"}) {
      const std::string full = ExpandName(name, i, "");
      if (!IsStored(c.inventory(), full)) c.Fail("tensor " + full + " is missing (another layer has it)");
    }
  }
}

// GGUF has no key of the residual: its files are parallel, and the names of the norms tell how many there are.
void ReadBlocks(Config& c, Recipe& r) {
  const bool grouped = c.Bool("new_decoder_architecture", false), parallel = c.Bool("parallel_attn", true);
  const bool two_stored =
      AnyLayerHas(c.inventory(), r, "blk.#.attn_norm_2.weight") && AnyLayerHas(c.inventory(), r, "blk.#.attn_norm.weight");
  const bool two = c.gguf() ? two_stored : c.Int("num_ln_in_parallel_attn", 1, 2, grouped ? 2 : 1) == 2;
  r.all.residual.kind = !parallel ? Residual::kSequential : two ? Residual::kParallel : Residual::kParallelOneNorm;
  if (c.gguf() && two) ExpectSecondNorms(c, r);
  if (c.gguf()) return;
  if (grouped && !parallel) c.Unsupported("parallel_attn", "false (with new_decoder_architecture)");
  if (!grouped && two) c.Unsupported("num_ln_in_parallel_attn", "2 (without new_decoder_architecture)");
  const bool single = !grouped && c.Bool("multi_query", true);
  r.all.attention.n_kv_heads = single ? 1 : c.Int("num_kv_heads", 1, kMaxHeads, r.all.attention.n_heads);
  if (!grouped && !single && r.all.attention.n_kv_heads != r.all.attention.n_heads) {
    c.Unsupported("num_kv_heads", "other than num_attention_heads (without new_decoder_architecture)");
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 2048,
               .vocab = 65024,
               .tied = true,
               .hf_eps = "layer_norm_epsilon",
               .gguf_eps = "attention.layer_norm_epsilon",
               .hf_width = "n_embed|hidden_size"});
  ReadBlocks(c, r);
  r.all.ffn.width = c.Int(c.Pick("feed_forward_length", "ffn_hidden_size"), 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm = NormKind::kLayer;
  r.all.network.gated = false;
  r.all.network.activation = ReadGelu(c, "activation", "gelu");
  r.all.ffn.bias = c.Bool("bias", false);
  SetBiases(r, r.all.ffn.bias, r.all.ffn.bias);
  for (const char* key : {"alibi", "apply_residual_connection_post_layernorm"}) c.ExpectBool(key, false);
}

}  // namespace

extern constinit const Family kFalconFamily = {"falcon", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
