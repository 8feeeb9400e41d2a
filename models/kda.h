// SPDX-License-Identifier: Apache-2.0
// Shared by families with Kimi Delta Attention (Kimi Team 2025, "Kimi Linear"): layers of it among layers of latent attention, sizes,
// names.
#pragma once

#include <functional>

#include "models/config.h"
#include "models/family.h"
#include "models/latent_rows.h"

namespace tally {

// The sizes of latent attention; before ReadDecoder.
void ReadKdaLatent(Config& config, Recipe& recipe);
// Which layers have the delta rule, and its sizes; after ReadDecoder. GGUF: layers without KV heads, as many heads as attention has.
// Hugging Face: `has_it` says of each layer, counted from 0; heads, their dimension and the taps of the convolutions have these keys.
void ReadKda(Config& config, Recipe& recipe, std::string_view heads_key, std::string_view dim_key, std::string_view taps_key,
             const std::function<bool(int32_t)>& has_it);

// Entries of tables of names.
// clang-format off
#define TALLY_KDA_GGUF                                                                     \
  {Role::kKB, "blk.#.attn_k_b.weight"},                                                    \
  {Role::kKB, "blk.#.attn_kv_b.weight", Storage::kTransposedHeads, LatentKeyRows},         \
  {Role::kVB, "blk.#.attn_v_b.weight"},                                                    \
  {Role::kVB, "blk.#.attn_kv_b.weight", Storage::kPlain, LatentValueRows},                 \
  {Role::kRouterBias, "blk.#.exp_probs_b.bias"},                                           \
  {Role::kDeltaQ, "blk.#.attn_q.weight"},                                                  \
  {Role::kDeltaK, "blk.#.attn_k.weight"},                                                  \
  {Role::kDeltaV, "blk.#.attn_v.weight"},                                                  \
  {Role::kDeltaConvQ, "blk.#.ssm_conv1d_q.weight", Storage::kConv1d},                      \
  {Role::kDeltaConvK, "blk.#.ssm_conv1d_k.weight", Storage::kConv1d},                      \
  {Role::kDeltaConvV, "blk.#.ssm_conv1d_v.weight", Storage::kConv1d},                      \
  {Role::kSsmA, "blk.#.ssm_a"},                                                            \
  {Role::kSsmOut, "blk.#.attn_output.weight"}
// `mixer`: what the names of a mixer's tensors begin with, `mlp` those of a mixture of experts.
#define TALLY_KDA_HF(mixer, mlp)                                                           \
  {Role::kQ, mixer "q_proj.weight"},                                                       \
  {Role::kQA, mixer "q_a_proj.weight"},                                                    \
  {Role::kQANorm, mixer "q_a_layernorm.weight"},                                           \
  {Role::kQB, mixer "q_b_proj.weight"},                                                    \
  {Role::kKvA, mixer "kv_a_proj_with_mqa.weight"},                                         \
  {Role::kKvANorm, mixer "kv_a_layernorm.weight"},                                         \
  {Role::kKB, mixer "kv_b_proj.weight", Storage::kTransposedHeads, LatentKeyRows},         \
  {Role::kVB, mixer "kv_b_proj.weight", Storage::kPlain, LatentValueRows},                 \
  {Role::kDeltaQ, mixer "q_proj.weight"},                                                  \
  {Role::kDeltaK, mixer "k_proj.weight"},                                                  \
  {Role::kDeltaV, mixer "v_proj.weight"},                                                  \
  {Role::kDeltaConvQ, mixer "q_conv1d.weight", Storage::kConv1d},                          \
  {Role::kDeltaConvK, mixer "k_conv1d.weight", Storage::kConv1d},                          \
  {Role::kDeltaConvV, mixer "v_conv1d.weight", Storage::kConv1d},                          \
  {Role::kDeltaBeta, mixer "b_proj.weight"},                                               \
  {Role::kSsmDtBias, mixer "dt_bias"},                                                     \
  {Role::kSsmNorm, mixer "o_norm.weight"},                                                 \
  {Role::kSsmOut, mixer "o_proj.weight"},                                                  \
  {Role::kRouter, mlp "gate.weight"},                                                      \
  {Role::kSharedExpertGate, mlp "shared_experts.gate_proj.weight"},                        \
  {Role::kSharedExpertUp, mlp "shared_experts.up_proj.weight"},                            \
  {Role::kSharedExpertDown, mlp "shared_experts.down_proj.weight"}
// clang-format on

}  // namespace tally
