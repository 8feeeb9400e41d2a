#include "engine/recipe/roles.h"

namespace tally {
namespace {

using Kind = WeightInfo::Kind;
constexpr bool kMatrix = false, kVectorRole = true;

// In the order of enum Role.
constexpr RoleFacts kFacts[] = {
    {"token_embd", Component::kEmbedding, kMatrix, Kind::kEmbedding},
    {"position_embd", Component::kPositionEmbedding, kMatrix, Kind::kPosition},
    {"output_norm", Component::kOutputNorm, kVectorRole, Kind::kBlock},
    {"output_norm.bias", Component::kOutputNorm, kVectorRole, Kind::kBlock},
    {"output", Component::kHead, kMatrix, Kind::kHead},
    {"output.bias", Component::kHead, kVectorRole, Kind::kHead},
    {"rope_freqs", Component::kRope, kVectorRole, Kind::kBlock},
    {"attn_norm", Component::kAttnNorm, kVectorRole, Kind::kBlock},
    {"attn_norm.bias", Component::kAttnNorm, kVectorRole, Kind::kBlock},
    {"attn_qkv", Component::kAttnQkv, kMatrix, Kind::kBlock},
    {"attn_qkv.bias", Component::kAttnQkv, kVectorRole, Kind::kBlock},
    {"attn_q", Component::kAttnQ, kMatrix, Kind::kBlock},
    {"attn_q.bias", Component::kAttnQ, kVectorRole, Kind::kBlock},
    {"attn_k", Component::kAttnK, kMatrix, Kind::kBlock},
    {"attn_k.bias", Component::kAttnK, kVectorRole, Kind::kBlock},
    {"attn_v", Component::kAttnV, kMatrix, Kind::kBlock},
    {"attn_v.bias", Component::kAttnV, kVectorRole, Kind::kBlock},
    {"attn_q_norm", Component::kAttnQNorm, kVectorRole, Kind::kBlock},
    {"attn_k_norm", Component::kAttnKNorm, kVectorRole, Kind::kBlock},
    {"attn_sinks", Component::kAttention, kVectorRole, Kind::kBlock},
    {"attn_output", Component::kAttnOutput, kMatrix, Kind::kBlock},
    {"attn_output.bias", Component::kAttnOutput, kVectorRole, Kind::kBlock},
    {"ffn_norm", Component::kFfnNorm, kVectorRole, Kind::kBlock},
    {"ffn_norm.bias", Component::kFfnNorm, kVectorRole, Kind::kBlock},
    {"ffn_gate_inp", Component::kRouter, kMatrix, Kind::kBlock},
    {"ffn_gate_inp.bias", Component::kRouter, kVectorRole, Kind::kBlock},
    {"ffn_gate", Component::kFfnGateUp, kMatrix, Kind::kBlock},
    {"ffn_gate.bias", Component::kFfnGateUp, kVectorRole, Kind::kBlock},
    {"ffn_up", Component::kFfnGateUp, kMatrix, Kind::kBlock},
    {"ffn_up.bias", Component::kFfnGateUp, kVectorRole, Kind::kBlock},
    {"ffn_down", Component::kFfnDown, kMatrix, Kind::kBlock},
    {"ffn_down.bias", Component::kFfnDown, kVectorRole, Kind::kBlock},
    {"ffn_gate_exps", Component::kFfnGateUp, kMatrix, Kind::kBlock},
    {"ffn_gate_exps.bias", Component::kFfnGateUp, kVectorRole, Kind::kBlock},
    {"ffn_up_exps", Component::kFfnGateUp, kMatrix, Kind::kBlock},
    {"ffn_up_exps.bias", Component::kFfnGateUp, kVectorRole, Kind::kBlock},
    {"ffn_down_exps", Component::kFfnDown, kMatrix, Kind::kBlock},
    {"ffn_down_exps.bias", Component::kFfnDown, kVectorRole, Kind::kBlock},
};
static_assert(std::size(kFacts) == static_cast<size_t>(Role::kExpertDownBias) + 1);

}  // namespace

const RoleFacts& FactsOf(Role role) { return kFacts[static_cast<size_t>(role)]; }

std::string WeightName(Role role, int32_t layer) {
  const std::string name(FactsOf(role).name);
  return layer < 0 ? name : "blk." + std::to_string(layer) + "." + name;
}

}  // namespace tally
