// SPDX-License-Identifier: Apache-2.0
// Q4_1 (ggml's block_q4_1): 32 4-bit integers, an f16 scale and an f16 minimum. Panels: integer_format.h.
#ifndef TALLY_FORMATS_Q4_1_H_
#define TALLY_FORMATS_Q4_1_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"

namespace tally {

struct BlockQ4_1 {  // x[i] = d * q[i] + m
  uint16_t d, m;    // f16 bits
  uint8_t qs[16];   // elements i and i + 16 share a byte
};

struct FormatQ4_1 : IntegerFormat<FormatQ4_1, BlockQ4_1,
                                  IntegerShape{.bits = 4, .elements = 32, .group = 32, .offset = 0, .minima = true, .head = 4}> {
  static constexpr DType kType = DType::kQ4_1;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static float Minimum(const Block& b, int) { return F16ToF32(b.m); }
  static void Codes(const Block& b, int, uint8_t* q) { NibbleCodes(b.qs, q); }
  static void SetCode(Block& b, int i, int q) { SetNibble(b.qs, i, q); }

  // The least value maps to 0, the greatest to 15.
  static void Encode(const float* x, const float*, Block& b) {
    b = Block{};
    if (!AllFinite(x, 32)) {
      b.d = kF16NaN;
      return;
    }
    const auto [lo, hi] = std::minmax_element(x, x + 32);
    const float d = (*hi - *lo) / 15.0f, id = InverseScale(d);
    b.d = F32ToF16(d);
    b.m = F32ToF16(*lo);
    for (int i = 0; i < 32; ++i) SetCode(b, i, std::min(15, static_cast<int>((x[i] - *lo) * id + 0.5f)));
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q4_1_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_Q4_1_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q4_1_VECTORS
#undef TALLY_FORMATS_Q4_1_VECTORS
#else
#define TALLY_FORMATS_Q4_1_VECTORS
#endif

namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ4_1 : FormatQ4_1, IntegerVectors<VectorQ4_1, FormatQ4_1> {};

}  // namespace HWY_NAMESPACE
}  // namespace tally

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
