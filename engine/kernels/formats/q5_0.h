// Q5_0 (ggml's block_q5_0): 32 5-bit integers with an offset of 16, and an f16 scale.
//
// Panel, per 32 k:
//   16 f16 scales (32 bytes)
//   64 bytes [16][4]: the high bits; bit s of byte i of a row is that of element 4s + i
//   4 chunks of 64 bytes: the low 4 bits, in the layout of nibbles.h
#ifndef TALLY_FORMATS_Q5_0_H_
#define TALLY_FORMATS_Q5_0_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/nibbles.h"

namespace tally {

struct BlockQ5_0 {  // x[i] = d * (q[i] - 16)
  uint16_t d;       // f16 bits
  uint8_t qh[4];    // bit i, counted from the lowest bit of byte 0, is bit 4 of q[i]
  uint8_t qs[16];   // the low 4 bits, as nibbles.h describes them
};

struct FormatQ5_0 {
  using Block = BlockQ5_0;
  static constexpr DType kType = DType::kQ5_0;
  static constexpr int kPanelCols = 32, kScaleWords = 1;
  static constexpr std::array<uint8_t, 6> kStrips = {2, 4, 4, 4, 4, 4};
  static constexpr ActFormat kInt8 = {.kind = ActKind::kInt8, .offset = 16};
  static constexpr bool kNarrow = true;
  // Per weight: subtracts the offset and multiplies by the scale.
  static constexpr WideningFlops kWidening = {.rows = 64, .panels = 64, .vectors = 64};

  static int Quant(const Block& b, int i) { return (Nibble(b.qs, i) | (b.qh[i / 8] >> i % 8 & 1) << 4) - 16; }

  static void Decode(const Block& b, float* out) {
    const float d = F16ToF32(b.d);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(Quant(b, i));
  }

  static void Encode(const float* x, const float*, Block& b) {
    b = Block{};
    if (!AllFinite(x, 32)) {
      b.d = kF16NaN;
      return;
    }
    float extreme = 0;  // the value of largest magnitude, which maps to -16
    for (int i = 0; i < 32; ++i) {
      if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
    }
    const float d = extreme / -16.0f, id = InverseScale(d);
    b.d = F32ToF16(d);
    for (int i = 0; i < 32; ++i) {
      const int q = std::min(31, static_cast<int>(x[i] * id + 16.5f));
      b.qs[i % 16] |= static_cast<uint8_t>((q & 15) << (i / 16 * 4));
      b.qh[i / 8] |= static_cast<uint8_t>((q >> 4) << i % 8);
    }
  }

  // A panel row: the block with its high bits in the panel's order.
  static void PanelRow(const Block& b, uint8_t* row) {
    Block to = b;
    for (int i = 0; i < 4; ++i) {
      int high = 0;
      for (int s = 0; s < 8; ++s) high |= (b.qh[s / 2] >> (4 * (s % 2) + i) & 1) << s;
      to.qh[i] = static_cast<uint8_t>(high);
    }
    std::memcpy(row, &to, sizeof(to));
  }
  static void Padding(uint8_t* row) {
    Block zeros{};
    std::memset(zeros.qh, 0xff, sizeof(zeros.qh));
    PanelRow(zeros, row);
  }
  static void DecodePanelRow(const uint8_t* row, float* out) { Decode(FromPanel(row), out); }
  static void Int8Row(const uint8_t* row, int, Int8Terms& terms) {
    const Block b = FromPanel(row);
    terms.term[0].scale = F16ToF32(b.d);
    for (int i = 0; i < 32; ++i) terms.term[0].w[i] = static_cast<int16_t>(Quant(b, i));
  }

 private:
  static Block FromPanel(const uint8_t* row) {
    const Block from = LoadAt<Block>(row);
    Block b = from;
    for (int byte = 0; byte < 4; ++byte) {
      int high = 0;
      for (int bit = 0; bit < 8; ++bit) high |= (from.qh[bit % 4] >> (2 * byte + bit / 4) & 1) << bit;
      b.qh[byte] = static_cast<uint8_t>(high);
    }
    return b;
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q5_0_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/nibbles.h"  // once for each target

#if defined(TALLY_FORMATS_Q5_0_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q5_0_VECTORS
#undef TALLY_FORMATS_Q5_0_VECTORS
#else
#define TALLY_FORMATS_Q5_0_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ5_0 : FormatQ5_0, OneScale<FormatQ5_0> {
  static constexpr bool kWide = false;
  static HWY_INLINE VF Word(const uint8_t* p, int, int v) { return F16Scales(p, v); }
  static HWY_INLINE void Steps(const uint8_t* p, int c, int v, VU8& lo, VU8& hi) {
    NibbleSteps(p + 96, c, v, lo, hi);
    // Moves bit c of each byte, and bit c + 4, to bit 4. The shifts are of pairs of bytes; the mask drops what crosses.
    const hn::Repartition<uint16_t, DU8> du16;
    const VU8 high = hn::LoadU(DU8(), p + 32 + kVecBytes * v), mask = hn::Set(DU8(), 16);
    const auto pairs = hn::BitCast(du16, high);
    const auto first = c == 0   ? hn::ShiftLeft<4>(pairs)
                       : c == 1 ? hn::ShiftLeft<3>(pairs)
                       : c == 2 ? hn::ShiftLeft<2>(pairs)
                                : hn::ShiftLeft<1>(pairs);
    const auto second = c == 0   ? pairs
                        : c == 1 ? hn::ShiftRight<1>(pairs)
                        : c == 2 ? hn::ShiftRight<2>(pairs)
                                 : hn::ShiftRight<3>(pairs);
    lo = hn::Or(lo, hn::And(hn::BitCast(DU8(), first), mask));
    hi = hn::Or(hi, hn::And(hn::BitCast(DU8(), second), mask));
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
