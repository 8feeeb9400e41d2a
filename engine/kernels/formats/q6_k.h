// SPDX-License-Identifier: Apache-2.0
// Q6_K (ggml's block_q6_K): 256 6-bit integers with an offset of 32, an int8 scale for every 16 of them, and an f16 scale.
// Panels: integer_format.h; the head is d and `scales`.
#ifndef TALLY_FORMATS_Q6_K_H_
#define TALLY_FORMATS_Q6_K_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/integer_format.h"
#include "engine/kernels/formats/scale_search.h"

namespace tally {

struct BlockQ6_K {  // x[i] = (d * scales[i / 16]) * (q[i] - 32)
  uint8_t ql[128];  // the low 4 bits: 64 bytes for every 128 elements, elements 0 to 63 in the low nibbles
  uint8_t qh[64];   // the others: 32 bytes for every 128 elements, element 32 n + i in bits 2n and 2n + 1 of byte i
  int8_t scales[16];
  uint16_t d;  // f16 bits
};

struct FormatQ6_K
    : IntegerFormat<FormatQ6_K, BlockQ6_K,
                    IntegerShape{.bits = 6, .elements = 256, .group = 16, .offset = 32, .minima = false, .head = 18}> {
  static constexpr DType kType = DType::kQ6_K;
  static float D(const Block& b) { return F16ToF32(b.d); }
  static int SubScale(const Block& b, int g) { return b.scales[g]; }
  static void Codes(const Block& b, int part, uint8_t* q) {
    CopyBits<4>(b.ql + part / 4 * 64 + part % 2 * 32, part % 4 / 2 * 4, q);
    CopyBits<2, 4>(b.qh + part / 4 * 32, part % 4 * 2, q);
  }
  static void SetCode(Block& b, int i, int q) {
    b.ql[i / 128 * 64 + i % 64] |= static_cast<uint8_t>((q & 15) << i % 128 / 64 * 4);
    b.qh[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q >> 4) << i % 128 / 32 * 2);
  }
  static void Head(const Block& b, uint8_t* row) {
    std::memcpy(row, &b.d, 2);
    std::memcpy(row + 2, b.scales, 16);
  }
  static void SetHead(Block& b, const uint8_t* row) {
    std::memcpy(&b.d, row, 2);
    std::memcpy(b.scales, row + 2, 16);
  }

  static void Encode(const float* x, const float* importance, Block& b) {
    b = Block{};
    if (!AllFinite(x, 256)) {
      b.d = kF16NaN;
      return;
    }
    b.d = EncodeSymmetric<Uniform<-32, 31>, 256, 16, -128, 127>(
        x, importance, [&](int g, int scale) { b.scales[g] = static_cast<int8_t>(scale); },
        [&](int i, int q) { SetCode(b, i, q); });
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q6_K_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/integer_format.h"  // once for each target

#if defined(TALLY_FORMATS_Q6_K_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q6_K_VECTORS
#undef TALLY_FORMATS_Q6_K_VECTORS
#else
#define TALLY_FORMATS_Q6_K_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ6_K : FormatQ6_K, IntegerVectors<VectorQ6_K, FormatQ6_K> {
  static HWY_INLINE VI SubScales(HeadOnly sub, int g, int v) {
    const hn::Rebind<int8_t, DF> di8;
    return hn::PromoteTo(DI(), hn::LoadU(di8, reinterpret_cast<const int8_t*>(sub.head) + kPanelRows * (2 + g) + kLanes * v));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
