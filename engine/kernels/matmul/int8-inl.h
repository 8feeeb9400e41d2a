// SPDX-License-Identifier: Apache-2.0
// int8 dot products of block-quantised weights with int8 activations.
//
// Per block of 32 k: d = sum q_w q_x, exact in int32; then acc = fma(float(d), w_scale * x_scale, acc), blocks in order. If the
// halves of a block have integer scales s_h, d = sum_h s_h sum q_w q_x, |d| < 2^24. With minima m, then for each part
// acc = fma(m, x_scale * float(sum q_x), acc). The integers are exact with any instructions,
// so every target with a fused multiply-add gives the same bits.
//   dot_vnni-inl.h      targets with a u8 x s8 dot product
//   dot_maddubs-inl.h   others: products of bytes summed in pairs
//   decoded-inl.h       many rows: panels are decoded first, and the products are the same for all formats of a DecodedShape
//   amx_int8-inl.h      many rows where there are matrix tiles
//   dot_arm-inl.h       Arm's products, chosen at run time
#include "engine/base/byte_dot.h"
#include "engine/kernels/amx-inl.h"
#include "engine/kernels/arm-inl.h"
#include "engine/kernels/matmul/tile-inl.h"

#if defined(TALLY_MATMUL_INT8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_MATMUL_INT8_INL_H_
#undef TALLY_MATMUL_INT8_INL_H_
#else
#define TALLY_MATMUL_INT8_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
inline constexpr bool kHasDot = true;
#else
inline constexpr bool kHasDot = false;
#endif
// Parts of a block with a sum and a scale each.
template <class F>
inline constexpr int kParts = F::kInt8.sums;
// Minima of a block, and the first one's scale word.
template <class F>
inline constexpr int kMinima = F::kInt8.minimum_sums();
template <class F>
inline constexpr int kMinimumWord = F::kScaleWords - kMinima<F>;

// Offsets in a tile's block of activations (act_pack.h), in units of 4 bytes x the rows of the tile.
inline constexpr size_t kScalesAt = 8, kCorrectionsAt = 9;
template <class F>
inline constexpr size_t kPairCorrectionsAt = 9 + kParts<F>;
template <class F>
inline constexpr size_t kBlockWords = Int8BlockBytes(kParts<F>) / 4;

// Initial value of the integer sum of part `part`. `corrections`: of the row, `step` bytes apart.
template <class F>
HWY_INLINE VI StartSum(const uint8_t* corrections, size_t step, int part) {
  return F::kInt8.minima ? hn::Zero(DI()) : Broadcast4(corrections + static_cast<size_t>(part) * step);
}

// The f32 numbers of a block in vector v of a panel's rows.
template <class F>
struct BlockScales {
  VF scale;
  VI part[kParts<F>];  // integer scales of the parts, if there are two
  VF minimum[kMinima<F> == 0 ? 1 : kMinima<F>];

  template <class Src>
  HWY_INLINE void Read(const Src& src, int v) {
    scale = src.Word(0, v);
    if constexpr (kParts<F> == 2) HWY_UNROLL(2) for (int h = 0; h < 2; ++h) part[h] = src.PartScale(h, v);
    HWY_UNROLL(2) for (int i = 0; i < kMinima<F>; ++i) minimum[i] = src.Word(kMinimumWord<F> + i, v);
  }
  // acc + the block's products with a row of activations. `corrections` as in StartSum.
  HWY_INLINE VF Accumulate(VI sum, VF x_scale, const uint8_t* corrections, size_t step, VF acc) const {
    acc = hn::MulAdd(hn::ConvertTo(DF(), sum), hn::Mul(scale, x_scale), acc);
    HWY_UNROLL(2) for (size_t i = 0; i < kMinima<F>; ++i) {
      acc = hn::MulAdd(minimum[i], hn::BitCast(DF(), Broadcast4(corrections + i * step)), acc);
    }
    return acc;
  }
};

// The f32 numbers of half h of a block, in vector v of a panel's rows: weights are scale * q, plus the minimum if there are minima.
template <class F>
struct HalfScales {
  VF scale, minimum;

  template <class Src>
  HWY_INLINE HalfScales(const Src& src, int h, int v) {
    scale = src.Word(0, v);
    if constexpr (kParts<F> == 2) scale = hn::Mul(scale, hn::ConvertTo(DF(), src.PartScale(h, v)));
    if constexpr (F::kInt8.scale_mul != 1) scale = hn::Mul(scale, hn::Set(DF(), F::kInt8.scale_mul));
    minimum = kMinima<F> == 0 ? hn::Zero(DF()) : src.Word(kMinimumWord<F> + (kMinima<F> == 2 ? h : 0), v);
  }
};

// The eight steps of a block (4 bytes for each of 16 rows) are processed in pairs: steps that share bytes in a nibble format,
// neighbours if each byte is one weight, so that a block is read from front to back. StepOf(c, h): half h of pair c.
template <class F>
constexpr size_t StepOf(int c, int h) {
  return static_cast<size_t>(F::kByteSteps ? 2 * c + h : c + 4 * h);
}

// Sources of a panel's blocks for a microkernel: PackedSource reads the panel; DecodedSource reads scratch, per block
// kDecodedBytes and [kScaleWords][16] words.
template <class F>
struct PackedSource {
  typename F::Cursor at;
  HWY_INLINE VF Word(int i, int v) const { return F::Word(at, i, v); }
  HWY_INLINE VI PartScale(int h, int v) const { return hn::BitCast(DI(), Word(1 + h, v)); }
  HWY_INLINE void Steps(int c, int v, VU8& lo, VU8& hi) const { F::Steps(at, c, v, lo, hi); }
  HWY_INLINE VU8 Step(int k, int v) const {
    VU8 lo, hi;
    Steps(F::kByteSteps ? k / 2 : k % 4, v, lo, hi);
    return (F::kByteSteps ? k % 2 : k / 4) == 0 ? lo : hi;  // k is a constant after unrolling, so the other one is not computed
  }
  // Weights of 8 bits without a dot product: |w| of step k, its signs, x with them, and what the sum of the products starts at.
  HWY_INLINE hn::Vec<DI8> Sign(int k, int v) const { return hn::BitCast(DI8(), hn::Xor(Step(k, v), hn::Set(DU8(), 0x80))); }
  HWY_INLINE VU8 Magnitude(int k, int v) const { return hn::BitCast(DU8(), hn::Abs(Sign(k, v))); }  // |-128| = 128 as unsigned
  static HWY_INLINE hn::Vec<DI8> WithSign(hn::Vec<DI8> w, hn::Vec<DI8> x) {
    return hn::IfNegativeThenNegOrUndefIfZero(w, x);  // w = 0 is harmless, as its magnitude is 0
  }
  HWY_INLINE VI NegativeSum(int) const { return hn::Zero(DI()); }
  // To be called before a block is read. kManyRows: it is multiplied by 5 rows or more.
  template <bool kManyRows = false>
  HWY_INLINE void Begin() {
    at.Begin();
    HWY_UNROLL(9) for (int i = 0; i < F::kBlockBytes; i += 64) PrefetchStream<kManyRows>(at.p + i);
  }
  // The same for a block that has been read before.
  HWY_INLINE void Again() { at.Begin(); }
  HWY_INLINE void Next() { at.Next(); }
};

// A block decoded for DecodedSource<F, kSigned>: [8][64] u8, as Step gives them; or for wide formats without a dot product [8][64] u8
// |w|, [8][64] i8 masks, -1 where w < 0, and [16] i32 sums of |w| where w < 0.
template <bool kSigned>
inline constexpr int kDecodedBytes = kSigned ? 1024 + 4 * kPanelRows : 512;

template <class F, bool kSigned = false>
struct DecodedSource {
  const uint8_t* q;
  const float* s;
  HWY_INLINE VF Word(int i, int v) const { return hn::Load(DF(), s + kPanelRows * i + kLanes * v); }
  HWY_INLINE VI PartScale(int h, int v) const { return hn::BitCast(DI(), Word(1 + h, v)); }
  HWY_INLINE void Steps(int c, int v, VU8& lo, VU8& hi) const {
    lo = hn::Load(DU8(), q + 64 * StepOf<F>(c, 0) + kVecBytes * v);
    hi = hn::Load(DU8(), q + 64 * StepOf<F>(c, 1) + kVecBytes * v);
  }
  HWY_INLINE VU8 Step(int k, int v) const { return hn::Load(DU8(), q + 64 * k + kVecBytes * v); }
  HWY_INLINE VU8 Magnitude(int k, int v) const { return Step(k, v); }
  HWY_INLINE hn::Vec<DI8> Sign(int k, int v) const {
    return hn::BitCast(DI8(), hn::Load(DU8(), q + 512 + 64 * k + kVecBytes * v));
  }
  static HWY_INLINE hn::Vec<DI8> WithSign(hn::Vec<DI8> mask, hn::Vec<DI8> x) { return hn::Xor(x, mask); }
  HWY_INLINE VI NegativeSum(int v) const { return hn::BitCast(DI(), hn::Load(DU8(), q + 1024 + kVecBytes * v)); }
  template <bool>
  HWY_INLINE void Begin() {}
  HWY_INLINE void Again() {}
  HWY_INLINE void Next() {
    q += kDecodedBytes<kSigned>;
    s += kPanelRows * F::kScaleWords;
  }
};

// Decodes blocks [first, first + blocks) of a panel for DecodedSource.
template <class F, bool kSigned = false>
void DecodePanel(const uint8_t* panel, int64_t first, int64_t blocks, uint8_t* HWY_RESTRICT q, float* HWY_RESTRICT s) {
  const DU8 du8;
  PackedSource<F> src{F::At(panel, first)};
  for (int64_t b = 0; b < blocks; ++b, src.Next(), q += kDecodedBytes<kSigned>, s += kPanelRows * F::kScaleWords) {
    src.Begin();
    for (int v = 0; v < kPanelVecs; ++v) {
      HWY_UNROLL(4) for (int i = 0; i < F::kScaleWords; ++i) hn::Store(src.Word(i, v), DF(), s + kPanelRows * i + kLanes * v);
      auto negative = hn::Zero(DI());
      HWY_UNROLL(8) for (int k = 0; k < 8; ++k) {
        uint8_t* to = q + 64 * k + kVecBytes * v;
        if constexpr (kSigned) {
          const auto w = src.Sign(k, v);
          const auto mask = hn::VecFromMask(DI8(), hn::Lt(w, hn::Zero(DI8())));
          const VU8 magnitude = src.Magnitude(k, v);
          hn::Store(magnitude, du8, to);
          hn::Store(hn::BitCast(du8, mask), du8, to + 512);
          const auto pairs = hn::SatWidenMulPairwiseAdd(DI16(), magnitude, hn::And(mask, hn::Set(DI8(), 1)));
          negative = hn::Add(negative, hn::WidenMulPairwiseAdd(DI(), pairs, hn::Set(DI16(), 1)));
        } else {
          hn::Store(src.Step(k, v), du8, to);
        }
      }
      if constexpr (kSigned) hn::Store(hn::BitCast(du8, negative), du8, q + 1024 + kVecBytes * v);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#include "engine/kernels/matmul/dot_vnni-inl.h"
#else
#include "engine/kernels/matmul/dot_maddubs-inl.h"
#endif
#if TALLY_ARM
#include "engine/kernels/matmul/dot_arm-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// What the product of decoded blocks depends on of a format. Formats that agree in it share the product (products_hwy.cc).
template <int kSumsOf, int kMinimaOf, int kWordsOf, bool kWideOf, int kPiecesOf, bool kPowersOf2Of>
struct DecodedShape {
  static constexpr ActFormat kInt8 = {.kind = ActKind::kInt8, .sums = kSumsOf, .minima = kMinimaOf > 0};
  static constexpr int kScaleWords = kWordsOf, kPieces = kPiecesOf;
  static constexpr bool kWide = kWideOf, kAddsExponents = kPowersOf2Of;
  // Decoded steps are read from front to back, unless the halves of a block have a sum each.
  static constexpr bool kByteSteps = kSumsOf == 1;
};
template <class F>
inline constexpr bool kHasPowersOf2 = requires {
  F::kPowersOf2;
};
template <class F>
using DecodedShapeOf = DecodedShape<kParts<F>, kMinima<F>, F::kScaleWords, F::kWide, F::kPieces, kHasPowersOf2<F>>;

// As DecodePanel; `with_signs` of wide formats alone.
using DecodeInt8 = void (*)(const uint8_t* panel, int64_t first, int64_t blocks, bool with_signs, uint8_t* HWY_RESTRICT q,
                            float* HWY_RESTRICT s);
template <class F>
void DecodeFormat(const uint8_t* panel, int64_t first, int64_t blocks, [[maybe_unused]] bool with_signs, uint8_t* HWY_RESTRICT q,
                  float* HWY_RESTRICT s) {
  static_assert(kInt8PieceBytes / 1024 % (F::kPanelCols / kInt8Block) == 0);  // pieces of a panel are whole blocks
  if constexpr (F::kWide && !kHasDot) {
    if (with_signs) return DecodePanel<F, true>(panel, first, blocks, q, s);
  }
  DecodePanel<F>(panel, first, blocks, q, s);
}

// Many rows: panels are decoded once. S: a DecodedShape.
template <class S>
void RunInt8Group(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch,
                  DecodeInt8 decode);

#if TALLY_AMX
using DecodeTiles = void (*)(const uint8_t* panel, int64_t blocks, uint8_t* HWY_RESTRICT q, float* HWY_RESTRICT s);
// Decodes a panel for tiles: q [blocks][8 steps][16][4] i8, s [blocks][kScaleWords][16] f32.
template <class F>
void DecodeSigned(const uint8_t* panel, int64_t blocks, uint8_t* HWY_RESTRICT q, float* HWY_RESTRICT s) {
  static_assert(kPanelVecs == 1);
  const VU8 offset = hn::Set(DU8(), static_cast<uint8_t>(F::kInt8.offset));
  PackedSource<F> src{F::At(panel, 0)};
  for (int64_t b = 0; b < blocks; ++b, src.Next(), q += 512, s += kPanelRows * F::kScaleWords) {
    src.Begin();
    HWY_UNROLL(2) for (int i = 0; i < F::kScaleWords; ++i) hn::Store(src.Word(i, 0), DF(), s + kPanelRows * i);
    HWY_UNROLL(4) for (int c = 0; c < 4; ++c) {
      VU8 lo, hi;
      src.Steps(c, 0, lo, hi);
      hn::Store(hn::Sub(lo, offset), DU8(), q + 64 * StepOf<F>(c, 0));
      hn::Store(hn::Sub(hi, offset), DU8(), q + 64 * StepOf<F>(c, 1));
    }
  }
}

// The same by matrix tiles, of formats with one scale a block.
template <class S>
void RunAmxInt8Group(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch,
                     DecodeTiles decode);
#endif

template <class F>
void RunInt8(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  ForEachGroup(job, begin, end, [&](const RowGroup& group, int64_t first, int64_t last) HWY_ATTR {
#if TALLY_ARM
    if (RunArmInt8<F>(job, group, first, last, scratch)) return;
#endif
    if (group.rows <= StreamRows(ActKind::kInt8)) {
      const size_t row_bytes = job.x.row_bytes();
      const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin) * row_bytes;
      StreamPanels<StreamRows(ActKind::kInt8)>(job, group, first, last, [&](const uint8_t* panel, float* acc) HWY_ATTR {
        StreamInt8Panel<F>(panel, a, row_bytes, group.rows, job.w.cols / kInt8Block, acc);
      });
      return;
    }
#if TALLY_AMX
    if constexpr (kParts<F> == 1) {
      if (TilingOf(job.x.format, group.rows).run == kInt8Block) {
        return RunAmxInt8Group<DecodedShapeOf<F>>(job, group, first, last, scratch, DecodeSigned<F>);
      }
    }
#endif
    RunInt8Group<DecodedShapeOf<F>>(job, group, first, last, scratch, DecodeFormat<F>);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
