// What is known of a role without a checkpoint: its name, where it works, whether it is a vector.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "counters/cost/site.h"
#include "engine/recipe/model_spec.h"

namespace tally {

struct RoleFacts {
  std::string_view name;  // as GGUF calls the tensor, without "blk.N." and ".weight"
  Component component;    // that the ledger charges it to
  bool vector;            // 1-D (or [experts, n]): packed as f32
  WeightInfo::Kind kind;
};

const RoleFacts& FactsOf(Role role);

// "blk.3.ffn_gate_exps"; layer -1: "token_embd".
std::string WeightName(Role role, int32_t layer);

}  // namespace tally
