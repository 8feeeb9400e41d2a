// SPDX-License-Identifier: Apache-2.0
// MXFP4 (OCP Microscaling Formats v1.0): 32 4-bit floats (E2M1) and an E8M0 scale, a power of two. Panels: nibbles.h.
#ifndef TALLY_FORMATS_MXFP4_H_
#define TALLY_FORMATS_MXFP4_H_

#include "engine/kernels/formats/nibbles.h"

namespace tally {

inline constexpr uint8_t kE8M0NaN = 255;

struct BlockMXFP4 {  // x[i] = 2^(e - 127) * kE2M1[q[i]]
  uint8_t e;         // E8M0 scale; 255 (kE8M0NaN) is NaN
  uint8_t qs[16];
};

// Twice the value of each E2M1 code, so that all are integers. The values are 0 .5 1 1.5 2 3 4 6 and their negatives.
inline constexpr int8_t kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 127) as f32: e = 0 gives the subnormal 2^-127, e = 255 NaN.
inline float E8M0ToF32(uint8_t e) {
  if (e == 0) return std::bit_cast<float>(0x00400000u);
  if (e == kE8M0NaN) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(static_cast<uint32_t>(e) << 23);
}

struct FormatMXFP4 : NibbleFormat<FormatMXFP4, BlockMXFP4> {
  static constexpr DType kType = DType::kMXFP4;
  // Kernels use twice the value plus 12.
  static constexpr ActFormat kInt8 = {.kind = ActKind::kInt8, .offset = 12, .scale_mul = 0.5f};
  // Per weight: multiplies by one half and by the scale.
  static constexpr WideningFlops kWidening = {.rows = 64, .panels = 64, .vectors = 64};
  static constexpr const int8_t (&kValues)[16] = kE2M1Doubled;
  static constexpr bool kPowersOf2 = true;

  static float Scale(const Block& b) { return E8M0ToF32(b.e); }

  static void Decode(const Block& b, float* out) {
    const float half = 0.5f, d = E8M0ToF32(b.e);
    for (int i = 0; i < 32; ++i) out[i] = d * (half * static_cast<float>(kE2M1Doubled[Nibble(b.qs, i)]));
  }

  static void Encode(const float* x, const float*, Block& b) {
    if (!AllFinite(x, 32)) {
      b = Block{.e = kE8M0NaN, .qs = {}};
      return;
    }
    float amax = 0;
    for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(x[i]));
    // OCP: the shared exponent is floor(log2(amax)) - 2, since the largest exponent of E2M1 is 2.
    const int e = amax > 0 ? std::clamp(std::ilogb(amax) - 2 + 127, 0, 254) : 0;
    b.e = static_cast<uint8_t>(e);
    const float d = E8M0ToF32(b.e);
    // The nearest value; of two that are as near, the smaller. Powers of two scale exactly.
    auto code = [&](float v) {
      const float a = std::fabs(v) / d;
      int c = 0;
      for (const float between : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) c += a > between ? 1 : 0;
      return c > 0 && v < 0 ? c + 8 : c;
    };
    for (int i = 0; i < 16; ++i) b.qs[i] = static_cast<uint8_t>(code(x[i]) | code(x[i + 16]) << 4);
  }

  static void Padding(uint8_t* row) { std::memset(row, 0, sizeof(Block)); }

  // A block from codes and scale in separate tensors, in Hugging Face's order: byte j of `codes` holds elements 2j and 2j + 1.
  static Block Join(const uint8_t* codes, uint8_t scale) {
    Bytes16 in;
    std::memcpy(&in, codes, sizeof(in));
    const Bytes16 even = in & 15, odd = in >> 4;
    const Bytes16 first = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const Bytes16 second = __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    const Bytes16 out = first | second << 4;
    Block b{.e = scale, .qs = {}};
    std::memcpy(b.qs, &out, sizeof(out));
    return b;
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_MXFP4_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/nibbles.h"  // once for each target

#if defined(TALLY_FORMATS_MXFP4_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_MXFP4_VECTORS
#undef TALLY_FORMATS_MXFP4_VECTORS
#else
#define TALLY_FORMATS_MXFP4_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorMXFP4 : FormatMXFP4, OneScale<FormatMXFP4> {
  static constexpr bool kWide = false, kByteSteps = false;
  static constexpr int kScaleBits = 24;                      // the product with 2^16 may be infinite
  static HWY_INLINE VF Word(const uint8_t* p, int, int v) {  // 2^(e - 127); e = 0: 2^-127; 255: NaN
    const DF df;
    const DI di;
    const hn::Rebind<uint8_t, DF> du8;
    const VI e = hn::PromoteTo(di, hn::LoadU(du8, p + kLanes * v));
    VI bits = hn::ShiftLeft<23>(e);
    bits = hn::IfThenElse(hn::Eq(e, hn::Zero(di)), hn::Set(di, 0x00400000), bits);
    bits = hn::IfThenElse(hn::Eq(e, hn::Set(di, 255)), hn::Set(di, 0x7fc00000), bits);
    return hn::BitCast(df, bits);
  }
  static HWY_INLINE void Steps(const uint8_t* p, int c, int v, VU8& lo, VU8& hi) {
    alignas(16) static constexpr uint8_t kTwiceE2M1Plus12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    const VU8 table = hn::LoadDup128(DU8(), kTwiceE2M1Plus12);
    NibbleSteps(p + 16, c, v, lo, hi);
    lo = hn::TableLookupBytes(table, lo);
    hi = hn::TableLookupBytes(table, hi);
  }
  static HWY_INLINE void Widen(const uint8_t* bytes, bool, float* HWY_RESTRICT out) {
    HWY_ALIGN uint8_t quants[32];
    LookUpNibbles(kE2M1Doubled, bytes + 1, quants);
    ScaleColumns(E8M0ToF32(*bytes), quants, out, 0.5f);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
