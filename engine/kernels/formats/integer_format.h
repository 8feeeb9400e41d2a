// SPDX-License-Identifier: Apache-2.0
// Formats of integers of 2 to 6 bits with a scale, and perhaps a minimum, for every group of 16 or 32 elements:
//   x = scale * (q - offset)      or, with minima,      x = scale * q + minimum
// Blocks have 32 elements and an f16 scale d (and an f16 minimum), or 256 and f16 numbers that small integers multiply: the group's
// scale is d * SubScale, its minimum Minimum.
//
// Panel row of a block: the head (the f16 scale d, with minima a second f16, then single bytes), and for every 32 elements the bit
// planes of q, strips of 4 bytes. Byte b of a strip belongs to elements 4s + b of steps s = 0..7:
//   2 strips if bits & 2        2 bits above the low 4, if there are 4: strip h has those of step 4h + s in bits 2s and 2s + 1
//   1 strip if bits & 1         the highest bit: of step s in bit s
//   4 strips if bits >= 4       the low 4 bits: strip c has step c in its low nibbles, step c + 4 in its high nibbles
// Kernels read planes from front to back, as the processor's prefetcher of streams wants it: the strips that every step needs are first.
//
// A struct Format<NAME> : IntegerFormat<Format<NAME>, Block, shape> defines
//   D(const Block&)                    d as f32
//   Minimum(const Block&, group)       if shape.minima
//   SubScale(const Block&, group)      if blocks have 256 elements
//   Codes(const Block&, part, uint8_t*)                   q of elements [32 part, 32 part + 32)
//   SetCode(Block&, i, code)                              sets q of element i, whose bits are 0
//   Head(const Block&, uint8_t*), SetHead(Block&, const uint8_t*)     unless the block starts with the head as a panel has it
//   kValues                            optional: int8 value of each 4-bit code, instead of q - offset
#ifndef TALLY_FORMATS_INTEGER_FORMAT_H_
#define TALLY_FORMATS_INTEGER_FORMAT_H_

#include "engine/kernels/formats/panel_row.h"

namespace tally {

struct IntegerShape {
  int bits;
  int elements;  // of a block
  int group;     // elements that share a scale
  int offset;    // kernels hold q, or value + offset if there are kValues
  bool minima;
  int head;  // bytes of a panel row before its planes
};

// The planes of 32 integers of `kBits` bits in a panel row.
template <int kBits>
struct Planes {
  static constexpr int kBytes = 4 * kBits;
  static constexpr bool kTwo = (kBits & 2) != 0, kOne = (kBits & 1) != 0, kFour = kBits >= 4;
  static constexpr int kOneAt = kTwo ? 2 : 0, kFourAt = kOneAt + (kOne ? 1 : 0);     // first strips
  static constexpr int kTwoBit = kFour ? 4 : 0, kOneBit = kTwoBit + (kTwo ? 2 : 0);  // lowest bits of q in a plane
  static int Get(const uint8_t* row, int i) {
    const int step = i / 4, byte = i % 4;
    int q = 0;
    if constexpr (kFour) q = row[4 * (kFourAt + step % 4) + byte] >> step / 4 * 4 & 15;
    if constexpr (kTwo) q |= (row[step / 4 * 4 + byte] >> step % 4 * 2 & 3) << kTwoBit;
    if constexpr (kOne) q |= (row[4 * kOneAt + byte] >> step & 1) << kOneBit;
    return q;
  }
  // Sets a row from codes [32].
  static void Set(const uint8_t* q, uint8_t* row) {
    uint64_t steps[4];  // two steps each
    std::memcpy(steps, q, sizeof(steps));
    // The lower half of a word and the upper half, moved by `bits`.
    const auto fold = [](uint64_t x, int bits) { return static_cast<uint32_t>(x) | static_cast<uint32_t>(x >> 32) << bits; };
    if constexpr (kFour) {
      constexpr uint64_t kMask = 0x0f0f0f0f0f0f0f0f;
      const uint64_t words[2] = {(steps[0] & kMask) | (steps[2] & kMask) << 4, (steps[1] & kMask) | (steps[3] & kMask) << 4};
      std::memcpy(row + 4 * kFourAt, words, sizeof(words));
    }
    if constexpr (kTwo) {
      constexpr uint64_t kMask = 0x0303030303030303;
      for (int h = 0; h < 2; ++h) {
        const uint64_t first = steps[2 * h] >> kTwoBit & kMask, second = steps[2 * h + 1] >> kTwoBit & kMask;
        const uint32_t word = fold(first | second << 4, 2);
        std::memcpy(row + 4 * h, &word, sizeof(word));
      }
    }
    if constexpr (kOne) {
      uint64_t bits = 0;
      for (int i = 0; i < 4; ++i) bits |= (steps[i] >> kOneBit & 0x0101010101010101) << 2 * i;
      const uint32_t word = fold(bits, 1);
      std::memcpy(row + 4 * kOneAt, &word, sizeof(word));
    }
  }
};

template <class F, class B, IntegerShape kS>
struct IntegerFormat {
  using Block = B;
  static constexpr IntegerShape kShape = kS;
  static constexpr int kPanelCols = kS.elements, kSums = 32 / kS.group, kMinima = kS.minima ? kSums : 0;
  // The scale; two halves' integer scales; the minima.
  static constexpr int kScaleWords = 1 + (kSums == 2 ? 2 : 0) + kMinima;
  static constexpr ActFormat kInt8 = {
      .kind = ActKind::kInt8, .offset = kS.offset, .scale_mul = 1, .sums = kSums, .minima = kS.minima};
  static constexpr bool kNarrow = kS.offset < 128;
  static constexpr auto kStrips = [] {
    constexpr int kHalves = kS.minima ? 2 : 1, kBytes = kS.head - 2 * kHalves;
    std::array<uint8_t, kHalves + kBytes + kS.elements / 32 * kS.bits> strips{};
    for (size_t i = 0; i < strips.size(); ++i) strips[i] = i < kHalves ? 2 : i < kHalves + kBytes ? 1 : 4;
    return strips;
  }();
  // Per weight: the product by the scale, and the offset or the minimum (values need neither). Per group of a block of 256: products
  // that give the scale and the minimum.
  static constexpr uint64_t kWideningFlops =
      32u * (kS.offset < 128 ? 2 : 1) + (kS.elements > 32 ? kSums * (kS.minima ? 2u : 1u) : 0u);
  static constexpr WideningFlops kWidening = {.rows = kWideningFlops, .panels = kWideningFlops, .vectors = kWideningFlops};

  static int Level(int code) {
    if constexpr (requires { F::kValues; }) {
      return F::kValues[code];
    } else {
      return code - kS.offset;
    }
  }
  static float Scale(const Block& b, int group) {  // exact: at most 11 + 8 bits
    if constexpr (kS.elements > 32) return F::D(b) * static_cast<float>(F::SubScale(b, group));
    return F::D(b);
  }
  static void Decode(const Block& b, float* out) {
    uint8_t q[32];
    for (int part = 0; part < kS.elements / 32; ++part, out += 32) {
      F::Codes(b, part, q);
      for (int h = 0; h < kSums; ++h) {
        const int group = kSums * part + h;
        const float scale = Scale(b, group);
        float minimum = 0;
        if constexpr (kS.minima) minimum = F::Minimum(b, group);
        for (int i = kS.group * h; i < kS.group * (h + 1); ++i) {
          out[i] = scale * static_cast<float>(Level(q[i]));
          if constexpr (kS.minima) out[i] += minimum;
        }
      }
    }
  }
  static int Code(const Block& b, int i) {  // q of element i
    uint8_t q[32];
    F::Codes(b, i / 32, q);
    return q[i % 32];
  }

  static void Head(const Block& b, uint8_t* row) { std::memcpy(row, &b, kS.head); }
  static void SetHead(Block& b, const uint8_t* row) { std::memcpy(&b, row, kS.head); }

  static void PanelRow(const Block& b, uint8_t* row) {
    F::Head(b, row);
    uint8_t q[32];
    for (int part = 0; part < kS.elements / 32; ++part) {
      F::Codes(b, part, q);
      Planes<kS.bits>::Set(q, PlanesOf(row, part));
    }
  }
  static void Padding(uint8_t* row) {
    Block zeros{};
    for (int i = 0; i < kS.elements; ++i) F::SetCode(zeros, i, kS.offset < 128 ? kS.offset : 0);
    PanelRow(zeros, row);
  }
  static void DecodePanelRow(const uint8_t* row, float* out) { F::Decode(FromPanel(row), out); }
  static void Int8Row(const uint8_t* row, int part, Int8Terms& terms) {
    Block b{};
    F::SetHead(b, row);
    terms.scale = kSums == 2 ? F::D(b) : Scale(b, part);
    for (int i = 0; i < 32; ++i) {
      int w = Level(Planes<kS.bits>::Get(PlanesOf(row, part), i));
      if constexpr (kSums == 2) w *= F::SubScale(b, 2 * part + i / 16);
      terms.w[i] = static_cast<int16_t>(w);
    }
    if constexpr (kS.minima) {
      for (int h = 0; h < kSums; ++h) terms.minimum[h] = F::Minimum(b, kSums * part + h);
    }
  }

 private:
  template <class Byte>
  static Byte* PlanesOf(Byte* row, int part) {
    return row + kS.head + part * Planes<kS.bits>::kBytes;
  }
  static Block FromPanel(const uint8_t* row) {
    Block b{};
    F::SetHead(b, row);
    for (int i = 0; i < kS.elements; ++i) F::SetCode(b, i, Planes<kS.bits>::Get(PlanesOf(row, i / 32), i % 32));
    return b;
  }
};

// ggml's order of nibbles, and of the bits above them, in a block of 32: element i and i + 16 share a byte; bit i of four bytes.
inline void NibbleCodes(const uint8_t* qs, uint8_t* q) {
  for (int i = 0; i < 16; ++i) q[i] = qs[i] & 15, q[16 + i] = qs[i] >> 4;
}
inline void AddBits(const uint8_t* bits, uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(q[i] | (bits[i / 8] >> i % 8 & 1) << 4);
}
inline void SetNibble(uint8_t* qs, int i, int q) { qs[i % 16] |= static_cast<uint8_t>((q & 15) << i / 16 * 4); }
inline void SetBit(uint8_t* bits, int i, int bit) { bits[i / 8] |= static_cast<uint8_t>(bit << i % 8); }

// In blocks of 256: kBits bits from bit `from` of 32 bytes. At bit kTo of q: added to it if kTo > 0.
template <int kBits, int kTo = 0>
void CopyBits(const uint8_t* bytes, int from, uint8_t* q) {
  constexpr uint64_t kMask = 0x0101010101010101 * ((1 << kBits) - 1);
  uint64_t in[4], out[4] = {};
  std::memcpy(in, bytes, sizeof(in));
  if constexpr (kTo > 0) std::memcpy(out, q, sizeof(out));
  for (int i = 0; i < 4; ++i) out[i] |= (in[i] >> from & kMask) << kTo;
  std::memcpy(q, out, sizeof(out));
}

}  // namespace tally

#endif  // TALLY_FORMATS_INTEGER_FORMAT_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/vectors-inl.h"

#if defined(TALLY_FORMATS_INTEGER_FORMAT_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_INTEGER_FORMAT_VECTORS
#undef TALLY_FORMATS_INTEGER_FORMAT_VECTORS
#else
#define TALLY_FORMATS_INTEGER_FORMAT_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// Moves bit `from` of each byte, and kBits - 1 above it, to bit kTo. The shifts are of pairs of bytes; the mask drops what crosses.
// `from` is a constant after unrolling.
template <int kBits, int kTo>
HWY_INLINE VU8 MoveBits(VU8 x, int from) {
  const hn::Repartition<uint16_t, DU8> du16;
  const auto pairs = hn::BitCast(du16, x);
  const int left = kTo - from;
  const auto moved = left == 4    ? hn::ShiftLeft<4>(pairs)
                     : left == 3  ? hn::ShiftLeft<3>(pairs)
                     : left == 2  ? hn::ShiftLeft<2>(pairs)
                     : left == 1  ? hn::ShiftLeft<1>(pairs)
                     : left == 0  ? pairs
                     : left == -1 ? hn::ShiftRight<1>(pairs)
                     : left == -2 ? hn::ShiftRight<2>(pairs)
                     : left == -3 ? hn::ShiftRight<3>(pairs)
                     : left == -4 ? hn::ShiftRight<4>(pairs)
                     : left == -5 ? hn::ShiftRight<5>(pairs)
                                  : hn::ShiftRight<6>(pairs);
  return hn::And(hn::BitCast(DU8(), moved), hn::Set(DU8(), static_cast<uint8_t>(((1 << kBits) - 1) << kTo)));
}

// Steps c and c + 4 of planes at p.
template <int kBits>
HWY_INLINE void PlaneSteps(const uint8_t* p, int c, int v, VU8& lo, VU8& hi) {
  static_assert(kBits >= 2 && kBits <= 6);
  using P = Planes<kBits>;
  const auto load = [&](int strip) HWY_ATTR { return hn::LoadU(DU8(), p + 64 * strip + kVecBytes * v); };
  if constexpr (P::kTwo) {
    lo = MoveBits<2, P::kTwoBit>(load(0), 2 * c);
    hi = MoveBits<2, P::kTwoBit>(load(1), 2 * c);
  }
  if constexpr (P::kOne) {
    const VU8 x = load(P::kOneAt), first = MoveBits<1, P::kOneBit>(x, c), second = MoveBits<1, P::kOneBit>(x, c + 4);
    lo = P::kTwo ? hn::Or(lo, first) : first;
    hi = P::kTwo ? hn::Or(hi, second) : second;
  }
  if constexpr (P::kFour) {
    const VU8 x = load(P::kFourAt + c), first = MoveBits<4, 0>(x, 0), second = MoveBits<4, 0>(x, 4);
    lo = P::kFourAt > 0 ? hn::Or(lo, first) : first;
    hi = P::kFourAt > 0 ? hn::Or(hi, second) : second;
  }
}

// Vector v of 16 bytes, one of each row.
HWY_INLINE VI HeadBytes(const uint8_t* p, int v) {
  const hn::Rebind<uint8_t, DF> du8;
  return hn::PromoteTo(DI(), hn::LoadU(du8, p + kLanes * v));
}

// The panel's head itself.
struct HeadOnly {
  const uint8_t* head;
  HWY_INLINE void Read(const uint8_t* p) { head = p; }
};

// Vector<NAME> : Format<NAME>, IntegerVectors<Vector<NAME>, Format<NAME>>. For blocks of 256 it defines, from what Sub::Read took from a
// panel's head,
//   SubScales(sub, group, v)     and if shape.minima SubMinima(sub, group, v), the integer that the second f16, negated, multiplies
template <class V, class F, class Sub = HeadOnly>
struct IntegerVectors : OneScale<F> {
  static constexpr IntegerShape kS = F::kShape;
  static constexpr bool kWide = kS.offset >= 128, kByteSteps = false;
  static constexpr int kParts = kS.elements / 32, kHeadBytes = kPanelRows * kS.head, kPlaneBytes = 64 * kS.bits;
  static constexpr int kBlockBytes = kPlaneBytes + (kParts == 1 ? kHeadBytes : 0);
  static constexpr int kScaleBits = kParts == 1 ? 11 : 11 + 7;
  // Sums of 16 products in 16 bits hold integers of 4 bits, and of 5 if they have a sign.
  static constexpr int kPieces = F::kSums == 2 || (kS.bits == 5 && kS.minima) ? 2 : 1;

  struct Cursor {
    const uint8_t* head;
    const uint8_t* p;  // planes
    int part;          // of the block
    Sub sub;           // of the block, from Begin on
    HWY_INLINE void Begin() {
      if (part == 0) sub.Read(head);
    }
    HWY_INLINE void Next() {
      p += kPlaneBytes;
      if (kParts > 1 && ++part < kParts) return;
      head = p;
      p = head + kHeadBytes;
      part = 0;
    }
  };
  // `block`: a multiple of kParts.
  static HWY_INLINE Cursor At(const uint8_t* panel, int64_t block) {
    Cursor at;
    at.head = panel + block / kParts * static_cast<int64_t>(kPanelBlockBytes<F>);
    at.p = at.head + kHeadBytes;
    at.part = 0;
    return at;
  }

  static HWY_INLINE VF Word(const Cursor& at, int i, int v) {
    if (i == 0) {
      const VF d = F16Scales(at.head, v);
      if constexpr (kParts == 1 || F::kSums == 2) {
        return d;
      } else {
        return hn::Mul(d, hn::ConvertTo(DF(), V::SubScales(at.sub, at.part, v)));
      }
    }
    if constexpr (F::kSums == 2) {
      if (i <= 2) return hn::BitCast(DF(), V::SubScales(at.sub, 2 * at.part + i - 1, v));
    }
    if constexpr (kS.minima) {
      const VF m = F16Scales(at.head + 2 * kPanelRows, v);
      if constexpr (kParts == 1) {
        return m;
      } else {
        const int group = F::kSums == 2 ? 2 * at.part + i - 3 : at.part;
        return hn::Neg(hn::Mul(m, hn::ConvertTo(DF(), V::SubMinima(at.sub, group, v))));
      }
    }
    return hn::Zero(DF());
  }
  static HWY_INLINE void Steps(const Cursor& at, int c, int v, VU8& lo, VU8& hi) {
    PlaneSteps<kS.bits>(at.p, c, v, lo, hi);
    if constexpr (requires { F::kValues; }) {
      alignas(16) static constexpr auto kTable = [] {
        std::array<uint8_t, 16> table{};
        for (size_t i = 0; i < 16; ++i) table[i] = static_cast<uint8_t>(F::kValues[i] + kS.offset);
        return table;
      }();
      const VU8 table = hn::LoadDup128(DU8(), kTable.data());
      lo = hn::TableLookupBytes(table, lo);
      hi = hn::TableLookupBytes(table, hi);
    }
  }
  static HWY_INLINE void Widen(const uint8_t* bytes, bool panel, float* HWY_RESTRICT out) {
    panel ? F::DecodePanelRow(bytes, out) : F::Decode(LoadAt<typename F::Block>(bytes), out);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
