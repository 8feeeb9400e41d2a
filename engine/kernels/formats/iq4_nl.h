// SPDX-License-Identifier: Apache-2.0
// IQ4_NL (ggml's block_iq4_nl): 32 4-bit codes of unevenly spaced values, and an f16 scale. Panels: integer_format.h.
#ifndef TALLY_FORMATS_IQ4_NL_H_
#define TALLY_FORMATS_IQ4_NL_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"
#include "engine/kernels/formats/iq4_values.h"
#include "engine/kernels/formats/scale_search.h"

namespace tally {

struct BlockIQ4_NL {  // x[i] = d * kIq4Values[q[i]]
  uint16_t d;         // f16 bits
  uint8_t qs[16];     // elements i and i + 16 share a byte
};

struct FormatIQ4_NL
    : IntegerFormat<FormatIQ4_NL, BlockIQ4_NL,
                    IntegerShape{.bits = 4, .elements = 32, .group = 32, .offset = 128, .minima = false, .head = 2}> {
  static constexpr DType kType = DType::kIQ4_NL;
  static constexpr const int8_t (&kValues)[16] = kIq4Values;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static void Codes(const Block& b, int, uint8_t* q) { NibbleCodes(b.qs, q); }
  static void SetCode(Block& b, int i, int q) { SetNibble(b.qs, i, q); }

  static void Encode(const float* x, const float* importance, Block& b) {
    b = Block{};
    if (!AllFinite(x, 32)) {
      b.d = kF16NaN;
      return;
    }
    b.d = F32ToF16(SymmetricScale<Iq4Levels>(x, importance, 32));
    const float inverse = InverseScale(F16ToF32(b.d));
    for (int i = 0; i < 32; ++i) SetCode(b, i, Iq4Levels::Code(x[i] * inverse));
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_IQ4_NL_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_IQ4_NL_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_IQ4_NL_VECTORS
#undef TALLY_FORMATS_IQ4_NL_VECTORS
#else
#define TALLY_FORMATS_IQ4_NL_VECTORS
#endif

namespace tally {
namespace HWY_NAMESPACE {

struct VectorIQ4_NL : FormatIQ4_NL, IntegerVectors<VectorIQ4_NL, FormatIQ4_NL> {};

}  // namespace HWY_NAMESPACE
}  // namespace tally

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
