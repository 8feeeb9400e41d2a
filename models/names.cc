#include "models/names.h"

#include <utility>

namespace tally {
namespace {

// clang-format off
constexpr RoleName kGguf[] = {
    {Role::kTokenEmbedding, "token_embd.weight"},       {Role::kPositionEmbedding, "position_embd.weight"},
    {Role::kOutputNorm, "output_norm.weight"},          {Role::kOutputNormBias, "output_norm.bias"},
    {Role::kHead, "output.weight"},                     {Role::kHeadBias, "output.bias"},
    {Role::kRopeFactors, "rope_freqs.weight"},
    {Role::kAttnNorm, "blk.#.attn_norm.weight"},        {Role::kAttnNormBias, "blk.#.attn_norm.bias"},
    {Role::kQkv, "blk.#.attn_qkv.weight"},              {Role::kQkvBias, "blk.#.attn_qkv.bias"},
    {Role::kQ, "blk.#.attn_q.weight"},                  {Role::kQBias, "blk.#.attn_q.bias"},
    {Role::kK, "blk.#.attn_k.weight"},                  {Role::kKBias, "blk.#.attn_k.bias"},
    {Role::kV, "blk.#.attn_v.weight"},                  {Role::kVBias, "blk.#.attn_v.bias"},
    {Role::kQNorm, "blk.#.attn_q_norm.weight"},         {Role::kKNorm, "blk.#.attn_k_norm.weight"},
    {Role::kSinks, "blk.#.attn_sinks.weight"},
    {Role::kO, "blk.#.attn_output.weight"},             {Role::kOBias, "blk.#.attn_output.bias"},
    {Role::kFfnNorm, "blk.#.ffn_norm.weight"},          {Role::kFfnNormBias, "blk.#.ffn_norm.bias"},
    {Role::kRouter, "blk.#.ffn_gate_inp.weight"},       {Role::kRouterBias, "blk.#.ffn_gate_inp.bias"},
    {Role::kGate, "blk.#.ffn_gate.weight"},             {Role::kGateBias, "blk.#.ffn_gate.bias"},
    {Role::kUp, "blk.#.ffn_up.weight"},                 {Role::kUpBias, "blk.#.ffn_up.bias"},
    {Role::kDown, "blk.#.ffn_down.weight"},             {Role::kDownBias, "blk.#.ffn_down.bias"},
    {Role::kExpertGate, "blk.#.ffn_gate_exps.weight"},  {Role::kExpertGateBias, "blk.#.ffn_gate_exps.bias"},
    {Role::kExpertUp, "blk.#.ffn_up_exps.weight"},      {Role::kExpertUpBias, "blk.#.ffn_up_exps.bias"},
    {Role::kExpertDown, "blk.#.ffn_down_exps.weight"},  {Role::kExpertDownBias, "blk.#.ffn_down_exps.bias"},
};

#define TALLY_ATTN "model.layers.#.self_attn."
#define TALLY_MLP "model.layers.#.mlp."
constexpr RoleName kHf[] = {
    {Role::kTokenEmbedding, "model.embed_tokens.weight"},
    {Role::kOutputNorm, "model.norm.weight"},
    {Role::kHead, "lm_head.weight"},
    {Role::kAttnNorm, "model.layers.#.input_layernorm.weight"},
    {Role::kFfnNorm, "model.layers.#.post_attention_layernorm.weight"},
    {Role::kQ, TALLY_ATTN "q_proj.weight"},             {Role::kQBias, TALLY_ATTN "q_proj.bias"},
    {Role::kK, TALLY_ATTN "k_proj.weight"},             {Role::kKBias, TALLY_ATTN "k_proj.bias"},
    {Role::kV, TALLY_ATTN "v_proj.weight"},             {Role::kVBias, TALLY_ATTN "v_proj.bias"},
    {Role::kO, TALLY_ATTN "o_proj.weight"},             {Role::kOBias, TALLY_ATTN "o_proj.bias"},
    {Role::kQNorm, TALLY_ATTN "q_norm.weight"},         {Role::kKNorm, TALLY_ATTN "k_norm.weight"},
    {Role::kGate, TALLY_MLP "gate_proj.weight"},        {Role::kGateBias, TALLY_MLP "gate_proj.bias"},
    {Role::kUp, TALLY_MLP "up_proj.weight"},            {Role::kUpBias, TALLY_MLP "up_proj.bias"},
    {Role::kDown, TALLY_MLP "down_proj.weight"},        {Role::kDownBias, TALLY_MLP "down_proj.bias"},
};
#undef TALLY_MLP
#undef TALLY_ATTN
// clang-format on

}  // namespace

std::span<const RoleName> GgufNames() { return kGguf; }
std::span<const RoleName> HfDecoderNames() { return kHf; }

Result<ModelSpec> Finish(Config& config, ModelSpec spec, std::initializer_list<std::span<const RoleName>> tables,
                         std::string_view prefix) {
  ReadGeneration(config, spec.recipe);
  TALLY_RETURN_IF_ERROR(config.status());
  TALLY_RETURN_IF_ERROR(BindRoles(tables, spec, prefix));
  return spec;
}

}  // namespace tally
