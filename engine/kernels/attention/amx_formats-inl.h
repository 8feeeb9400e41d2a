// SPDX-License-Identifier: Apache-2.0
// KV formats as bf16 tiles. A number of an f16 cache is the sum of two bf16, hi (to nearest) and what is left, which is exact for a key or
// value; one of a bf16 cache is a bf16; one of a q8_0 cache is rounded to bf16.
#include <cstdint>
#include <cstring>

#include "engine/kernels/amx-inl.h"
#include "engine/kernels/attention/amx_products-inl.h"
#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/kv_store/kv_formats-inl.h"

#if defined(TALLY_ATTENTION_AMX_FORMATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_ATTENTION_AMX_FORMATS_INL_H
#undef TALLY_ATTENTION_AMX_FORMATS_INL_H
#else
#define TALLY_ATTENTION_AMX_FORMATS_INL_H
#endif

#if TALLY_AMX

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

using VU = hn::Vec<KvWords>;
// Two vectors of f32 as bf16, those of `first` first; to nearest even, subnormals as zeros. By AVX512_BF16, which X86Features::amx has.
HWY_INLINE VU ToBF16(VF first, VF second) {
  __m512i out;
  asm("vcvtne2ps2bf16 %[first], %[second], %[out]" : [out] "=v"(out) : [first] "v"(first.raw), [second] "v"(second.raw));
  return VU{out};
}
HWY_INLINE VU HighHalf(VU x) { return hn::And(x, hn::Set(kKvWords, 0xffff0000u)); }
// Two vectors of bf16 as words of pairs, from their bits in the high halves. What is in the low halves of `first` goes.
HWY_INLINE VU PairWords(VU first, VU second) { return hn::Or(hn::ShiftRight<16>(first), HighHalf(second)); }
// bf16 in the low or high halves of words as f32.
HWY_INLINE VF LowF32(VU x) { return hn::BitCast(kF32, hn::ShiftLeft<16>(x)); }
HWY_INLINE VF HighF32(VU x) { return hn::BitCast(kF32, HighHalf(x)); }
// 0, or NaN if a bf16 of x is no number.
HWY_INLINE VF NotFinite(VU x, VF sum) {
  const VF zero = hn::Zero(kF32);
  return hn::MulAdd(HighF32(x), zero, hn::MulAdd(LowF32(x), zero, sum));
}
HWY_INLINE void StoreWords(VU x, uint8_t* to) { hn::Store(x, kKvWords, reinterpret_cast<uint32_t*>(to)); }

// x = hi + lo, each as words of the pairs of `first` and `second`. hi is rounded to nearest, ties away from zero; lo towards zero, which is
// exact if they have 11 bits.
HWY_INLINE void SplitPairs(VF first, VF second, VU& hi, VU& lo) {
  const VU half = hn::Set(kKvWords, 0x8000u);
  const VU a = HighHalf(hn::Add(hn::BitCast(kKvWords, first), half)), b = HighHalf(hn::Add(hn::BitCast(kKvWords, second), half));
  hi = hn::Or(hn::ShiftRight<16>(a), b);
  lo = PairWords(hn::BitCast(kKvWords, hn::Sub(first, hn::BitCast(kF32, a))),
                 hn::BitCast(kKvWords, hn::Sub(second, hn::BitCast(kF32, b))));
}

// Lanes of a step of 32 positions that count; the values of others are zeros.
struct StepLanes {
  PositionRange lanes;  // of the block
  int64_t base;         // the step's first lane
  bool whole() const { return lanes.begin <= base && base + kAmxStep <= lanes.end; }
  bool has(int64_t i) const { return lanes.begin <= base + i && base + i < lanes.end; }
  // Of the bf16 in words of lanes i and i + 1.
  VU Pair(int64_t i) const { return hn::Set(kKvWords, (has(i) ? 0x0000ffffu : 0) | (has(i + 1) ? 0xffff0000u : 0)); }
};

// Where the tiles of a step's values go: those of column group i (16 dimensions) from c on, n of them, at base + i * col + p * part.
struct ValueTiles {
  uint8_t* base;
  int64_t col, part;
  int64_t c, n;
};

// The formats.
//   kParts      bf16 that a number is the sum of
//   kDirect     keys and values lie in the cache as tiles; else they are unpacked, by
//   Keys        the tile of 16 positions x step s of d (parts `part` bytes apart)
//   Values      rows [row, row + rows) of the tiles of a step. kCheck: `sum` becomes NaN if one of the step's lanes is no number
//   Probability writes 16 probabilities and the next 16, their parts 64 bytes apart, in the order of the pairs of the values' tiles
template <class Format>
struct AmxFormat;

// Probabilities in bf16, in order.
struct AmxWholeNumbers {
  static constexpr int kParts = 1;
  static HWY_INLINE void Probability(VF x, VF y, uint8_t* to) { StoreWords(ToBF16(x, y), to); }
};

template <>
struct AmxFormat<KvBF16> : AmxWholeNumbers {
  static constexpr bool kDirect = true;
};

// Tiles of pairs (i, i + 16) of 32 positions.
template <>
struct AmxFormat<KvF16> {
  static constexpr int kParts = 2;
  static constexpr bool kDirect = false;

  static HWY_INLINE void Probability(VF x, VF y, uint8_t* to) {
    VU hi, lo;
    SplitPairs(x, y, hi, lo);
    StoreWords(hi, to);
    StoreWords(lo, to + 64);
  }
  static HWY_INLINE void Keys(const KvLayout& l, const uint8_t* share, int64_t group, int64_t s, uint8_t* HWY_RESTRICT to,
                              int64_t part) {
    const hwy::float16_t* HWY_RESTRICT k =
        reinterpret_cast<const hwy::float16_t*>(share + KvF16::KeyAt(l, group * 16, s * kAmxStep));
    for (int64_t d = 0; d < kAmxStep; d += 2, k += 32, to += 64) {
      VU hi, lo;
      SplitPairs(Widen(k), Widen(k + 16), hi, lo);
      StoreWords(hi, to);
      StoreWords(lo, to + part);
    }
  }
  template <bool kCheck>
  static HWY_INLINE void Values(const KvLayout& l, const uint8_t* share, const StepLanes& step, int64_t row, int64_t rows,
                                const ValueTiles& tiles, VF& sum) {
    const VF zero = hn::Zero(kF32);
    const int64_t padded = KvPadded(l.v_dim), later = 16 * padded;
    const bool whole = step.whole();
    VF sums = sum;
    for (int64_t i = row; i < row + rows; ++i) {
      const hwy::float16_t* v = reinterpret_cast<const hwy::float16_t*>(share + KvF16::ValueAt(l, step.base + i, 16 * tiles.c));
      const hwy::float16_t* const end = v + 16 * tiles.n;
      uint8_t* HWY_RESTRICT to = tiles.base + i * 64;
      if (HWY_LIKELY(whole)) {
        for (; v < end; to += tiles.col, v += 16) Pair<kCheck>(Widen(v), Widen(v + later), to, tiles.part, sums);
        continue;
      }
      const bool first = step.has(i), second = step.has(i + 16);
      for (; v < end; to += tiles.col, v += 16) {
        Pair<kCheck>(first ? Widen(v) : zero, second ? Widen(v + later) : zero, to, tiles.part, sums);
      }
    }
    sum = sums;
  }

 private:
  template <bool kCheck>
  static HWY_INLINE void Pair(VF x, VF y, uint8_t* HWY_RESTRICT to, int64_t part, VF& sum) {
    if constexpr (kCheck) sum = hn::MulAdd(x, hn::Zero(kF32), hn::MulAdd(y, hn::Zero(kF32), sum));
    VU hi, lo;
    SplitPairs(x, y, hi, lo);
    StoreWords(hi, to);
    StoreWords(lo, to + part);
  }
};

// Integers times their scales, rounded to bf16. Integers with 128 added are placed in the mantissa of 2^15, which makes them floats; the
// product with the scale less the same of 2^15 + 128 is exact, as a scale has 11 bits.
template <>
struct AmxFormat<KvQ8_0> : AmxWholeNumbers {
  static constexpr bool kDirect = false;

  static HWY_INLINE void Keys(const KvLayout& l, const uint8_t* share, int64_t group, int64_t s, uint8_t* HWY_RESTRICT to,
                              int64_t) {
    const uint8_t* HWY_RESTRICT k = share + KvQ8_0::GroupAt(l, group * 16, s * kAmxStep);
    const hn::Rebind<uint16_t, KvFloats> d16;
    const VF scale = WidenF16(kF32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(k)));
    // Lanes of a vector: positions 0 to 7, or 8 to 15, two elements each.
    const Scaled low(PairOf(scale, 0)), high(PairOf(scale, 8));
    const __m512i i0 = Bytes([](int lane) { return lane / 2 * 4 + lane % 2; }), i2 = Plus(i0, 2), j0 = Plus(i0, 32),
                  j2 = Plus(i0, 34);
    k += 32;
    for (int64_t d = 0; d < kAmxStep; d += 4, k += 64, to += 128) {
      const __m512i x = _mm512_loadu_si512(k);
      StoreWords(ToBF16(low.Of(x, i0), high.Of(x, j0)), to);
      StoreWords(ToBF16(low.Of(x, i2), high.Of(x, j2)), to + 64);
    }
  }
  template <bool kCheck>
  static HWY_INLINE void Values(const KvLayout& l, const uint8_t* share, const StepLanes& step, int64_t row, int64_t rows,
                                const ValueTiles& tiles, VF& sum) {
    const hn::Rebind<uint16_t, KvFloats> d16;
    const hn::Repartition<uint32_t, decltype(d16)> pairs_of_16;
    const __m512i i0 = Bytes([](int lane) { return lane; }), flip = _mm512_set1_epi8(static_cast<char>(0x80));
    const bool whole = step.whole();
    VF sums = sum;
    for (int64_t i = row; i < row + rows; ++i) {
      const VU mask = step.Pair(2 * i);
      uint8_t* HWY_RESTRICT to = tiles.base + i * 64;
      const uint8_t* pair = share + KvQ8_0::PairAt(l, step.base + 2 * i, 16 * tiles.c);
      for (int64_t c = tiles.c; c < tiles.c + tiles.n; pair += KvQ8_0::kPairBytes) {
        uint32_t scales;
        std::memcpy(&scales, pair, 4);
        const Scaled scaled(WidenF16(kF32, hn::BitCast(d16, hn::Set(pairs_of_16, scales))));  // of either position in turn
        const __m512i x = _mm512_xor_si512(_mm512_loadu_si512(pair + 4), flip);
        do {  // one group of 16 dimensions, or two
          const __m512i from = Plus(i0, static_cast<int>(c % 2 * 32));
          VU words = ToBF16(scaled.Of(x, from), scaled.Of(x, Plus(from, 16)));
          if (HWY_UNLIKELY(!whole)) words = hn::And(words, mask);
          if constexpr (kCheck) sums = NotFinite(words, sums);
          StoreWords(words, to);
          to += tiles.col;
        } while (++c % 2 != 0 && c < tiles.c + tiles.n);
      }
    }
    sum = sums;
  }

 private:
  // of(lane): the source of each 32-bit lane's second byte.
  template <class Of>
  static HWY_INLINE __m512i Bytes(const Of& of) {
    alignas(64) uint8_t at[64] = {};
    for (int lane = 0; lane < 16; ++lane) at[4 * lane + 1] = static_cast<uint8_t>(of(lane));
    return _mm512_load_si512(at);
  }
  static HWY_INLINE __m512i Plus(__m512i bytes, int n) { return _mm512_add_epi8(bytes, _mm512_set1_epi8(static_cast<char>(n))); }
  // Elements from .. from + 7, each twice.
  static HWY_INLINE VF PairOf(VF x, int from) {
    const __m512i i = _mm512_srli_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), 1);
    return VF{_mm512_permutexvar_ps(_mm512_add_epi32(i, _mm512_set1_epi32(from)), x.raw)};
  }
  struct Scaled {
    VF scale, base;
    HWY_INLINE explicit Scaled(VF s) : scale(s), base(hn::Mul(s, hn::Set(kF32, 32768.0f + 128.0f))) {}
    HWY_INLINE VF Of(__m512i x, __m512i from) const {
      const __m512i integers = _mm512_mask_permutexvar_epi8(_mm512_set1_epi32(0x47000000), 0x2222222222222222u, from, x);
      return hn::MulSub(VF{_mm512_castsi512_ps(integers)}, scale, base);
    }
  };
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_AMX

#endif  // include guard
