// SPDX-License-Identifier: Apache-2.0
// Q4_0 (ggml's block_q4_0): 32 4-bit integers with an offset of 8, and an f16 scale. Panels: nibbles.h.
#ifndef TALLY_FORMATS_Q4_0_H_
#define TALLY_FORMATS_Q4_0_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/nibbles.h"

namespace tally {

struct BlockQ4_0 {  // x[i] = d * (q[i] - 8)
  uint16_t d;       // f16 bits
  uint8_t qs[16];
};

struct FormatQ4_0 : NibbleFormat<FormatQ4_0, BlockQ4_0> {
  static constexpr DType kType = DType::kQ4_0;
  static constexpr ActFormat kInt8 = {.kind = ActKind::kInt8, .offset = 8};
  // Per weight: subtracts the offset and multiplies by the scale. The Highway kernel looks up the values instead of subtracting.
  static constexpr WideningFlops kWidening = {.rows = 64, .panels = 64, .vectors = 32};
  static constexpr int8_t kValues[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

  static float Scale(const Block& b) { return F16ToF32(b.d); }

  static void Decode(const Block& b, float* out) {
    const float d = F16ToF32(b.d);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(Nibble(b.qs, i) - 8);
  }

  static void Encode(const float* x, const float*, Block& b) {
    if (!AllFinite(x, 32)) {
      b = Block{.d = kF16NaN, .qs = {}};
      return;
    }
    float extreme = 0;  // the value of largest magnitude, which maps to -8
    for (int i = 0; i < 32; ++i) {
      if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
    }
    const float d = extreme / -8.0f, id = InverseScale(d);
    b.d = F32ToF16(d);
    for (int i = 0; i < 16; ++i) {
      const int lo = std::min(15, static_cast<int>(x[i] * id + 8.5f)), hi = std::min(15, static_cast<int>(x[i + 16] * id + 8.5f));
      b.qs[i] = static_cast<uint8_t>(lo | hi << 4);
    }
  }

  static void Padding(uint8_t* row) {
    std::memset(row, 0, 2);
    std::memset(row + 2, 0x88, 16);
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q4_0_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/nibbles.h"  // once for each target

#if defined(TALLY_FORMATS_Q4_0_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q4_0_VECTORS
#undef TALLY_FORMATS_Q4_0_VECTORS
#else
#define TALLY_FORMATS_Q4_0_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ4_0 : FormatQ4_0, OneScale<FormatQ4_0> {
  static constexpr bool kWide = false, kByteSteps = false;
  static HWY_INLINE VF Word(const uint8_t* p, int, int v) { return F16Scales(p, v); }
  static HWY_INLINE void Steps(const uint8_t* p, int c, int v, VU8& lo, VU8& hi) { NibbleSteps(p + 32, c, v, lo, hi); }
  static HWY_INLINE void Widen(const uint8_t* bytes, bool, float* HWY_RESTRICT out) {
    HWY_ALIGN uint8_t quants[32];
    LookUpNibbles(kValues, bytes + 2, quants);
    ScaleColumns(F16ToF32(LoadAt<uint16_t>(bytes)), quants, out);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
