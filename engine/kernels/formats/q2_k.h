// SPDX-License-Identifier: Apache-2.0
// Q2_K (ggml's block_q2_K): 256 2-bit integers; every 16 have a scale and a minimum, 4-bit integers that two f16 numbers multiply.
// Panels: integer_format.h; the head is d, dmin and `scales`.
#ifndef TALLY_FORMATS_Q2_K_H_
#define TALLY_FORMATS_Q2_K_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"
#include "engine/kernels/formats/scale_search.h"

namespace tally {

struct BlockQ2_K {  // x[i] = d * (scales[i / 16] & 15) * q[i] - dmin * (scales[i / 16] >> 4)
  uint8_t scales[16];
  uint8_t qs[64];    // 32 bytes for every 128 elements: element 32 n + i in bits 2n and 2n + 1 of byte i
  uint16_t d, dmin;  // f16 bits
};

struct FormatQ2_K
    : IntegerFormat<FormatQ2_K, BlockQ2_K,
                    IntegerShape{.bits = 2, .elements = 256, .group = 16, .offset = 0, .minima = true, .head = 20}> {
  static constexpr DType kType = DType::kQ2_K;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static float Minimum(const Block& b, int g) { return -(F16ToF32(b.dmin) * static_cast<float>(b.scales[g] >> 4)); }
  static int SubScale(const Block& b, int g) { return b.scales[g] & 15; }
  static void Codes(const Block& b, int part, uint8_t* q) { CopyBits<2>(b.qs + part / 4 * 32, part % 4 * 2, q); }
  static void SetCode(Block& b, int i, int q) { b.qs[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(q << i % 128 / 32 * 2); }
  static void Head(const Block& b, uint8_t* row) {
    std::memcpy(row, &b.d, 2);
    std::memcpy(row + 2, &b.dmin, 2);
    std::memcpy(row + 4, b.scales, 16);
  }
  static void SetHead(Block& b, const uint8_t* row) {
    std::memcpy(&b.d, row, 2);
    std::memcpy(&b.dmin, row + 2, 2);
    std::memcpy(b.scales, row + 4, 16);
  }

  static void Encode(const float* x, const float* importance, Block& b) {
    b = Block{};
    if (!AllFinite(x, 256)) {
      b.d = kF16NaN;
      return;
    }
    const AffineBits bits = EncodeAffine<3, 256, 16, 15>(
        x, importance, [&](int g, int scale, int minimum) { b.scales[g] = static_cast<uint8_t>(scale | minimum << 4); },
        [&](int i, int q) { SetCode(b, i, q); });
    b.d = bits.d;
    b.dmin = bits.dmin;
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q2_K_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_Q2_K_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q2_K_VECTORS
#undef TALLY_FORMATS_Q2_K_VECTORS
#else
#define TALLY_FORMATS_Q2_K_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ2_K : FormatQ2_K, IntegerVectors<VectorQ2_K, FormatQ2_K> {
  static HWY_INLINE VI SubScales(HeadOnly sub, int g, int v) { return hn::And(Strip(sub.head, g, v), hn::Set(DI(), 15)); }
  static HWY_INLINE VI SubMinima(HeadOnly sub, int g, int v) { return hn::ShiftRight<4>(Strip(sub.head, g, v)); }

 private:
  static HWY_INLINE VI Strip(const uint8_t* head, int g, int v) { return HeadBytes(head + kPanelRows * (4 + g), v); }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
