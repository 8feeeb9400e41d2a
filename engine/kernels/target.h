// SPDX-License-Identifier: Apache-2.0
// Properties of the current Highway target; see also HwyTargetName() in op.h.
#pragma once

#include <cstdint>

namespace tally {

int64_t HwyF32Lanes();  // f32 lanes of a full vector

// `n` rounded up to whole vectors of at most `cap` lanes.
inline uint64_t HwyPadded(int64_t n, int64_t cap = INT64_MAX) {
  const int64_t lanes = HwyF32Lanes() < cap ? HwyF32Lanes() : cap;
  return static_cast<uint64_t>((n + lanes - 1) / lanes * lanes);
}

}  // namespace tally
