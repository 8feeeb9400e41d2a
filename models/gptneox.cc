// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX (Black et al. 2022) and Pythia: LayerNorm, rope of a part of each head, and, in most, both blocks on the layer's input
// (parallel residual). Hugging Face stores q, k and v of a head one after another, GGUF all of q, then k, then v. GGUF does not name the
// activation: the published models' is the exact GELU.
#include "models/family.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"gptneox"};
constexpr std::string_view kHf[] = {"GPTNeoXForCausalLM"};
constexpr std::string_view kHfTypes[] = {"gpt_neox"};

#define TALLY_LAYER "gpt_neox.layers.#."
#define TALLY_QKV TALLY_LAYER "attention.query_key_value."
// clang-format off
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "gpt_neox.embed_in.weight"},  {Role::kHead, "embed_out.weight"},
    {Role::kOutputNorm, "gpt_neox.final_layer_norm.weight"}, {Role::kOutputNormBias, "gpt_neox.final_layer_norm.bias"},
    {Role::kAttnNorm, TALLY_LAYER "input_layernorm.weight"}, {Role::kAttnNormBias, TALLY_LAYER "input_layernorm.bias"},
    {Role::kFfnNorm, TALLY_LAYER "post_attention_layernorm.weight"},
    {Role::kFfnNormBias, TALLY_LAYER "post_attention_layernorm.bias"},
    {Role::kQ, TALLY_QKV "weight", Storage::kPlain, QOfGroups}, {Role::kQBias, TALLY_QKV "bias", Storage::kPlain, QOfGroups},
    {Role::kK, TALLY_QKV "weight", Storage::kPlain, KOfGroups}, {Role::kKBias, TALLY_QKV "bias", Storage::kPlain, KOfGroups},
    {Role::kV, TALLY_QKV "weight", Storage::kPlain, VOfGroups}, {Role::kVBias, TALLY_QKV "bias", Storage::kPlain, VOfGroups},
    {Role::kO, TALLY_LAYER "attention.dense.weight"},     {Role::kOBias, TALLY_LAYER "attention.dense.bias"},
    {Role::kUp, TALLY_LAYER "mlp.dense_h_to_4h.weight"},  {Role::kUpBias, TALLY_LAYER "mlp.dense_h_to_4h.bias"},
    {Role::kDown, TALLY_LAYER "mlp.dense_4h_to_h.weight"}, {Role::kDownBias, TALLY_LAYER "mlp.dense_4h_to_h.bias"},
};
// clang-format on
#undef TALLY_QKV
#undef TALLY_LAYER

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 2048,
               .rotated = 0.25,
               .hf_eps = "layer_norm_eps",
               .gguf_eps = "attention.layer_norm_epsilon"});
  ReadFeedForwardWidth(c, r);
  r.norm = NormKind::kLayer;
  r.all.residual.kind = c.Bool("use_parallel_residual", true) ? Residual::kParallel : Residual::kSequential;
  r.all.network.gated = false;
  r.all.ffn.bias = true;
  r.all.network.activation = ReadGelu(c, "hidden_act", "gelu");
  const bool bias = c.gguf() || c.Bool("attention_bias", true);
  SetBiases(r, bias, bias);
  if (r.all.attention.n_kv_heads != r.all.attention.n_heads) c.Fail("as many key-value heads as heads are expected");
}

}  // namespace

extern constinit const Family kGptNeoxFamily = {"gpt-neox", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufFusedQkv};

}  // namespace tally
