// SPDX-License-Identifier: Apache-2.0
// Roles: what a stored tensor is for. Name, component, presence in a recipe and shape follow from the table roles.inc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost/site.h"
#include "engine/recipe/recipe.h"

namespace tally {

enum class Role : uint8_t {
#define TALLY_ROLE(role, ...) role,
#define TALLY_BIASED_ROLE(role, ...) role, role##Bias,
#include "engine/recipe/roles.inc"
};
inline constexpr int kRoles = static_cast<int>(Role::kFfnPostNormBias) + 1;

// How the rows or slices of a weight are divided among several processes (shard.h).
enum class Division : uint8_t {
  kWhole,         // every process has all of it
  kVocab,         // rows of the vocabulary
  kHeads,         // query heads
  kKvHeads,       // KV heads
  kQkv,           // query heads, KV heads, KV heads
  kHeadSlices,    // slices that are query heads
  kQNorm,         // query heads, if each has weights of its own; else whole
  kKNorm,         // the same of KV heads
  kChannels,      // channels of a short convolution; of its first matrix three times
  kKeyHeads,      // of the gated delta rule
  kStateHeads,    // heads of a recurrence: its value heads, or Mamba-2's heads
  kMambaIn,       // Mamba-2's gate, input, B, C and steps
  kConvolved,     // what a recurrent layer convolves
  kStateNorm,     // Mamba-2: heads, if no vector is divided; else whole
  kMixed,         // d_model, as a mixer's last matrix gives it
  kHidden,        // of a dense feed-forward
  kFed,           // d_model, as the feed-forward's last matrix gives it
  kExpertHidden,  // experts, or hidden units of all experts
  kExpertOut,     // experts, or the output of all of them
  kSharedHidden,  // of the shared experts
  kSharedOut
};

struct RoleFacts {
  std::string_view name;  // GGUF's name of the tensor, without "blk.N." and ".weight"
  Component component;    // the component that its reads are charged to
  WeightInfo::Kind kind;
  bool vector;   // 1-D (or [experts, n]): packed as f32
  bool experts;  // the first dimension counts experts
  bool heads;    // the first dimension counts query heads
  bool taps;     // the first dimension counts the taps of a convolution, the oldest position's first
  bool biased;   // BiasOf(role) is the role of its bias
  Division division;
};

const RoleFacts& FactsOf(Role role);
// The role of a biased role's bias; meaningless for others.
inline Role BiasOf(Role role) { return static_cast<Role>(static_cast<int>(role) + 1); }

// True if the model has this role in this layer (-1: outside the layers).
bool HasRole(const Recipe& recipe, Role role, int32_t layer);
// Shape in the engine's layout: matrices [out, in], vectors [n]; experts: the number of experts first.
std::vector<uint64_t> RoleShape(const Recipe& recipe, Role role, int32_t layer);

// "blk.3.ffn_gate_exps"; layer -1: "token_embd".
std::string WeightName(Role role, int32_t layer);
// GGUF's usual name of the tensor: "blk.3.ffn_gate_exps.weight".
std::string GgufName(Role role, int32_t layer);

}  // namespace tally
