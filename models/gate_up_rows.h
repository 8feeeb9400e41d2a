// SPDX-License-Identifier: Apache-2.0
// Rows of gate and up in tensors that hold both (RoleName::rows): all of gate, then up.
#pragma once

#include "engine/recipe/model_spec.h"

namespace tally {

// `kWidth`: the recipe's width of a half.
template <int32_t Recipe::*kWidth>
RowMap GateRows(const Recipe& r) {
  const uint64_t width = static_cast<uint64_t>(r.*kWidth);
  return {0, width, width};
}
template <int32_t Recipe::*kWidth>
RowMap UpRows(const Recipe& r) {
  const uint64_t width = static_cast<uint64_t>(r.*kWidth);
  return {width, width, width};
}

}  // namespace tally
