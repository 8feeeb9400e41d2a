// SPDX-License-Identifier: Apache-2.0
// Q3_K (ggml's block_q3_K): 256 3-bit integers with an offset of 4; every 16 have a scale, a 6-bit integer that an f16 number multiplies.
// Panels: integer_format.h; the head is d and `scales`.
#ifndef TALLY_FORMATS_Q3_K_H_
#define TALLY_FORMATS_Q3_K_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"
#include "engine/kernels/formats/scale_search.h"

namespace tally {

struct BlockQ3_K {     // x[i] = d * scale[i / 16] * (q[i] - 4)
  uint8_t hmask[32];   // bit 2 of element i: bit i / 32 of byte i % 32
  uint8_t qs[64];      // the low 2 bits: 32 bytes for every 128 elements, element 32 n + i in bits 2n and 2n + 1 of byte i
  uint8_t scales[12];  // scale g plus 32: low 4 bits in the low nibbles of bytes 0..7 (g < 8) and the high ones, the other 2 in
                       // bits 2 (g / 4) of byte 8 + g % 4
  uint16_t d;          // f16 bits
};

struct FormatQ3_K
    : IntegerFormat<FormatQ3_K, BlockQ3_K,
                    IntegerShape{.bits = 3, .elements = 256, .group = 16, .offset = 4, .minima = false, .head = 14}> {
  static constexpr DType kType = DType::kQ3_K;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static int SubScale(const Block& b, int g) {
    return ((b.scales[g % 8] >> g / 8 * 4 & 15) | (b.scales[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32;
  }
  static void SetSubScale(Block& b, int g, int scale) {  // the bits are 0
    b.scales[g % 8] |= static_cast<uint8_t>(((scale + 32) & 15) << g / 8 * 4);
    b.scales[8 + g % 4] |= static_cast<uint8_t>(((scale + 32) >> 4) << g / 4 * 2);
  }
  static void Codes(const Block& b, int part, uint8_t* q) {
    CopyBits<2>(b.qs + part / 4 * 32, part % 4 * 2, q);
    CopyBits<1, 2>(b.hmask, part, q);
  }
  static void SetCode(Block& b, int i, int q) {
    b.qs[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q & 3) << i % 128 / 32 * 2);
    b.hmask[i % 32] |= static_cast<uint8_t>((q >> 2) << i / 32);
  }
  static void Head(const Block& b, uint8_t* row) {
    std::memcpy(row, &b.d, 2);
    std::memcpy(row + 2, b.scales, 12);
  }
  static void SetHead(Block& b, const uint8_t* row) {
    std::memcpy(&b.d, row, 2);
    std::memcpy(b.scales, row + 2, 12);
  }

  static void Encode(const float* x, const float* importance, Block& b) {
    b = Block{};
    if (!AllFinite(x, 256)) {
      b.d = kF16NaN;
      return;
    }
    b.d = EncodeSymmetric<Uniform<-4, 3>, 256, 16, -32, 31>(
        x, importance, [&](int g, int scale) { SetSubScale(b, g, scale); }, [&](int i, int q) { SetCode(b, i, q); });
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q3_K_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_Q3_K_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q3_K_VECTORS
#undef TALLY_FORMATS_Q3_K_VECTORS
#else
#define TALLY_FORMATS_Q3_K_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ3_K : FormatQ3_K, IntegerVectors<VectorQ3_K, FormatQ3_K> {
  static HWY_INLINE VI SubScales(HeadOnly sub, int g, int v) {
    const auto strip = [&](int i, int shift)
                           HWY_ATTR { return hn::ShiftRightSame(HeadBytes(sub.head + kPanelRows * (2 + i), v), shift); };
    const VI low = hn::And(strip(g % 8, g / 8 * 4), hn::Set(DI(), 15)),
             high = hn::And(strip(8 + g % 4, g / 4 * 2), hn::Set(DI(), 3));
    return hn::Sub(hn::Or(low, hn::ShiftLeft<4>(high)), hn::Set(DI(), 32));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
