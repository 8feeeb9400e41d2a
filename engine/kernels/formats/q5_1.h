// SPDX-License-Identifier: Apache-2.0
// Q5_1 (ggml's block_q5_1): 32 5-bit integers, an f16 scale and an f16 minimum. Panels: integer_format.h.
#ifndef TALLY_FORMATS_Q5_1_H_
#define TALLY_FORMATS_Q5_1_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"

namespace tally {

struct BlockQ5_1 {  // x[i] = d * q[i] + m
  uint16_t d, m;    // f16 bits
  uint8_t qh[4];    // bit 4 of q[i]: bit i, counted from the lowest of byte 0
  uint8_t qs[16];   // the low 4 bits
};

struct FormatQ5_1 : IntegerFormat<FormatQ5_1, BlockQ5_1,
                                  IntegerShape{.bits = 5, .elements = 32, .group = 32, .offset = 0, .minima = true, .head = 4}> {
  static constexpr DType kType = DType::kQ5_1;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static float Minimum(const Block& b, int) { return F16ToF32(b.m); }
  static void Codes(const Block& b, int, uint8_t* q) {
    NibbleCodes(b.qs, q);
    AddBits(b.qh, q);
  }
  static void SetCode(Block& b, int i, int q) {
    SetNibble(b.qs, i, q);
    SetBit(b.qh, i, q >> 4);
  }

  // The least value maps to 0, the greatest to 31.
  static void Encode(const float* x, const float*, Block& b) {
    b = Block{};
    if (!AllFinite(x, 32)) {
      b.d = kF16NaN;
      return;
    }
    const auto [lo, hi] = std::minmax_element(x, x + 32);
    const float d = (*hi - *lo) / 31.0f, id = InverseScale(d);
    b.d = F32ToF16(d);
    b.m = F32ToF16(*lo);
    for (int i = 0; i < 32; ++i) SetCode(b, i, std::min(31, static_cast<int>((x[i] - *lo) * id + 0.5f)));
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q5_1_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_Q5_1_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q5_1_VECTORS
#undef TALLY_FORMATS_Q5_1_VECTORS
#else
#define TALLY_FORMATS_Q5_1_VECTORS
#endif

namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ5_1 : FormatQ5_1, IntegerVectors<VectorQ5_1, FormatQ5_1> {};

}  // namespace HWY_NAMESPACE
}  // namespace tally

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
