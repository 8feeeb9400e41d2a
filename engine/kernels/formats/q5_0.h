// SPDX-License-Identifier: Apache-2.0
// Q5_0 (ggml's block_q5_0): 32 5-bit integers with an offset of 16, and an f16 scale. Panels: integer_format.h.
#ifndef TALLY_FORMATS_Q5_0_H_
#define TALLY_FORMATS_Q5_0_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"

namespace tally {

struct BlockQ5_0 {  // x[i] = d * (q[i] - 16)
  uint16_t d;       // f16 bits
  uint8_t qh[4];    // bit 4 of q[i]: bit i, counted from the lowest of byte 0
  uint8_t qs[16];   // the low 4 bits
};

struct FormatQ5_0
    : IntegerFormat<FormatQ5_0, BlockQ5_0,
                    IntegerShape{.bits = 5, .elements = 32, .group = 32, .offset = 16, .minima = false, .head = 2}> {
  static constexpr DType kType = DType::kQ5_0;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static void Codes(const Block& b, int, uint8_t* q) {
    NibbleCodes(b.qs, q);
    AddBits(b.qh, q);
  }
  static void SetCode(Block& b, int i, int q) {
    SetNibble(b.qs, i, q);
    SetBit(b.qh, i, q >> 4);
  }

  static void Encode(const float* x, const float*, Block& b) {
    b = Block{};
    if (!AllFinite(x, 32)) {
      b.d = kF16NaN;
      return;
    }
    float extreme = 0;  // the value of largest magnitude, which maps to -16
    for (int i = 0; i < 32; ++i) {
      if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
    }
    const float d = extreme / -16.0f, id = InverseScale(d);
    b.d = F32ToF16(d);
    for (int i = 0; i < 32; ++i) SetCode(b, i, std::min(31, static_cast<int>(x[i] * id + 16.5f)));
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q5_0_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_Q5_0_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q5_0_VECTORS
#undef TALLY_FORMATS_Q5_0_VECTORS
#else
#define TALLY_FORMATS_Q5_0_VECTORS
#endif

namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ5_0 : FormatQ5_0, IntegerVectors<VectorQ5_0, FormatQ5_0> {};

}  // namespace HWY_NAMESPACE
}  // namespace tally

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
