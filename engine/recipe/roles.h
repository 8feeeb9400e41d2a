// What is known of a role without a checkpoint: its name, where it works, when a recipe has it, its shape. The table is roles.inc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost/site.h"
#include "engine/recipe/recipe.h"

namespace tally {

// What a stored tensor is for.
enum class Role : uint8_t {
#define TALLY_ROLE(role, ...) role,
#define TALLY_BIASED_ROLE(role, ...) role, role##Bias,
#include "engine/recipe/roles.inc"
};
inline constexpr int kRoles = static_cast<int>(Role::kFfnPostNormBias) + 1;

struct RoleFacts {
  std::string_view name;  // as GGUF calls the tensor, without "blk.N." and ".weight"
  Component component;    // that the ledger charges it to
  WeightInfo::Kind kind;
  bool vector;   // 1-D (or [experts, n]): packed as f32
  bool experts;  // the first dimension counts experts
  bool biased;   // BiasOf(role) is the role of its bias
};

const RoleFacts& FactsOf(Role role);
inline Role BiasOf(Role role) { return static_cast<Role>(static_cast<int>(role) + 1); }

// Whether the recipe's model has this role (in this layer; layer -1: outside of the layers), and the shape the engine wants: matrices
// [out, in], vectors [n], experts' with the number of experts before that.
bool HasRole(const Recipe& recipe, Role role, int32_t layer);
std::vector<uint64_t> RoleShape(const Recipe& recipe, Role role);

// "blk.3.ffn_gate_exps"; layer -1: "token_embd".
std::string WeightName(Role role, int32_t layer);
// The name of its tensor in GGUF files, one for all architectures: "blk.3.ffn_gate_exps.weight".
std::string GgufName(Role role, int32_t layer);

}  // namespace tally
