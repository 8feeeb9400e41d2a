// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/alibi.h"

#include <bit>
#include <cmath>

namespace tally {

std::vector<float> AlibiSlopes(int32_t heads, double bias) {
  const int32_t power = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(heads)));
  const auto slope = [&](int32_t i) { return static_cast<float>(std::exp2(-bias * i / power)); };
  std::vector<float> slopes;
  if (heads == power) {
    for (int32_t i = 1; i <= heads; ++i) slopes.push_back(slope(i));
    return slopes;
  }
  for (int32_t i = 2; i <= power; i += 2) slopes.push_back(slope(i));
  for (int32_t i = 1; static_cast<int32_t>(slopes.size()) < heads; i += 2) slopes.push_back(slope(i));
  return slopes;
}

}  // namespace tally
