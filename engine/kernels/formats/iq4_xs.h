// SPDX-License-Identifier: Apache-2.0
// IQ4_XS (ggml's block_iq4_xs): 256 4-bit codes of unevenly spaced values; every 32 have a scale, a 6-bit integer that an f16 number
// multiplies. Panels: integer_format.h; the head is the block's first 8 bytes.
#ifndef TALLY_FORMATS_IQ4_XS_H_
#define TALLY_FORMATS_IQ4_XS_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"
#include "engine/kernels/formats/iq4_values.h"
#include "engine/kernels/formats/scale_search.h"

namespace tally {

struct BlockIQ4_XS {    // x[i] = d * scale[i / 32] * kIq4Values[q[i]]
  uint16_t d;           // f16 bits
  uint8_t scales_h[2];  // scale g plus 32: bits 4 and 5 in bits 2 (g % 4) of byte g / 4
  uint8_t scales_l[4];  // bits 0 to 3 in nibble g % 2 of byte g / 2
  uint8_t qs[128];      // 16 bytes for every 32 elements: elements i and i + 16 share a byte
};

struct FormatIQ4_XS
    : IntegerFormat<FormatIQ4_XS, BlockIQ4_XS,
                    IntegerShape{.bits = 4, .elements = 256, .group = 32, .offset = 128, .minima = false, .head = 8}> {
  static constexpr DType kType = DType::kIQ4_XS;
  static constexpr const int8_t (&kValues)[16] = kIq4Values;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static int SubScale(const Block& b, int g) {
    return ((b.scales_l[g / 2] >> g % 2 * 4 & 15) | (b.scales_h[g / 4] >> g % 4 * 2 & 3) << 4) - 32;
  }
  static void SetSubScale(Block& b, int g, int scale) {  // the bits are 0
    b.scales_l[g / 2] |= static_cast<uint8_t>(((scale + 32) & 15) << g % 2 * 4);
    b.scales_h[g / 4] |= static_cast<uint8_t>(((scale + 32) >> 4) << g % 4 * 2);
  }
  static void Codes(const Block& b, int part, uint8_t* q) { NibbleCodes(b.qs + 16 * part, q); }
  static void SetCode(Block& b, int i, int q) { SetNibble(b.qs + i / 32 * 16, i % 32, q); }

  static void Encode(const float* x, const float* importance, Block& b) {
    b = Block{};
    if (!AllFinite(x, 256)) {
      b.d = kF16NaN;
      return;
    }
    b.d = EncodeSymmetric<Iq4Levels, 256, 32, -32, 31>(
        x, importance, [&](int g, int scale) { SetSubScale(b, g, scale); }, [&](int i, int q) { SetCode(b, i, q); });
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_IQ4_XS_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_IQ4_XS_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_IQ4_XS_VECTORS
#undef TALLY_FORMATS_IQ4_XS_VECTORS
#else
#define TALLY_FORMATS_IQ4_XS_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorIQ4_XS : FormatIQ4_XS, IntegerVectors<VectorIQ4_XS, FormatIQ4_XS> {
  static HWY_INLINE VI SubScales(HeadOnly sub, int g, int v) {
    const auto strip = [&](int i, int shift)
                           HWY_ATTR { return hn::ShiftRightSame(HeadBytes(sub.head + kPanelRows * (2 + i), v), shift); };
    const VI low = hn::And(strip(2 + g / 2, g % 2 * 4), hn::Set(DI(), 15)),
             high = hn::And(strip(g / 4, g % 4 * 2), hn::Set(DI(), 3));
    return hn::Sub(hn::Or(low, hn::ShiftLeft<4>(high)), hn::Set(DI(), 32));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
