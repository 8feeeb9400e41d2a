// SPDX-License-Identifier: Apache-2.0
#include "engine/base/dtype.h"

#include <algorithm>
#include <cctype>

namespace tally {

Result<DType> ParseWeightType(std::string_view name) {
  for (const DType t : kWeightTypes) {
    const std::string_view other = DTypeName(t);
    auto same = [](char a, char b) {
      return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
    };
    if (std::equal(name.begin(), name.end(), other.begin(), other.end(), same)) return t;
  }
  return BadInput("'" + std::string(name) + "' is not one of " + WeightTypeNames(", "));
}

}  // namespace tally
