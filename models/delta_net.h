// SPDX-License-Identifier: Apache-2.0
// Shared by families with gated delta nets: hyper-parameters, names, and the rows of tensors that hold several matrices.
#pragma once

#include <algorithm>

#include "engine/recipe/model_spec.h"
#include "models/binding.h"
#include "models/config.h"

namespace tally {

// Which layers attend and which have the delta rule, the rule's sizes, and the gate of attention's output; after ReadDecoder, and before
// layers for multi-token prediction leave the recipe. Hugging Face: layer_types, or every full_attention_interval-th layer attends.
void ReadDeltaNet(Config& config, Recipe& recipe);
// A mixture of experts beside a shared one, which a gate of its own weighs.
void ReadDeltaNetExperts(Config& config, Recipe& recipe);

// Rows of attention's queries: for each head its query, then its gate.
inline RowMap QueriesOfGated(const Recipe& r) {
  const uint64_t d = static_cast<uint64_t>(r.all.attention.head_dim);
  return {0, d, 2 * d};
}
inline RowMap GatesOfGated(const Recipe& r) {
  const uint64_t d = static_cast<uint64_t>(r.all.attention.head_dim);
  return {d, d, 2 * d};
}

namespace internal {
struct DeltaWidths {
  uint64_t keys, values;  // of all heads
  uint64_t key;           // of a head
  uint64_t shared, rows;  // value heads that share a key head, and the width of their values

  explicit DeltaWidths(const Recipe& r)
      : keys(static_cast<uint64_t>(r.all.delta.key_heads) * static_cast<uint64_t>(r.all.delta.key_dim)),
        values(static_cast<uint64_t>(r.all.delta.value_heads) * static_cast<uint64_t>(r.all.delta.value_dim)),
        key(static_cast<uint64_t>(r.all.delta.key_dim)),
        shared(static_cast<uint64_t>(r.all.delta.value_heads / std::max(r.all.delta.key_heads, 1))),
        rows(shared * static_cast<uint64_t>(r.all.delta.value_dim)) {}
  uint64_t group() const { return 2 * (key + rows); }
};
}  // namespace internal

// All of q, then k, then v.
inline RowMap DeltaQInTurn(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {0, w.keys, w.keys};
}
inline RowMap DeltaKInTurn(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {w.keys, w.keys, w.keys};
}
inline RowMap DeltaVInTurn(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {2 * w.keys, w.values, w.values};
}

// For each key head its query, its key, and the values and gates of the value heads that share it.
inline RowMap DeltaQOfGroups(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {0, w.key, w.group()};
}
inline RowMap DeltaKOfGroups(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {w.key, w.key, w.group()};
}
inline RowMap DeltaVOfGroups(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {2 * w.key, w.rows, w.group()};
}
inline RowMap DeltaGateOfGroups(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {2 * w.key + w.rows, w.rows, w.group()};
}
// For each key head beta and alpha of the value heads that share it.
inline RowMap DeltaBetaOfGroups(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {0, w.shared, 2 * w.shared};
}
inline RowMap DeltaAlphaOfGroups(const Recipe& r) {
  const internal::DeltaWidths w(r);
  return {w.shared, w.shared, 2 * w.shared};
}

// Entries of tables of names.
// clang-format off
#define TALLY_DELTA_GGUF                                                             \
  {Role::kFfnNorm, "blk.#.post_attention_norm.weight"},                              \
  {Role::kQ, "blk.#.attn_q.weight", Storage::kPlain, QueriesOfGated},                \
  {Role::kAttnGate, "blk.#.attn_q.weight", Storage::kPlain, GatesOfGated},           \
  {Role::kDeltaQ, "blk.#.attn_qkv.weight", Storage::kPlain, DeltaQInTurn},           \
  {Role::kDeltaK, "blk.#.attn_qkv.weight", Storage::kPlain, DeltaKInTurn},           \
  {Role::kDeltaV, "blk.#.attn_qkv.weight", Storage::kPlain, DeltaVInTurn},           \
  {Role::kSsmConv, "blk.#.ssm_conv1d.weight", Storage::kTaps},                       \
  {Role::kSsmA, "blk.#.ssm_a"}
#define TALLY_DELTA_LAYER "~model.layers.#."
#define TALLY_DELTA_NET TALLY_DELTA_LAYER "linear_attn."
#define TALLY_DELTA_MLP TALLY_DELTA_LAYER "mlp."
#define TALLY_DELTA_HF                                                                                          \
  {Role::kOutputNorm, "~model.norm.weight", Storage::kPlusOne},                                                 \
  {Role::kAttnNorm, TALLY_DELTA_LAYER "input_layernorm.weight", Storage::kPlusOne},                             \
  {Role::kFfnNorm, TALLY_DELTA_LAYER "post_attention_layernorm.weight", Storage::kPlusOne},                     \
  {Role::kQ, TALLY_DELTA_LAYER "self_attn.q_proj.weight", Storage::kPlain, QueriesOfGated},                     \
  {Role::kAttnGate, TALLY_DELTA_LAYER "self_attn.q_proj.weight", Storage::kPlain, GatesOfGated},                \
  {Role::kQNorm, TALLY_DELTA_LAYER "self_attn.q_norm.weight", Storage::kPlusOne},                               \
  {Role::kKNorm, TALLY_DELTA_LAYER "self_attn.k_norm.weight", Storage::kPlusOne},                               \
  {Role::kSsmConv, TALLY_DELTA_NET "conv1d.weight", Storage::kConv1d},                                          \
  {Role::kSsmDtBias, TALLY_DELTA_NET "dt_bias"},                                                              \
  {Role::kSsmA, TALLY_DELTA_NET "A_log", Storage::kMinusExp},                                                   \
  {Role::kSsmNorm, TALLY_DELTA_NET "norm.weight"},                                                              \
  {Role::kSsmOut, TALLY_DELTA_NET "out_proj.weight"},                                                           \
  {Role::kExpertGate, TALLY_DELTA_MLP "experts.gate_up_proj", Storage::kPlain, GateRows<ExpertWidth>},    \
  {Role::kExpertUp, TALLY_DELTA_MLP "experts.gate_up_proj", Storage::kPlain, UpRows<ExpertWidth>},        \
  {Role::kExpertDown, TALLY_DELTA_MLP "experts.down_proj"},                                                     \
  {Role::kSharedExpertGate, TALLY_DELTA_MLP "shared_expert.gate_proj.weight"},                                  \
  {Role::kSharedExpertUp, TALLY_DELTA_MLP "shared_expert.up_proj.weight"},                                      \
  {Role::kSharedExpertDown, TALLY_DELTA_MLP "shared_expert.down_proj.weight"},                                  \
  {Role::kSharedExpertSigmoid, TALLY_DELTA_MLP "shared_expert_gate.weight"}
// The layer for multi-token prediction: its own names, which make those of its block begin with "mtp.layers.0." (BindRoles).
#define TALLY_DELTA_PREDICTION_HF                                                           \
  {Role::kNextEmbeddingNorm, "mtp.pre_fc_norm_embedding.weight", Storage::kPlusOne},        \
  {Role::kNextHiddenNorm, "mtp.pre_fc_norm_hidden.weight", Storage::kPlusOne},              \
  {Role::kNextProj, "mtp.fc.weight"},                                                       \
  {Role::kNextHeadNorm, "mtp.norm.weight", Storage::kPlusOne}
// clang-format on

}  // namespace tally
