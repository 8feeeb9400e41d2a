// SPDX-License-Identifier: Apache-2.0
// Finds NaN and infinity in a matrix. The engine checks the output of each step, so that the error can name the op.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/base/mat.h"

namespace tally {

inline bool AllFinite(Mat<const float> m) {
  for (int64_t r = 0; r < m.rows; ++r) {
    const float* const row = m.Row(r);
    uint32_t odd = 0;  // 1 if an exponent is all ones; compared as integers, so that the compiler can vectorise the loop
    for (int64_t i = 0; i < m.cols; ++i) odd |= (std::bit_cast<uint32_t>(row[i]) & 0x7F800000u) == 0x7F800000u ? 1 : 0;
    if (odd != 0) return false;
  }
  return true;
}

// False if the magnitude of a finite value is `limit` (> 0) or more. Values that are not finite are ignored.
inline bool AllBelow(Mat<const float> m, float limit) {
  const uint32_t from = std::bit_cast<uint32_t>(limit), count = 0x7F800000u - from;  // patterns of such magnitudes
  for (int64_t r = 0; r < m.rows; ++r) {
    const float* const row = m.Row(r);
    uint32_t odd = 0;
    for (int64_t i = 0; i < m.cols; ++i) odd |= (std::bit_cast<uint32_t>(row[i]) & 0x7FFFFFFFu) - from < count ? 1 : 0;
    if (odd != 0) return false;
  }
  return true;
}

}  // namespace tally
