// SPDX-License-Identifier: Apache-2.0
// GPT-J (Wang and Komatsuzaki 2021): LayerNorm; both blocks read the same norm of the layer's input (parallel residual); adjacent
// pairs of a part of each head turn; no biases in attention, one in the head. GGUF has no such model.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"GPTJForCausalLM"};
constexpr std::string_view kHfTypes[] = {"gptj"};

#define TALLY_LAYER "transformer.h.#."
// clang-format off
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "transformer.wte.weight"},
    {Role::kHead, "lm_head.weight"},                   {Role::kHeadBias, "lm_head.bias"},
    {Role::kOutputNorm, "transformer.ln_f.weight"},    {Role::kOutputNormBias, "transformer.ln_f.bias"},
    {Role::kAttnNorm, TALLY_LAYER "ln_1.weight"},      {Role::kAttnNormBias, TALLY_LAYER "ln_1.bias"},
    {Role::kQ, TALLY_LAYER "attn.q_proj.weight"},      {Role::kK, TALLY_LAYER "attn.k_proj.weight"},
    {Role::kV, TALLY_LAYER "attn.v_proj.weight"},      {Role::kO, TALLY_LAYER "attn.out_proj.weight"},
    {Role::kUp, TALLY_LAYER "mlp.fc_in.weight"},       {Role::kUpBias, TALLY_LAYER "mlp.fc_in.bias"},
    {Role::kDown, TALLY_LAYER "mlp.fc_out.weight"},    {Role::kDownBias, TALLY_LAYER "mlp.fc_out.bias"},
};
// clang-format on
#undef TALLY_LAYER

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 2048,
               .vocab = 50400,
               .hf_eps = "layer_norm_epsilon",
               .rope = false,
               .hf_layers = "n_layer|num_hidden_layers",
               .hf_width = "n_embd|hidden_size",
               .hf_heads = "n_head|num_attention_heads",
               .hf_context = "n_positions|max_position_embeddings"});
  r.all.ffn.width = c.Int("n_inner", 1, kMaxWidth, 4 * int64_t{r.d_model});
  r.norm = NormKind::kLayer;
  r.all.residual.kind = Residual::kParallelOneNorm;
  r.all.network.gated = false;
  r.all.ffn.bias = r.head_bias = true;
  r.all.network.activation = ReadGelu(c, "activation_function", "gelu_new");
  if (c.IsNull("rotary_dim")) c.Unsupported("rotary_dim", "null");
  r.rope = {.style = RopeStyle::kAdjacentPair, .dim = c.Int("rotary_dim", 2, kMaxHeads, 64), .scaling = {}};
  for (const char* key : {"rotary", "scale_attn_weights"}) c.ExpectBool(key, true);
}

}  // namespace

extern constinit const Family kGptJFamily = {"gpt-j", {}, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
