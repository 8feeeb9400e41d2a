// SPDX-License-Identifier: Apache-2.0
// OPT (Zhang et al. 2022) and Galactica (Taylor et al. 2022): LayerNorm before each block, learned positions of which the first
// two rows belong to no position, ReLU (Galactica: GELU), head tied to the embedding. Some published checkpoints carry no prefix.
// OPT-350M has the norms after each block is added, none before the head, and a narrower embedding, which matrices widen and narrow. GGUF
// has no such model.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"OPTForCausalLM"};
constexpr std::string_view kHfTypes[] = {"opt"};

#define TALLY_LAYER "~decoder.layers.#."
#define TALLY_ATTN TALLY_LAYER "self_attn."
// clang-format off
constexpr RoleName kHfNames[] = {  // ~: the optional prefix "model."
    {Role::kTokenEmbedding, "~decoder.embed_tokens.weight"},
    {Role::kPositionEmbedding, "~decoder.embed_positions.weight"},
    {Role::kHead, "lm_head.weight"},
    {Role::kEmbeddingProj, "~decoder.project_in.weight"}, {Role::kHeadProj, "~decoder.project_out.weight"},
    {Role::kOutputNorm, "~decoder.final_layer_norm.weight"}, {Role::kOutputNormBias, "~decoder.final_layer_norm.bias"},
    {Role::kAttnNorm, TALLY_LAYER "self_attn_layer_norm.weight"},
    {Role::kAttnNormBias, TALLY_LAYER "self_attn_layer_norm.bias"},
    {Role::kFfnNorm, TALLY_LAYER "final_layer_norm.weight"}, {Role::kFfnNormBias, TALLY_LAYER "final_layer_norm.bias"},
    {Role::kQ, TALLY_ATTN "q_proj.weight"},            {Role::kQBias, TALLY_ATTN "q_proj.bias"},
    {Role::kK, TALLY_ATTN "k_proj.weight"},            {Role::kKBias, TALLY_ATTN "k_proj.bias"},
    {Role::kV, TALLY_ATTN "v_proj.weight"},            {Role::kVBias, TALLY_ATTN "v_proj.bias"},
    {Role::kO, TALLY_ATTN "out_proj.weight"},          {Role::kOBias, TALLY_ATTN "out_proj.bias"},
    {Role::kUp, TALLY_LAYER "fc1.weight"},             {Role::kUpBias, TALLY_LAYER "fc1.bias"},
    {Role::kDown, TALLY_LAYER "fc2.weight"},           {Role::kDownBias, TALLY_LAYER "fc2.bias"},
};
// clang-format on
#undef TALLY_ATTN
#undef TALLY_LAYER

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  FindPrefix(c, "model.");
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .context = 2048, .vocab = 50272, .tied = true, .rope = false});
  r.all.ffn.width = c.Int("ffn_dim", 1, kMaxWidth, 3072);
  r.norm = NormKind::kLayer;
  r.learned_positions = true;
  r.first_position = 2;
  r.all.network.gated = false;
  const bool relu = c.String("activation_function", "relu") == "relu";
  r.all.network.activation = relu ? ActivationKind::kRelu : ReadGelu(c, "activation_function", "gelu");
  r.all.ffn.bias = c.Bool("enable_bias", true);
  SetBiases(r, r.all.ffn.bias, r.all.ffn.bias);
  const int32_t width = c.Int("word_embed_proj_dim", 1, kMaxWidth, r.d_model);
  r.embedding_width = width == r.d_model ? 0 : width;
  r.all.residual.stream_norms = !c.Bool("do_layer_norm_before", true);
  r.output_norm = !r.all.residual.stream_norms && !c.Bool("_remove_final_layer_norm", false);
  c.ExpectBool("layer_norm_elementwise_affine", true);
}

}  // namespace

extern constinit const Family kOptFamily = {"opt", {}, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
