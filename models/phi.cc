// SPDX-License-Identifier: Apache-2.0
// Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al., Li et al., Javaheripi et al. 2023): LayerNorm; both blocks read the same norm of
// the layer's input (parallel residual); rope of a part of each head; tanh-GELU; biases everywhere, in the head too. Old GGUF
// files have q, k and v as one matrix.
#include "models/family.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"phi2"};
constexpr std::string_view kHf[] = {"PhiForCausalLM"};
constexpr std::string_view kHfTypes[] = {"phi"};

#define TALLY_LAYER "model.layers.#."
// clang-format off
constexpr RoleName kHfNames[] = {
    {Role::kHeadBias, "lm_head.bias"},
    {Role::kOutputNorm, "model.final_layernorm.weight"},   {Role::kOutputNormBias, "model.final_layernorm.bias"},
    {Role::kAttnNormBias, TALLY_LAYER "input_layernorm.bias"},
    {Role::kO, TALLY_LAYER "self_attn.dense.weight"},      {Role::kOBias, TALLY_LAYER "self_attn.dense.bias"},
    {Role::kUp, TALLY_LAYER "mlp.fc1.weight"},             {Role::kUpBias, TALLY_LAYER "mlp.fc1.bias"},
    {Role::kDown, TALLY_LAYER "mlp.fc2.weight"},           {Role::kDownBias, TALLY_LAYER "mlp.fc2.bias"},
};
constexpr std::string_view kQkv = "blk.#.attn_qkv.weight", kQkvBias = "blk.#.attn_qkv.bias";
constexpr RoleName kGgufNames[] = {
    {Role::kQ, "blk.#.attn_q.weight"},            {Role::kQBias, "blk.#.attn_q.bias"},
    {Role::kK, "blk.#.attn_k.weight"},            {Role::kKBias, "blk.#.attn_k.bias"},
    {Role::kV, "blk.#.attn_v.weight"},            {Role::kVBias, "blk.#.attn_v.bias"},
    {Role::kQ, kQkv, Storage::kPlain, QInTurn}, {Role::kQBias, kQkvBias, Storage::kPlain, QInTurn},
    {Role::kK, kQkv, Storage::kPlain, KInTurn}, {Role::kKBias, kQkvBias, Storage::kPlain, KInTurn},
    {Role::kV, kQkv, Storage::kPlain, VInTurn}, {Role::kVBias, kQkvBias, Storage::kPlain, VInTurn},
};
// clang-format on
#undef TALLY_LAYER

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 2048,
               .vocab = 51200,
               .rotated = 0.5,
               .hf_eps = "layer_norm_eps",
               .gguf_eps = "attention.layer_norm_epsilon"});
  ReadFeedForwardWidth(c, r);
  r.norm = NormKind::kLayer;
  r.all.residual.kind = Residual::kParallelOneNorm;
  r.all.network.gated = false;
  r.all.network.activation = ReadGelu(c, "hidden_act", "gelu_new");
  SetBiases(r, true, true);
  r.all.ffn.bias = r.head_bias = true;
  c.ExpectBool("qk_layernorm", false);
}

}  // namespace

extern constinit const Family kPhiFamily = {"phi", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
