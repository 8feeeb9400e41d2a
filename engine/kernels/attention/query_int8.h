// SPDX-License-Identifier: Apache-2.0
// Rounding of a query to int8, for products with keys in q8_0.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "engine/kernels/scalar.h"

namespace tally {

// n <= 32 elements: q = round_half_even(x * (127 / max |x|)); returns the scale, max |x| / 127. An infinity or NaN gives a NaN for
// scale. Counts a max and a multiply for each element, and two divides.
template <class S>
S QuantiseQuery(const float* x, int64_t n, int8_t* q) {
  bool finite = true;
  S largest(0.0f);
  for (int64_t i = 0; i < n; ++i) {
    finite = finite && (std::bit_cast<uint32_t>(x[i]) & 0x7f800000u) != 0x7f800000u;
    largest = Max(largest, Abs(S(x[i])));
  }
  const S scale = largest / S(127.0f);
  const S factor = S(127.0f) / largest;
  const bool any = finite && ToF32(largest) > 0x1p-120f;
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = ToF32(S(x[i]) * factor);
    q[i] = any ? static_cast<int8_t>(static_cast<int32_t>(scaled + 12582912.0f - 12582912.0f)) : int8_t{0};  // |scaled| < 2^22
  }
  return finite ? scale : S(std::numeric_limits<float>::quiet_NaN());
}

}  // namespace tally
