// SPDX-License-Identifier: Apache-2.0
// Block-quantised weights times bf16 activations by AMX: weights are decoded, rounded to bf16 and multiplied as BF16 weights are
// (amx_bf16-inl.h). So no scale is applied after the products, which is what bounds int8 products on tiles.
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

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// {even, odd} of each lane, rounded to nearest; denormals become zeros, as they are in the product.
HWY_INLINE VU RoundPairs(VF even, VF odd) {
  const hn::Repartition<uint16_t, DF> du16;
  alignas(64) static constexpr uint16_t kInTurn[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  hn::Vec<decltype(du16)> halves;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves.raw) : "v"(even.raw), "v"(odd.raw));
  return hn::BitCast(DU(), hn::TableLookupLanes(halves, hn::SetTableIndices(du16, kInTurn)));
}

// The block that `src` is at as a tile: [16 pairs of k][16 outputs] of two bf16.
template <class F>
HWY_INLINE void DecodeTile(const PackedSource<F>& src, uint8_t* HWY_RESTRICT tile) {
  const DI di;
  const DU du;
  const VF scale = src.Word(0, 0);
  HWY_UNROLL(4) for (int c = 0; c < 4; ++c) {
    VU8 steps[2];
    src.Steps(c, 0, steps[0], steps[1]);
    HWY_UNROLL(2) for (int h = 0; h < 2; ++h) {
      const int step = StepOf<F>(c, h);
      const VU word = hn::BitCast(du, steps[h]);
      const VU stored[4] = {hn::And(word, hn::Set(du, 255)), hn::ShiftRight<24>(hn::ShiftLeft<16>(word)),
                            hn::ShiftRight<24>(hn::ShiftLeft<8>(word)), hn::ShiftRight<24>(word)};
      VF v[4];
      HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
        v[i] = F::Value(src, step / 4, 0, scale, hn::Sub(hn::BitCast(di, stored[i]), hn::Set(di, F::kInt8.offset)));
      }
      uint32_t* const to = reinterpret_cast<uint32_t*>(tile + 128 * step);
      hn::Store(RoundPairs(v[0], v[1]), du, to);
      hn::Store(RoundPairs(v[2], v[3]), du, to + 16);
    }
  }
}

template <class F>
HWY_INLINE void DecodeTiles(PackedSource<F>& src, int64_t blocks, uint8_t* HWY_RESTRICT tiles) {
  for (int64_t b = 0; b < blocks; ++b, tiles += 1024) {
    src.Begin();
    DecodeTile(src, tiles);
    src.Next();
  }
}

template <class F>
struct AmxDecoded {
  static constexpr int64_t kPiece = 256;
  static constexpr bool kScaled = false;
  static constexpr size_t kBuffer = 2 * kPiece * 32;

  static PairTiles Pair(const uint8_t* p0, const uint8_t* p1, int64_t k, int64_t n, uint8_t* buffer) {
    for (const auto& [panel, to] : {std::pair{p0, buffer}, {p1, buffer + kBuffer / 2}}) {
      PackedSource<F> src{F::At(panel, k / kInt8Block)};
      DecodeTiles(src, n / kInt8Block, to);
    }
    return {buffer, buffer + kBuffer / 2, 64, 1024};
  }
};

// At most 16 rows, one panel. Blocks are decoded some ahead: a tile that is loaded right after its bytes were stored would wait for them.
// acc: [rows][32]; 16 columns are written.
template <class F>
HWY_NOINLINE void AmxStreamDecoded(const uint8_t* panel, const uint8_t* x, int64_t rows, int64_t blocks,
                                   float* HWY_RESTRICT acc) {
  constexpr int64_t kAhead = 4;
  alignas(64) uint8_t tiles[2][kAhead * 1024];
  PackedSource<F> src{F::At(panel, 0)};
  TileZero<0>();
  DecodeTiles(src, std::min(kAhead, blocks), tiles[0]);
  for (int64_t b = 0; b < blocks; b += kAhead) {
    const int64_t n = std::min(kAhead, blocks - b);
    DecodeTiles(src, std::min(kAhead, blocks - b - n), tiles[(b / kAhead + 1) % 2]);
    const uint8_t* tile = tiles[b / kAhead % 2];
    for (int64_t i = 0; i < n; ++i, tile += 1024, x += 64 * rows) {
      TileLoad<4>(x, 64);
      TileLoad<6>(tile, 64);
      TileDotBF16<0, 4, 6>();
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
