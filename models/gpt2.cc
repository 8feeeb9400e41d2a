// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019): LayerNorm before each block, learned positions, fused q, k, v, tanh-GELU, head
// tied to the embedding. Hugging Face stores the Conv1D matrices as [in, out]; the release files carry no
// prefix and keep the causal masks.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"gpt2"};
constexpr std::string_view kHf[] = {"GPT2LMHeadModel"};
constexpr std::string_view kHfTypes[] = {"gpt2"};

// clang-format off
constexpr RoleName kHfNames[] = {  // ~: the optional prefix "transformer."
    {Role::kTokenEmbedding, "~wte.weight"},   {Role::kPositionEmbedding, "~wpe.weight"},
    {Role::kOutputNorm, "~ln_f.weight"},      {Role::kOutputNormBias, "~ln_f.bias"},
    {Role::kHead, "lm_head.weight"},
    {Role::kAttnNorm, "~h.#.ln_1.weight"},    {Role::kAttnNormBias, "~h.#.ln_1.bias"},
    {Role::kFfnNorm, "~h.#.ln_2.weight"},     {Role::kFfnNormBias, "~h.#.ln_2.bias"},
    {Role::kQkvBias, "~h.#.attn.c_attn.bias"}, {Role::kQkv, "~h.#.attn.c_attn.weight", Storage::kTransposed},
    {Role::kOBias, "~h.#.attn.c_proj.bias"},   {Role::kO, "~h.#.attn.c_proj.weight", Storage::kTransposed},
    {Role::kUpBias, "~h.#.mlp.c_fc.bias"},     {Role::kUp, "~h.#.mlp.c_fc.weight", Storage::kTransposed},
    {Role::kDownBias, "~h.#.mlp.c_proj.bias"}, {Role::kDown, "~h.#.mlp.c_proj.weight", Storage::kTransposed},
};
// clang-format on

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  r.n_layers = c.Int(c.Pick("block_count", "n_layer|num_hidden_layers"), 1, kMaxLayers);
  r.d_model = c.Int(c.Pick("embedding_length", "n_embd|hidden_size"), 1, kMaxWidth);
  r.all.attention.n_heads = r.all.attention.n_kv_heads =
      c.Int(c.Pick("attention.head_count", "n_head|num_attention_heads"), 1, kMaxHeads);
  constexpr std::string_view kPositions = "n_positions|max_position_embeddings|n_ctx";
  r.context = c.gguf() ? c.Int("context_length", 1, kMaxContext) : c.Int(kPositions, 1, kMaxContext, 1024);
  r.all.ffn.width = c.Int(c.Pick("feed_forward_length", "n_inner"), 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm_eps = static_cast<float>(c.gguf() ? c.Positive("attention.layer_norm_epsilon") : c.Positive("layer_norm_epsilon", 1e-5));
  r.vocab = c.gguf() ? GgufVocabulary(c) : c.Int("vocab_size", 1, kMaxVocab, 50257);
  r.norm = NormKind::kLayer;
  r.learned_positions = r.all.attention.fused_qkv = r.all.ffn.bias = true;
  SetBiases(r, true, true);  // a file without them is not whole, and is refused
  r.all.network.gated = false;
  r.all.network.activation = ReadGelu(c, "activation_function", "gelu_new");
  r.all.attention.head_dim = EvenHeadDim(c, r);
  r.layers.resize(static_cast<size_t>(r.n_layers));
  SetAttentionScale(r, UsualAttentionScale(r));
  FindPrefix(c, "transformer.");
  ReadTying(c, true, r);
  if (c.gguf()) return;
  c.ExpectBool("add_cross_attention", false);
  const bool scaled = c.Bool("scale_attn_weights", true), by_layer = c.Bool("scale_attn_by_inverse_layer_idx", false);
  for (size_t i = 0; i < r.layers.size(); ++i) {
    float& scale = r.layers[i].attention.scale;
    if (!scaled) scale = 1;
    if (by_layer) scale /= static_cast<float>(i + 1);
  }
}

}  // namespace

extern constinit const Family kGpt2Family = {"gpt2", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
