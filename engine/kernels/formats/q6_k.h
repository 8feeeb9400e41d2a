// Q6_K (ggml's block_q6_K): 256 6-bit integers with an offset of 32, an int8 scale for every 16 of them, and an f16 scale.
//
// Panel, per 256 k: 16 f16 scales (32 bytes), then 8 parts of 32 k, each
//   [2][16] int8 scales, of the two halves
//   4 chunks of 64 bytes: the low 4 bits, in the layout of nibbles.h
//   2 chunks of 64 bytes [16][4]: the high 2 bits; a byte of chunk h holds those of step 4h + s in bits 2s and 2s + 1
#ifndef TALLY_FORMATS_Q6_K_H_
#define TALLY_FORMATS_Q6_K_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/panel_row.h"

namespace tally {

struct BlockQ6_K {  // x[i] = (d * scales[i / 16]) * (q[i] - 32), q[i] = Low(i) | High(i) << 4
  uint8_t ql[128];  // 64 bytes for every 128 elements: elements 0 to 63 in the low nibbles, 64 to 127 in the high nibbles
  uint8_t qh[64];   // 32 bytes for every 128 elements: element 32 n + i in bits 2n and 2n + 1 of byte i
  int8_t scales[16];
  uint16_t d;  // f16 bits
};

struct FormatQ6_K {
  using Block = BlockQ6_K;
  static constexpr DType kType = DType::kQ6_K;
  static constexpr int kPanelCols = 256, kScaleWords = 3;
  static constexpr auto kStrips = [] {
    constexpr uint8_t kPart[] = {1, 1, 4, 4, 4, 4, 4, 4};
    std::array<uint8_t, 1 + 8 * 8> strips{2};
    for (size_t i = 1; i < strips.size(); ++i) strips[i] = kPart[(i - 1) % 8];
    return strips;
  }();
  static constexpr ActFormat kInt8 = {.kind = ActKind::kInt8, .offset = 32, .scale_mul = 1, .sums = 2};
  static constexpr bool kNarrow = true;
  // Per weight: subtracts the offset and multiplies by the scale; for every 16 weights, the product of the two scales.
  static constexpr WideningFlops kWidening = {.rows = 66, .panels = 66, .vectors = 66};

  // A panel row: d, then parts.
  struct Part {
    int8_t scales[2];
    uint8_t low[16], high[8];
    int Quant(int i) const {  // element i of 32, offset subtracted
      const int low_bits = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
      return (low_bits | (high[i / 16 * 4 + i % 4] >> (i % 16 / 4 * 2) & 3) << 4) - 32;
    }
  };
  static Part PartOf(const uint8_t* row, int part) { return LoadAt<Part>(row + 2 + static_cast<size_t>(part) * sizeof(Part)); }

  static int Quant(const Block& b, int i) {
    const int byte = i / 128 * 64 + i % 64, quarter = i % 128 / 32;
    const int low = quarter < 2 ? b.ql[byte] & 15 : b.ql[byte] >> 4;
    return (low | (b.qh[i / 128 * 32 + i % 32] >> 2 * quarter & 3) << 4) - 32;
  }

  static void Decode(const Block& b, float* out) {
    const float d = F16ToF32(b.d);
    for (int i = 0; i < 256; ++i) out[i] = d * static_cast<float>(b.scales[i / 16]) * static_cast<float>(Quant(b, i));
  }

  // Every 16 values get the scale with the least squared error among candidates near the one that maps the largest value to -32.
  // The largest of these scales maps to -128. The others become the neighbouring integer with the least squared error.
  static void Encode(const float* x, const float*, Block& b) {
    b = Block{};
    if (!AllFinite(x, 256)) {
      b.d = kF16NaN;
      return;
    }
    float scales[16], extreme = 0;
    for (int s = 0; s < 16; ++s) {
      scales[s] = BestScale(x + 16 * s);
      if (std::fabs(scales[s]) > std::fabs(extreme)) extreme = scales[s];
    }
    b.d = F32ToF16(extreme / -128.0f);
    const float d = F16ToF32(b.d), inverse = InverseScale(d);
    for (int s = 0; s < 16; ++s) {
      int8_t best[16] = {}, q[16];
      float least = INFINITY;
      const long near = std::lround(std::clamp(scales[s] * inverse, -128.0f, 127.0f));
      for (long scale = std::max(near - 1, -128L); scale <= std::min(near + 1, 127L); ++scale) {
        const float error = Quantise(x + 16 * s, d * static_cast<float>(scale), q);
        if (!(error < least)) continue;
        least = error;
        b.scales[s] = static_cast<int8_t>(scale);
        std::copy(q, q + 16, best);
      }
      for (int i = 0; i < 16; ++i) Put(16 * s + i, best[i] + 32, b);
    }
  }

  static void PanelRow(const Block& b, uint8_t* row) {
    std::memcpy(row, &b.d, 2);
    for (int p = 0; p < 8; ++p) {
      Part part{};
      std::copy(b.scales + 2 * p, b.scales + 2 * p + 2, part.scales);
      for (int i = 0; i < 32; ++i) {
        const int q = Quant(b, 32 * p + i) + 32;
        part.low[i % 16] |= static_cast<uint8_t>((q & 15) << (i / 16 * 4));
        part.high[i / 16 * 4 + i % 4] |= static_cast<uint8_t>((q >> 4) << (i % 16 / 4 * 2));
      }
      std::memcpy(row + 2 + static_cast<size_t>(p) * sizeof(Part), &part, sizeof(Part));
    }
  }
  static void Padding(uint8_t* row) {
    Block zeros{};
    for (int i = 0; i < 256; ++i) Put(i, 32, zeros);
    PanelRow(zeros, row);
  }
  static void DecodePanelRow(const uint8_t* row, float* out) {
    const float d = F16ToF32(LoadAt<uint16_t>(row));
    for (int p = 0; p < 8; ++p, out += 32) {
      const Part part = PartOf(row, p);
      for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(part.scales[i / 16]) * static_cast<float>(part.Quant(i));
    }
  }
  static void Int8Row(const uint8_t* row, int p, Int8Terms& terms) {
    const Part part = PartOf(row, p);
    terms.term[0].scale = F16ToF32(LoadAt<uint16_t>(row));
    for (int i = 0; i < 32; ++i) terms.term[0].w[i] = static_cast<int16_t>(part.scales[i / 16] * part.Quant(i));
  }

 private:
  static void Put(int i, int q, Block& b) {
    const int quarter = i % 128 / 32;
    b.ql[i / 128 * 64 + i % 64] |= static_cast<uint8_t>((q & 15) << (quarter < 2 ? 0 : 4));
    b.qh[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q >> 4) << 2 * quarter);
  }

  // Quantises 16 values to multiples of `scale`. Returns the squared error.
  static float Quantise(const float* x, float scale, int8_t* q) {
    const float inverse = InverseScale(scale);
    float error = 0;
    for (int i = 0; i < 16; ++i) {
      const float n = Nearest(std::clamp(x[i] * inverse, -32.0f, 31.0f));
      q[i] = static_cast<int8_t>(n);
      error += (x[i] - scale * n) * (x[i] - scale * n);
    }
    return error;
  }
  // Rounds to nearest even, for |x| < 2^22.
  static float Nearest(float x) { return x + 12582912.0f - 12582912.0f; }

  static float BestScale(const float* x) {
    float extreme = 0;
    for (int i = 0; i < 16; ++i) {
      if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
    }
    if (std::fabs(extreme) < 1e-30f) return 0;  // far below the smallest f16 scale
    float best = 0;
    double most = -1;  // sum of squares minus the least error so far
    for (int step = -9; step <= 9; ++step) {
      const float inverse = -(32.0f + 0.1f * static_cast<float>(step)) / extreme;
      double xq = 0, qq = 0;
      for (int i = 0; i < 16; ++i) {
        const float n = Nearest(std::clamp(x[i] * inverse, -32.0f, 31.0f));
        xq += static_cast<double>(x[i]) * static_cast<double>(n);
        qq += static_cast<double>(n) * static_cast<double>(n);
      }
      if (xq * xq <= most * qq) continue;
      most = xq * xq / qq;
      best = static_cast<float>(xq / qq);
    }
    return best;
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_Q6_K_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/vectors-inl.h"

#if defined(TALLY_FORMATS_Q6_K_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_Q6_K_VECTORS
#undef TALLY_FORMATS_Q6_K_VECTORS
#else
#define TALLY_FORMATS_Q6_K_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorQ6_K : FormatQ6_K, OneScale<FormatQ6_K> {
  static constexpr bool kWide = false;
  static constexpr int kBlockBytes = kPanelRows * sizeof(Part), kValueFlops = 2;

  struct Cursor {
    const uint8_t* p;  // a part
    const uint8_t* d;  // the f16 scales of its 256 k
    int left;          // parts left in its 256 k
    HWY_INLINE void Next() {
      p += kBlockBytes;
      if (--left == 0) *this = {p + 32, p, 8};
    }
  };
  // `block`: a multiple of 8.
  static HWY_INLINE Cursor At(const uint8_t* panel, int64_t block) {
    const uint8_t* d = panel + block / 8 * static_cast<int64_t>(kPanelBlockBytes<FormatQ6_K>);
    return {d + 32, d, 8};
  }

  static HWY_INLINE VF Word(const Cursor& at, int i, int v) {
    if (i == 0) return F16Scales(at.d, v);
    const hn::Rebind<int8_t, DF> di8;
    return hn::BitCast(DF(),
                       hn::PromoteTo(DI(), hn::LoadU(di8, reinterpret_cast<const int8_t*>(at.p) + 16 * (i - 1) + kLanes * v)));
  }
  static HWY_INLINE void Steps(const Cursor& at, int c, int v, VU8& lo, VU8& hi) {
    const DU8 du8;
    const uint8_t *low = at.p + 32, *high = low + 256 + kVecBytes * v;
    const VU8 x = hn::LoadU(du8, low + 64 * c + kVecBytes * v), mask = hn::Set(du8, 15);
    lo = hn::Or(hn::And(x, mask), HighBits(hn::LoadU(du8, high), c));
    hi = hn::Or(hn::And(ShiftRightBytes<4>(x), mask), HighBits(hn::LoadU(du8, high + 64), c));
  }
  template <class Src>
  static HWY_INLINE VF Value(const Src& src, int h, int v, VF scale, VI q) {
    return hn::Mul(hn::Mul(scale, hn::ConvertTo(DF(), src.PartScale(h, v))), hn::ConvertTo(DF(), q));
  }
  static HWY_INLINE void Widen(const uint8_t* bytes, bool panel, float* HWY_RESTRICT out) {
    panel ? DecodePanelRow(bytes, out) : Decode(LoadAt<Block>(bytes), out);
  }

 private:
  using DU16 = hn::Repartition<uint16_t, DU8>;
  // These shift pairs of bytes: bits cross from a byte to its neighbour.
  template <int kBits>
  static HWY_INLINE VU8 ShiftRightBytes(VU8 x) {
    return hn::BitCast(DU8(), hn::ShiftRight<kBits>(hn::BitCast(DU16(), x)));
  }
  template <int kBits>
  static HWY_INLINE VU8 ShiftLeftBytes(VU8 x) {
    return hn::BitCast(DU8(), hn::ShiftLeft<kBits>(hn::BitCast(DU16(), x)));
  }
  // Moves bits 2c and 2c + 1 of each byte to bits 4 and 5. c is a constant after unrolling.
  static HWY_INLINE VU8 HighBits(VU8 h, int c) {
    const VU8 at_four = c == 0 ? ShiftLeftBytes<4>(h) : c == 1 ? ShiftLeftBytes<2>(h) : c == 2 ? h : ShiftRightBytes<2>(h);
    return hn::And(at_four, hn::Set(DU8(), 0x30));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
