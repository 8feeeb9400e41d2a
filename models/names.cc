// SPDX-License-Identifier: Apache-2.0
#include "models/binding.h"
#include "models/gate_up_rows.h"

namespace tally {
namespace {

#define TALLY_ATTN "~model.layers.#.self_attn."
#define TALLY_MLP "~model.layers.#.mlp."
// clang-format off
constexpr RoleName kHf[] = {
    {Role::kTokenEmbedding, "~model.embed_tokens.weight"},
    {Role::kOutputNorm, "~model.norm.weight"},
    {Role::kHead, "~lm_head.weight"},                   {Role::kHead, "lm_head.weight"},
    {Role::kAttnNorm, "~model.layers.#.input_layernorm.weight"},
    {Role::kFfnNorm, "~model.layers.#.post_attention_layernorm.weight"},
    {Role::kQ, TALLY_ATTN "q_proj.weight"},             {Role::kQBias, TALLY_ATTN "q_proj.bias"},
    {Role::kK, TALLY_ATTN "k_proj.weight"},             {Role::kKBias, TALLY_ATTN "k_proj.bias"},
    {Role::kV, TALLY_ATTN "v_proj.weight"},             {Role::kVBias, TALLY_ATTN "v_proj.bias"},
    {Role::kO, TALLY_ATTN "o_proj.weight"},             {Role::kOBias, TALLY_ATTN "o_proj.bias"},
    {Role::kQNorm, TALLY_ATTN "q_norm.weight"},         {Role::kKNorm, TALLY_ATTN "k_norm.weight"},
    {Role::kGate, TALLY_MLP "gate_proj.weight"},        {Role::kGateBias, TALLY_MLP "gate_proj.bias"},
    {Role::kUp, TALLY_MLP "up_proj.weight"},            {Role::kUpBias, TALLY_MLP "up_proj.bias"},
    {Role::kDown, TALLY_MLP "down_proj.weight"},        {Role::kDownBias, TALLY_MLP "down_proj.bias"},
    {Role::kRouter, TALLY_MLP "gate.weight"},
    {Role::kExpertGate, TALLY_MLP "experts.*.gate_proj.weight"},
    {Role::kExpertUp, TALLY_MLP "experts.*.up_proj.weight"},
    {Role::kExpertDown, TALLY_MLP "experts.*.down_proj.weight"},
    {Role::kNextEmbeddingNorm, "~model.layers.#.enorm.weight"},
    {Role::kNextHiddenNorm, "~model.layers.#.hnorm.weight"},
    {Role::kNextProj, "~model.layers.#.eh_proj.weight"},
    {Role::kNextHeadNorm, "~model.layers.#.shared_head.norm.weight"},
};
// llama.cpp (src/llama-graph.cpp, build_moe_ffn): gate's rows first.
constexpr RoleName kGguf[] = {
    {Role::kExpertGate, "blk.#.ffn_gate_up_exps.weight", Storage::kPlain, GateRows<ExpertWidth>},
    {Role::kExpertUp, "blk.#.ffn_gate_up_exps.weight", Storage::kPlain, UpRows<ExpertWidth>},
    {Role::kExpertGateBias, "blk.#.ffn_gate_up_exps.bias", Storage::kPlain, GateRows<ExpertWidth>},
    {Role::kExpertUpBias, "blk.#.ffn_gate_up_exps.bias", Storage::kPlain, UpRows<ExpertWidth>},
};
// clang-format on
#undef TALLY_MLP
#undef TALLY_ATTN

}  // namespace

std::span<const RoleName> HfDecoderNames() { return kHf; }
std::span<const RoleName> GgufOtherNames() { return kGguf; }

}  // namespace tally
