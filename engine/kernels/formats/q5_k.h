// SPDX-License-Identifier: Apache-2.0
// Q5_K (ggml's block_q5_K): 256 5-bit integers; every 32 have a scale and a minimum, 6-bit integers that two f16 numbers
// multiply. Panels: integer_format.h.
#ifndef TALLY_FORMATS_Q5_K_H_
#define TALLY_FORMATS_Q5_K_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"
#include "engine/kernels/formats/scale_search.h"
#include "engine/kernels/formats/six_bit_scales.h"

namespace tally {

struct BlockQ5_K {     // x[i] = d * scale[i / 32] * q[i] - dmin * minimum[i / 32]
  uint16_t d, dmin;    // f16 bits
  uint8_t scales[12];  // six_bit_scales.h
  uint8_t qh[32];      // bit 4 of element i: bit i / 32 of byte i % 32
  uint8_t qs[128];     // the low 4 bits: 32 bytes for every 64 elements, the first 32 in the low nibbles
};

struct FormatQ5_K
    : IntegerFormat<FormatQ5_K, BlockQ5_K,
                    IntegerShape{.bits = 5, .elements = 256, .group = 32, .offset = 0, .minima = true, .head = 16}> {
  static constexpr DType kType = DType::kQ5_K;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static float Minimum(const Block& b, int g) { return -(F16ToF32(b.dmin) * static_cast<float>(SixBitMinimum(b.scales, g))); }
  static int SubScale(const Block& b, int g) { return SixBitScale(b.scales, g); }
  static void Codes(const Block& b, int part, uint8_t* q) {
    CopyBits<4>(b.qs + part / 2 * 32, part % 2 * 4, q);
    CopyBits<1, 4>(b.qh, part, q);
  }
  static void SetCode(Block& b, int i, int q) {
    b.qs[i / 64 * 32 + i % 32] |= static_cast<uint8_t>((q & 15) << i % 64 / 32 * 4);
    b.qh[i % 32] |= static_cast<uint8_t>((q >> 4) << i / 32);
  }

  static void Encode(const float* x, const float* importance, Block& b) {
    b = Block{};
    if (!AllFinite(x, 256)) {
      b.d = kF16NaN;
      return;
    }
    const AffineBits bits = EncodeAffine<31, 256, 32, 63>(
        x, importance, [&](int g, int scale, int minimum) { SetSixBits(b.scales, g, scale, minimum); },
        [&](int i, int q) { SetCode(b, i, q); });
    b.d = bits.d;
    b.dmin = bits.dmin;
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q5_K_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/six_bit_scales.h"  // once for each target

#if defined(TALLY_FORMATS_Q5_K_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q5_K_VECTORS
#undef TALLY_FORMATS_Q5_K_VECTORS
#else
#define TALLY_FORMATS_Q5_K_VECTORS
#endif

namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ5_K : FormatQ5_K, SixBitVectors, IntegerVectors<VectorQ5_K, FormatQ5_K, SixBits> {};

}  // namespace HWY_NAMESPACE
}  // namespace tally

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
