// SPDX-License-Identifier: Apache-2.0
// The 12 bytes of Q4_K and Q5_K with 8 scales and 8 minima of 6 bits (ggml-quants.c, get_scale_min_k4):
//   bytes 0..3    scales 0..3 in bits 0..5; bits 4 and 5 of scales 4..7 in bits 6 and 7
//   bytes 4..7    the same of minima
//   bytes 8..11   low 4 bits of scales 4..7 in the low nibbles, of minima 4..7 in the high ones
#ifndef TALLY_FORMATS_SIX_BIT_SCALES_H_
#define TALLY_FORMATS_SIX_BIT_SCALES_H_

#include "engine/kernels/formats/integer_format.h"

namespace tally {

inline int SixBitScale(const uint8_t* s, int g) { return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4; }
inline int SixBitMinimum(const uint8_t* s, int g) { return g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4; }
// The bits are 0.
inline void SetSixBits(uint8_t* s, int g, int scale, int minimum) {
  if (g < 4) {
    s[g] |= static_cast<uint8_t>(scale);
    s[g + 4] |= static_cast<uint8_t>(minimum);
  } else {
    s[g + 4] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
    s[g - 4] |= static_cast<uint8_t>(scale >> 4 << 6);
    s[g] |= static_cast<uint8_t>(minimum >> 4 << 6);
  }
}

}  // namespace tally

#endif  // TALLY_FORMATS_SIX_BIT_SCALES_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_SIX_BIT_SCALES_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_SIX_BIT_SCALES_VECTORS
#undef TALLY_FORMATS_SIX_BIT_SCALES_VECTORS
#else
#define TALLY_FORMATS_SIX_BIT_SCALES_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// The scales and minima of a block of 16 rows: [8 groups][16].
struct SixBits {
  alignas(64) uint8_t scales[8 * kPanelRows], minima[8 * kPanelRows];

  // head: of a panel, two strips of f16 and 12 of single bytes.
  HWY_INLINE void Read(const uint8_t* head) {
    const DU8 d;
    const uint8_t* const strips = head + 4 * kPanelRows;
    constexpr int kHalf = 4 * kPanelRows;  // bytes of four groups
    for (int i = 0; i < kHalf; i += kVecBytes) {
      const VU8 s = hn::LoadU(d, strips + i), m = hn::LoadU(d, strips + kHalf + i), low = hn::LoadU(d, strips + 2 * kHalf + i);
      hn::Store(MoveBits<6, 0>(s, 0), d, scales + i);
      hn::Store(MoveBits<6, 0>(m, 0), d, minima + i);
      hn::Store(hn::Or(MoveBits<4, 0>(low, 0), MoveBits<2, 4>(s, 6)), d, scales + kHalf + i);
      hn::Store(hn::Or(MoveBits<4, 0>(low, 4), MoveBits<2, 4>(m, 6)), d, minima + kHalf + i);
    }
  }
};

// Members of Vector<NAME>.
struct SixBitVectors {
  static HWY_INLINE VI SubScales(const SixBits& sub, int g, int v) { return HeadBytes(sub.scales + kPanelRows * g, v); }
  static HWY_INLINE VI SubMinima(const SixBits& sub, int g, int v) { return HeadBytes(sub.minima + kPanelRows * g, v); }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
