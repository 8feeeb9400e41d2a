// SPDX-License-Identifier: Apache-2.0
// FP8 weights: codes in E4M3 (OCP 8-bit Floating Point Specification v1.0: sign, 4 bits of exponent with bias 7, 3 of mantissa; no
// infinity, S.1111.111 is NaN) with an f32 scale for every 128 of a row. Files have the codes and the scales in tensors of their own
// (TensorBinding::scales); a block here is what loading makes of them.
//
// Panel: per 128 k: [16] f32 scales, then [32][16][4] codes: a step of 4 k in the order 0, 2, 1, 3, so that the even and the odd
// bytes of a lane are the pairs (0, 1) and (2, 3) of the bf16 product.
#ifndef TALLY_FORMATS_FP8_H_
#define TALLY_FORMATS_FP8_H_

#include "engine/kernels/formats/panel_row.h"

namespace tally {

struct BlockFP8 {  // x[i] = scale * E4M3(codes[i])
  float scale;
  uint8_t codes[128];
};

// The f32 bits of a code, exactly.
constexpr uint32_t E4M3Bits(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24, magnitude = code & 0x7f;
  if (magnitude == 0x7f) return sign | 0x7fc00000u;
  if (magnitude >= 8) return sign | ((magnitude << 20) + (120u << 23));
  if (magnitude == 0) return sign;
  const int top = magnitude >= 4 ? 2 : magnitude >= 2 ? 1 : 0;  // magnitude * 2^-9
  return sign | static_cast<uint32_t>(127 - 9 + top) << 23 | (magnitude << (23 - top) & 0x7fffffu);
}
inline float E4M3ToF32(uint8_t code) { return std::bit_cast<float>(E4M3Bits(code)); }

// The nearest code, ties to even; beyond 448 the largest. NaN becomes NaN.
inline uint8_t F32ToE4M3(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return static_cast<uint8_t>(sign | 0x7f);
  const float a = std::fabs(x);
  if (a >= 448) return static_cast<uint8_t>(sign | 0x7e);
  const int exponent = std::max(a > 0 ? std::ilogb(a) : -6, -6);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(a, 3 - exponent)));  // of 2^(exponent - 3); 16: the next exponent
  return static_cast<uint8_t>(sign | (steps + 8 * (exponent + 6)));
}

struct FormatFP8 {
  using Block = BlockFP8;
  static constexpr DType kType = DType::kFP8;
  static constexpr ActKind kAct = ActKind::kBF16;
  static constexpr int kPanelCols = 128, kSteps = kPanelCols / 4;
  // Per weight: multiplies by the scale.
  static constexpr WideningFlops kWidening = {.rows = 32, .panels = 32, .vectors = 32};
  static constexpr auto kStrips = [] {
    std::array<uint8_t, 1 + kSteps> strips{};
    strips.fill(4);
    return strips;
  }();
  static constexpr int kOrder[4] = {0, 2, 1, 3};  // of k in a step; its own inverse

  static void Decode(const Block& b, float* out) {
    for (int i = 0; i < kPanelCols; ++i) out[i] = b.scale * E4M3ToF32(b.codes[i]);
  }

  // The largest value becomes 448.
  static void Encode(const float* x, const float*, Block& b) {
    b = {};
    float amax = 0;
    for (int i = 0; i < kPanelCols; ++i) amax = std::max(amax, std::fabs(x[i]));
    b.scale = AllFinite(x, kPanelCols) ? amax / 448 : std::bit_cast<float>(0x7fc00000u);
    const float inverse = InverseScale(b.scale);
    for (int i = 0; i < kPanelCols && amax > 0; ++i) b.codes[i] = std::isnan(b.scale) ? uint8_t{0} : F32ToE4M3(x[i] * inverse);
  }

  static void PanelRow(const Block& b, uint8_t* row) {
    std::memcpy(row, &b.scale, sizeof(b.scale));
    for (int i = 0; i < kPanelCols; ++i) row[4 + (i & ~3) + kOrder[i & 3]] = b.codes[i];
  }
  static void Padding(uint8_t* row) { std::memset(row, 0, sizeof(Block)); }
  static void DecodePanelRow(const uint8_t* row, float* out) {
    const float scale = LoadAt<float>(row);
    for (int i = 0; i < kPanelCols; ++i) out[i] = scale * E4M3ToF32(row[4 + (i & ~3) + kOrder[i & 3]]);
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_FP8_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/bf16.h"  // once for each target

#if defined(TALLY_FORMATS_FP8_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_FP8_VECTORS
#undef TALLY_FORMATS_FP8_VECTORS
#else
#define TALLY_FORMATS_FP8_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// f32 of the codes in the low bytes of `word`, whose other bytes do not matter. d: f32, any lanes.
template <class D, class V>
HWY_INLINE hn::Vec<D> WidenE4M3(D d, V word) {
  const hn::RebindToUnsigned<D> du;
  const auto magnitude = hn::And(word, hn::Set(du, 0x7f)), sign = hn::ShiftLeft<24>(hn::And(word, hn::Set(du, 0x80)));
  const auto normal = hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23)));
  // A subnormal m / 8 * 2^-6 has come out as (1 + m / 8) * 2^-7.
  const auto below = hn::Sub(hn::Add(normal, normal), hn::Set(d, 0x1p-6f));
  auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 8)), hn::BitCast(du, below), hn::BitCast(du, normal));
  bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, 0x7f)), hn::Set(du, 0x7fc00000u), bits);
  return hn::BitCast(d, hn::Or(bits, sign));
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
// The bytes of the bf16 of each magnitude.
struct E4M3Tables {
  alignas(64) uint8_t low[128], high[128];
};
inline constexpr E4M3Tables kE4M3Tables = [] {
  E4M3Tables t{};
  for (int i = 0; i < 128; ++i) {
    const uint32_t bits = E4M3Bits(static_cast<uint8_t>(i)) >> 16;
    t.low[i] = static_cast<uint8_t>(bits);
    t.high[i] = static_cast<uint8_t>(bits >> 8);
  }
  return t;
}();
#endif

// Makes bf16 of a step: the pairs of k (0, 1) and (2, 3), as a panel of BF16 has them.
class E4M3Pairs {
 public:
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  E4M3Pairs() {
    const DU8 d;
    low_[0] = hn::Load(d, kE4M3Tables.low), low_[1] = hn::Load(d, kE4M3Tables.low + 64);
    high_[0] = hn::Load(d, kE4M3Tables.high), high_[1] = hn::Load(d, kE4M3Tables.high + 64);
  }
  HWY_INLINE void Widen(VU step, VU& first, VU& second) const {
    const DU du;
    const DU8 d8;
    const VU8 codes = hn::BitCast(d8, step), seven = hn::Set(d8, 0x7f);
    const auto index = hn::IndicesFromVec(d8, hn::And(codes, seven));
    const VU low = hn::BitCast(du, hn::TwoTablesLookupLanes(d8, low_[0], low_[1], index));
    const VU high = hn::BitCast(du, hn::OrAnd(hn::TwoTablesLookupLanes(d8, high_[0], high_[1], index), codes, hn::Set(d8, 0x80)));
    const VU even = hn::Set(du, 0x00ff00ffu);
    first = hn::Or(hn::And(low, even), hn::ShiftLeft<8>(hn::And(high, even)));
    second = hn::Or(hn::And(hn::ShiftRight<8>(low), even), hn::AndNot(even, high));
  }

 private:
  VU8 low_[2], high_[2];
#else
  HWY_INLINE void Widen(VU step, VU& first, VU& second) const {
    first = Pair(step, hn::ShiftRight<16>(step));
    second = Pair(hn::ShiftRight<8>(step), hn::ShiftRight<24>(step));
  }

 private:
  static HWY_INLINE VU Pair(VU low, VU high) {
    const DU du;
    const VU a = hn::BitCast(du, WidenE4M3(DF(), low)), b = hn::BitCast(du, WidenE4M3(DF(), high));
    return hn::Or(hn::ShiftRight<16>(a), hn::And(b, hn::Set(du, 0xffff0000u)));
  }
#endif
};

struct VectorFP8 : FormatFP8 {
  // A block as stored, or a panel row, to f32.
  static HWY_INLINE void Widen(const uint8_t* bytes, bool panel, float* HWY_RESTRICT out) {
    const hn::CappedTag<float, 32> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<uint8_t, decltype(d)> d8;
    HWY_ALIGN uint8_t ordered[kPanelCols];
    for (int i = 0; i < kPanelCols; ++i) ordered[i] = bytes[4 + (i & ~3) + (panel ? kOrder[i & 3] : i & 3)];
    const auto scale = hn::Set(d, LoadAt<float>(bytes));
    for (size_t i = 0; i < kPanelCols; i += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(scale, WidenE4M3(d, hn::PromoteTo(du, hn::LoadU(d8, ordered + i)))), d, out + i);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
