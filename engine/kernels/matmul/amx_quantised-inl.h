// SPDX-License-Identifier: Apache-2.0
// Block-quantised weights times bf16 activations by AMX: weights are decoded, rounded to bf16 and multiplied as BF16 weights are
// (amx_bf16-inl.h). So no scale is applied after the products, which is what bounds int8 products on tiles.
// With few rows decoding is what takes time: for 32 weights, two permutations, two multiply-adds and a conversion are 7 micro-operations
// on the two ports that 512-bit vectors have, 56 cycles a block at least.
//
// The source of weights S of amx_bf16-inl.h, for a Vector<NAME> F of a quantised format.
#include "engine/kernels/matmul/amx_bf16-inl.h"
#include "engine/kernels/matmul/int8-inl.h"

#if defined(TALLY_MATMUL_AMX_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_MATMUL_AMX_QUANTISED_INL_H_
#undef TALLY_MATMUL_AMX_QUANTISED_INL_H_
#else
#define TALLY_MATMUL_AMX_QUANTISED_INL_H_
#endif

#if TALLY_AMX

#include <array>
#include <bit>

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// A row of a tile is two vectors of f32, of outputs 0 to 7 and 8 to 15: lanes 2i and 2i + 1 are a pair of k of output i.
HWY_INLINE VF EachTwice(VF x, int from) {
  alignas(64) static constexpr int32_t kTwice[2][16] = {{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7},
                                                        {8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15}};
  return hn::TableLookupLanes(x, hn::SetTableIndices(DF(), kTwice[from]));
}

// Rounded to nearest even; denormals become zeros, as they are in the product.
HWY_INLINE VU RoundRow(VF first, VF second) {
  VU row;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(row.raw) : "v"(first.raw), "v"(second.raw));
  return row;
}

// A stored integer u as f32 without a conversion: a byte of a constant kZero, which takes u, is part of the fraction.
template <class F>
struct StoredFloats {
  static constexpr int kByte = F::kWide ? 1 : 2;
  static constexpr float kZero = F::kWide ? 0x1p15f : 0x1p7f;
  // Of u = offset. If its product with a scale is exact, the fused multiply-add that removes it gives the bits of scale * q; an
  // infinite scale gives NaN.
  static constexpr int kOffset = static_cast<int>(kZero) + F::kInt8.offset;
  static constexpr bool kFused =
      !F::kInt8.minima && F::kScaleBits + std::bit_width(unsigned{kOffset}) - std::countr_zero(unsigned{kOffset}) <= 24;

  VI from[2][2];  // bytes of k % 4 / 2 and of the outputs' half

  HWY_INLINE StoredFloats() {
    alignas(64) static constexpr auto kFrom = [] {
      std::array<std::array<uint8_t, 64>, 4> at{};
      for (int i = 0; i < 4; ++i) {
        for (int lane = 0; lane < 16; ++lane)
          at[i][4 * lane + kByte] = static_cast<uint8_t>(4 * (i % 2 * 8 + lane / 2) + i / 2 * 2 + lane % 2);
      }
      return at;
    }();
    for (int i = 0; i < 4; ++i) from[i / 2][i % 2] = hn::Load(DI(), reinterpret_cast<const int32_t*>(kFrom[i].data()));
  }
  HWY_INLINE VF Of(VU8 step, int pair, int half) const {
    constexpr uint64_t kBytes = 0x1111111111111111u << kByte;
    const VF zero = hn::Set(DF(), kZero);
    return VF{
        _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(_mm512_castps_si512(zero.raw), kBytes, from[pair][half].raw, step.raw))};
  }
};

// The block that `src` is at as a tile: [16 pairs of k][16 outputs] of two bf16.
template <class F>
HWY_INLINE void DecodeTile(const PackedSource<F>& src, const StoredFloats<F>& stored, uint8_t* HWY_RESTRICT tile) {
  using S = StoredFloats<F>;
  const DF df;
  VF scale[2][2], add[2][2];  // of a half of k, and of outputs
  HWY_UNROLL(2) for (int h = 0; h < 2; ++h) {
    const HalfScales<F> half(src, h, 0);
    HWY_UNROLL(2) for (int i = 0; i < 2; ++i) {
      scale[h][i] = EachTwice(half.scale, i);
      add[h][i] = S::kFused ? hn::Mul(scale[h][i], hn::Set(df, -static_cast<float>(S::kOffset))) : EachTwice(half.minimum, i);
    }
  }
  HWY_UNROLL(4) for (int c = 0; c < 4; ++c) {
    VU8 steps[2];
    src.Steps(c, 0, steps[0], steps[1]);
    HWY_UNROLL(2) for (int n = 0; n < 2; ++n) {
      const size_t step = StepOf<F>(c, n), h = step / 4;
      HWY_UNROLL(2) for (int pair = 0; pair < 2; ++pair) {
        VF w[2];
        HWY_UNROLL(2) for (int i = 0; i < 2; ++i) {
          w[i] = stored.Of(steps[n], pair, i);
          if constexpr (!S::kFused) w[i] = hn::Sub(w[i], hn::Set(df, static_cast<float>(S::kOffset)));
          w[i] = S::kFused || F::kInt8.minima ? hn::MulAdd(scale[h][i], w[i], add[h][i]) : hn::Mul(scale[h][i], w[i]);
        }
        hn::Store(RoundRow(w[0], w[1]), DU(), reinterpret_cast<uint32_t*>(tile + 128 * step) + 16 * pair);
      }
    }
  }
}

template <class F>
struct AmxDecoded {
  static constexpr int64_t kPiece = 256;
  static constexpr bool kScaled = false;
  static constexpr size_t kBuffer = 2 * kPiece * 32;

  static PairTiles Pair(const uint8_t* p0, const uint8_t* p1, int64_t k, int64_t n, uint8_t* buffer) {
    const StoredFloats<F> stored;
    for (const auto& [panel, to] : {std::pair{p0, buffer}, {p1, buffer + kBuffer / 2}}) {
      PackedSource<F> src{F::At(panel, k / kInt8Block)};
      for (int64_t b = 0; b < n / kInt8Block; ++b, src.Next()) {
        src.Begin();
        DecodeTile(src, stored, to + 1024 * b);
      }
    }
    return {buffer, buffer + kBuffer / 2, 64, 1024};
  }
};

// At most 16 rows, one panel. Blocks are decoded some ahead: a tile that is loaded right after its bytes were stored would wait for them.
// acc: [rows][32]; 16 columns are written.
template <class F>
HWY_NOINLINE void AmxStreamDecoded(const uint8_t* panel, const uint8_t* x, int64_t rows, int64_t blocks,
                                   float* HWY_RESTRICT acc) {
  constexpr int64_t kAhead = 2;
  alignas(64) uint8_t tiles[kAhead * 1024];
  const StoredFloats<F> stored;
  PackedSource<F> src{F::At(panel, 0)};
  TileZero<0>();
  for (int64_t b = 0; b < blocks + kAhead; ++b) {
    uint8_t* const tile = tiles + b % kAhead * 1024;
    if (b >= kAhead) {
      TileLoad<4>(x, 64);
      TileLoad<6>(tile, 64);
      TileDotBF16<0, 4, 6>();
      x += 64 * rows;
    }
    if (b < blocks) {
      src.Begin();
      DecodeTile(src, stored, tile);
      src.Next();
    }
  }
  TileStore<0>(acc, 32 * sizeof(float));
}

template <class F>
void RunDecodedAmx(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  RunAmxBf16<AmxDecoded<F>>(job, begin, end, scratch,
                            [&](const RowGroup& group, const uint8_t* x, int64_t first, int64_t last) HWY_ATTR {
                              StreamPanels<kAmxRows>(job, group, first, last, [&](const uint8_t* panel, float* to) HWY_ATTR {
                                AmxStreamDecoded<F>(panel, x, group.rows, job.w.cols / kInt8Block, to);
                              });
                            });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_AMX

#endif  // include guard
