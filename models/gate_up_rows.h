// SPDX-License-Identifier: Apache-2.0
// Rows of gate and up in tensors that hold both (RoleName::rows): all of gate, then up.
#pragma once

#include "engine/recipe/model_spec.h"

namespace tally {

// `kWidth`: the recipe's width of a half.
constexpr int32_t DenseWidth(const Recipe& r) { return r.all.ffn.width; }
constexpr int32_t ExpertWidth(const Recipe& r) { return r.all.experts.width; }
constexpr int32_t SharedWidth(const Recipe& r) { return r.all.experts.shared_width; }

template <int32_t (*kWidth)(const Recipe&)>
RowMap GateRows(const Recipe& r) {
  const uint64_t width = static_cast<uint64_t>(kWidth(r));
  return {0, width, width};
}
template <int32_t (*kWidth)(const Recipe&)>
RowMap UpRows(const Recipe& r) {
  const uint64_t width = static_cast<uint64_t>(kWidth(r));
  return {width, width, width};
}

}  // namespace tally
