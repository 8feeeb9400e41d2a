// SPDX-License-Identifier: Apache-2.0
// Q8_0 (ggml's block_q8_0): 32 int8 integers and an f16 scale.
//
// Panel, per 32 k: 16 f16 scales (32 bytes), then 8 steps of [16][4] u8 = q + 128.
#ifndef TALLY_FORMATS_Q8_0_H_
#define TALLY_FORMATS_Q8_0_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/panel_row.h"

namespace tally {

struct BlockQ8_0 {  // x[i] = d * qs[i]
  uint16_t d;       // f16 bits
  int8_t qs[32];
};

struct FormatQ8_0 {
  using Block = BlockQ8_0;
  static constexpr DType kType = DType::kQ8_0;
  static constexpr int kPanelCols = 32, kScaleWords = 1;
  static constexpr std::array<uint8_t, 9> kStrips = {2, 4, 4, 4, 4, 4, 4, 4, 4};
  static constexpr ActFormat kInt8 = {.kind = ActKind::kInt8, .offset = 128};
  static constexpr bool kNarrow = false;
  // Per weight: multiplies by the scale; panels also subtract the offset, which the Highway kernel does by flipping a bit.
  static constexpr WideningFlops kWidening = {.rows = 32, .panels = 64, .vectors = 32};

  static void Decode(const Block& b, float* out) {
    const float d = F16ToF32(b.d);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(b.qs[i]);
  }

  // A scale beyond the largest f16 (values beyond 8e6) becomes infinite.
  static void Encode(const float* x, const float*, Block& b) {
    if (!AllFinite(x, 32)) {
      b = Block{.d = kF16NaN, .qs = {}};
      return;
    }
    float amax = 0;
    for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float d = amax / 127.0f, id = InverseScale(d);
    b.d = F32ToF16(d);
    for (int i = 0; i < 32; ++i) b.qs[i] = static_cast<int8_t>(std::clamp(std::lround(x[i] * id), -127L, 127L));
  }

  static void PanelRow(const Block& b, uint8_t* row) {
    std::memcpy(row, &b.d, 2);
    for (int i = 0; i < 32; ++i) row[2 + i] = static_cast<uint8_t>(b.qs[i] ^ 0x80);
  }
  static void Padding(uint8_t* row) { PanelRow({}, row); }
  static int Quant(const uint8_t* row, int i) { return static_cast<int>(row[2 + i]) - 128; }
  static void DecodePanelRow(const uint8_t* row, float* out) {
    const float d = F16ToF32(LoadAt<uint16_t>(row));
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(Quant(row, i));
  }
  static void Int8Row(const uint8_t* row, int, Int8Terms& terms) {
    terms.scale = F16ToF32(LoadAt<uint16_t>(row));
    for (int i = 0; i < 32; ++i) terms.w[i] = static_cast<int16_t>(Quant(row, i));
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q8_0_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/vectors-inl.h"

#if defined(TALLY_FORMATS_Q8_0_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q8_0_VECTORS
#undef TALLY_FORMATS_Q8_0_VECTORS
#else
#define TALLY_FORMATS_Q8_0_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ8_0 : FormatQ8_0, OneScale<FormatQ8_0> {
  static constexpr bool kWide = true, kByteSteps = true;
  static HWY_INLINE VF Word(const uint8_t* p, int, int v) { return F16Scales(p, v); }
  static HWY_INLINE void Steps(const uint8_t* p, int c, int v, VU8& lo, VU8& hi) {
    const DU8 du8;
    lo = hn::LoadU(du8, p + 32 + 128 * c + kVecBytes * v);
    hi = hn::LoadU(du8, p + 32 + 128 * c + 64 + kVecBytes * v);
  }
  static HWY_INLINE void Widen(const uint8_t* bytes, bool panel, float* HWY_RESTRICT out) {
    const hn::FixedTag<uint8_t, 16> d8;
    HWY_ALIGN uint8_t quants[32];
    const auto offset = hn::Set(d8, panel ? 0x80 : 0);
    for (int i : {0, 16}) hn::Store(hn::Xor(hn::LoadU(d8, bytes + 2 + i), offset), d8, quants + i);
    ScaleColumns(F16ToF32(LoadAt<uint16_t>(bytes)), quants, out);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
