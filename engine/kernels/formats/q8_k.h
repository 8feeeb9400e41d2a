// SPDX-License-Identifier: Apache-2.0
// Q8_K (ggml's block_q8_K): 256 int8 integers, an f32 scale, and sums of 16 integers, which no kernel here uses.
//
// Panel, per 256 k: 16 f32 scales (64 bytes), then 64 steps of [16][4] u8 = q + 128.
#ifndef TALLY_FORMATS_Q8_K_H_
#define TALLY_FORMATS_Q8_K_H_

#include "engine/kernels/formats/panel_row.h"

namespace tally {

struct BlockQ8_K {  // x[i] = d * qs[i]
  float d;
  int8_t qs[256];
  int16_t bsums[16];  // of 16 integers
};

struct FormatQ8_K {
  using Block = BlockQ8_K;
  static constexpr DType kType = DType::kQ8_K;
  static constexpr int kPanelCols = 256, kScaleWords = 1;
  static constexpr auto kStrips = [] {
    std::array<uint8_t, 65> strips{};
    strips.fill(4);
    return strips;
  }();
  static constexpr ActFormat kInt8 = {.kind = ActKind::kInt8, .offset = 128};
  static constexpr bool kNarrow = false;
  // Per weight: multiplies by the scale; panels also subtract the offset.
  static constexpr WideningFlops kWidening = {.rows = 32, .panels = 64, .vectors = 64};

  static void Decode(const Block& b, float* out) {
    for (int i = 0; i < 256; ++i) out[i] = b.d * static_cast<float>(b.qs[i]);
  }

  static void Encode(const float* x, const float*, Block& b) {
    b = Block{};
    if (!AllFinite(x, 256)) {
      b.d = std::bit_cast<float>(0x7fc00000u);
      return;
    }
    float amax = 0;
    for (int i = 0; i < 256; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float inverse = InverseScale(amax / 127.0f);
    b.d = inverse > 0 ? amax / 127.0f : 0;
    for (int i = 0; i < 256; ++i) {
      b.qs[i] = static_cast<int8_t>(std::clamp(std::lround(x[i] * inverse), -127L, 127L));
      b.bsums[i / 16] = static_cast<int16_t>(b.bsums[i / 16] + b.qs[i]);
    }
  }

  static void PanelRow(const Block& b, uint8_t* row) {
    std::memcpy(row, &b, 260);
    for (int i = 4; i < 260; ++i) row[i] ^= 0x80;
  }
  static void Padding(uint8_t* row) { PanelRow({}, row); }
  static int Quant(const uint8_t* row, int i) { return static_cast<int>(row[4 + i]) - 128; }
  static void DecodePanelRow(const uint8_t* row, float* out) {
    const float d = LoadAt<float>(row);
    for (int i = 0; i < 256; ++i) out[i] = d * static_cast<float>(Quant(row, i));
  }
  static void Int8Row(const uint8_t* row, int part, Int8Terms& terms) {
    terms.scale = LoadAt<float>(row);
    for (int i = 0; i < 32; ++i) terms.w[i] = static_cast<int16_t>(Quant(row, 32 * part + i));
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q8_K_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/vectors-inl.h"

#if defined(TALLY_FORMATS_Q8_K_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q8_K_VECTORS
#undef TALLY_FORMATS_Q8_K_VECTORS
#else
#define TALLY_FORMATS_Q8_K_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ8_K : FormatQ8_K, OneScale<FormatQ8_K> {
  static constexpr bool kWide = true, kByteSteps = true;
  static constexpr int kBlockBytes = 512, kScaleBits = 24;
  struct Cursor {
    const uint8_t* d;
    const uint8_t* p;  // steps
    int part;
    HWY_INLINE void Begin() {}
    HWY_INLINE void Next() {
      p += kBlockBytes;
      if (++part == 8) *this = {p, p + 64, 0};
    }
  };
  static HWY_INLINE Cursor At(const uint8_t* panel, int64_t block) {
    const uint8_t* d = panel + block / 8 * static_cast<int64_t>(kPanelBlockBytes<FormatQ8_K>);
    return {d, d + 64, 0};
  }
  static HWY_INLINE VF Word(const Cursor& at, int, int v) {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(at.d) + kLanes * v);
  }
  static HWY_INLINE void Steps(const Cursor& at, int c, int v, VU8& lo, VU8& hi) {
    lo = hn::LoadU(DU8(), at.p + 128 * c + kVecBytes * v);
    hi = hn::LoadU(DU8(), at.p + 128 * c + 64 + kVecBytes * v);
  }
  static HWY_INLINE void Widen(const uint8_t* bytes, bool panel, float* HWY_RESTRICT out) {
    panel ? DecodePanelRow(bytes, out) : Decode(LoadAt<Block>(bytes), out);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
