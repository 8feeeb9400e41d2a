// SPDX-License-Identifier: Apache-2.0
// Description of an op without its data: operands with types and shapes, and parameters. An equal op can be built from it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "counters/cost/cost.h"

namespace tally {

// kInOut: read, then written.
enum class OperandRole : uint8_t { kInput, kOutput, kInOut, kWeight, kCache };
inline constexpr int kOperandRoles = 5;
inline constexpr std::array<std::string_view, kOperandRoles> kOperandRoleNames = {"input", "output", "in-out", "weight", "cache"};

struct Operand {
  std::string_view name = {};  // of the op's member: "x"; a static string, as is `type`
  OperandRole role = OperandRole::kInput;
  std::string_view type = {};  // of the elements: "f32", "i32", "bf16", "int8" (quantised activations), "MXFP4"
  std::vector<int64_t> shape = {};
  WeightId weight = kNoWeight;  // kWeight: index in the ledger's table
};

// A parameter of the op: a number, a static string, or a list of integers.
using Setting = std::variant<int64_t, double, std::string_view, std::vector<int64_t>>;

struct OpDescription {
  std::vector<Operand> operands = {};
  std::vector<std::pair<std::string_view, Setting>> settings = {};  // name (static) -> value

  void Add(std::string_view name, OperandRole role, std::string_view type, std::vector<int64_t> shape,
           WeightId weight = kNoWeight) {
    operands.push_back({name, role, type, std::move(shape), weight});
  }
  void Set(std::string_view name, Setting value) { settings.emplace_back(name, std::move(value)); }
};

}  // namespace tally
