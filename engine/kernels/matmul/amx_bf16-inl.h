// SPDX-License-Identifier: Apache-2.0
// bf16 products by AMX. Per 32 k of a panel and up to 16 rows one tile product; its order of sums is in amx-inl.h and does not depend
// on the rows.
//
// A source of weights S gives tiles of pairs of k, [16 pairs][16 outputs] of two bf16:
//   kPiece       k of a piece, a multiple of 32; with kScaled each piece has a scale, and acc = fma(scale, sum of the piece, acc)
//   kBuffer      bytes that a piece of a pair of panels takes in the caller's buffer, 64-byte aligned, 0 if the panel itself is read
//   PairTiles Pair(p0, p1, k, n, buffer)    makes k in [k, k + n) of two panels ready
//   const float* Scales(panel, k)           [16], if kScaled
#include "engine/kernels/amx-inl.h"
#include "engine/kernels/matmul/tile-inl.h"

#if defined(TALLY_MATMUL_AMX_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_MATMUL_AMX_BF16_INL_H_
#undef TALLY_MATMUL_AMX_BF16_INL_H_
#else
#define TALLY_MATMUL_AMX_BF16_INL_H_
#endif

#if TALLY_AMX

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// The weights of a piece of two panels: tiles of 32 k lie `step` bytes apart, rows of a tile `stride`.
struct PairTiles {
  const uint8_t* b0;
  const uint8_t* b1;
  int64_t stride, step;
};

// Tiles 0 to 3: sums of left 4 and 5 by right 6 and 7. Rows of the left tiles: `rows0`, `rows1` (at least 1).
HWY_INLINE void ShapeBf16(int64_t rows0, int64_t rows1) {
  TileShapes shapes;
  for (int t : {0, 1, 4}) shapes.Set(t, rows0, 64);
  for (int t : {2, 3, 5}) shapes.Set(t, rows1, 64);
  for (int t : {6, 7}) shapes.Set(t, 16, 64);
  Tiles::Shape(shapes);
}

// Rows of two left tiles (kLeft = 1: one) times two panels. a0, a1: 32 k of a row are 64 bytes; step0, step1: from 32 k to the next.
// acc: [rows][32] f32, the second tile's rows 16 later. kAdd: added to what is there, else set. far: bytes that are needed later;
// `lines` lines of them are prefetched in a step.
template <int kLeft, bool kAdd>
HWY_NOINLINE void AmxStrip(const uint8_t* a0, const uint8_t* a1, int64_t step0, int64_t step1, PairTiles w, int64_t steps,
                           float* acc, const uint8_t* far, int64_t lines) {
  constexpr int64_t kRow = 32 * sizeof(float);
  float* const acc1 = acc + kAmxRows * 32;
  if constexpr (kAdd) {
    TileLoad<0>(acc, kRow);
    TileLoad<1>(acc + 16, kRow);
    if constexpr (kLeft == 2) TileLoad<2>(acc1, kRow), TileLoad<3>(acc1 + 16, kRow);
  } else {
    TileZero<0>();
    TileZero<1>();
    if constexpr (kLeft == 2) TileZero<2>(), TileZero<3>();
  }
  for (int64_t s = 0; s < steps; ++s, a0 += step0, a1 += step1, w.b0 += w.step, w.b1 += w.step) {
    for (int64_t i = 0; i < lines; ++i, far += 64) PrefetchFar(far);
    TileLoad<4>(a0, 64);
    TileLoad<6>(w.b0, w.stride);
    TileDotBF16<0, 4, 6>();
    TileLoad<7>(w.b1, w.stride);
    TileDotBF16<1, 4, 7>();
    if constexpr (kLeft == 2) {
      TileLoad<5>(a1, 64);
      TileDotBF16<2, 5, 6>();
      TileDotBF16<3, 5, 7>();
    }
  }
  TileStore<0>(acc, kRow);
  TileStore<1>(acc + 16, kRow);
  if constexpr (kLeft == 2) TileStore<2>(acc1, kRow), TileStore<3>(acc1 + 16, kRow);
}

inline int64_t AmxStrips(int64_t rows) { return (rows + 2 * kAmxRows - 1) / (2 * kAmxRows); }

// Many rows. The pieces of a group of pairs stay in the second-level cache, while a strip of 32 rows, whose piece stays in the first,
// passes them. Scratch: for each of kAmxGroupPairs the sums of all strips, a piece of weights, and with kScaled a strip of sums.
template <class S>
void AmxBf16Group(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch) {
  static_assert(S::kBuffer <= kAmxPieceBytes);
  const Epilogue epilogue(job, group.slice);
  const int64_t cols = job.w.cols, strips = AmxStrips(group.rows), strip_floats = 2 * kAmxRows * 32;
  const size_t row_bytes = job.x.row_bytes();
  const uint8_t* const x = job.x.data + static_cast<size_t>(group.row_begin) * row_bytes;
  const int64_t last_rows = group.rows - (strips - 1) * 2 * kAmxRows, last0 = std::min<int64_t>(last_rows, kAmxRows),
                last1 = last_rows - last0;
  float* const sums = reinterpret_cast<float*>(scratch.data());  // [pair][strip][32][32]
  uint8_t* const buffers = scratch.data() + static_cast<size_t>(kAmxGroupPairs * strips * strip_floats) * sizeof(float);
  [[maybe_unused]] float* const piece_sums = reinterpret_cast<float*>(buffers + kAmxGroupPairs * kAmxPieceBytes);
  const Tiles tiles;
  for (int64_t p0 = first; p0 < last; p0 += kAmxGroupPairs) {
    const int64_t pairs = std::min(kAmxGroupPairs, last - p0);
    for (int64_t k = 0; k < cols; k += S::kPiece) {
      const int64_t n = std::min<int64_t>(S::kPiece, cols - k), steps = (n + 31) / 32;
      PairTiles w[kAmxGroupPairs];
      std::pair<const uint8_t*, const uint8_t*> next[kAmxGroupPairs];  // the bytes that follow the piece in each panel
      const int64_t ahead = static_cast<int64_t>(PanelBytes(job.w.dtype, S::kPiece)),
                    lines = (2 * ahead / 64 + strips * steps - 1) / (strips * steps);
      for (int64_t p = 0; p < pairs; ++p) {
        const PanelPair panels(job, group.slice, p0 + p);
        // Beyond a panel's end the next group's begins.
        const bool more = k + n < cols || p0 + p + kAmxGroupPairs >= last;
        const size_t end = more ? PanelBytes(job.w.dtype, k + n) : 0;
        const PanelPair after(job, group.slice, more ? p0 + p : p0 + p + kAmxGroupPairs);
        next[p] = {after.p0 + end, after.p1 + end};
        w[p] = S::Pair(panels.p0, panels.p1, k, n, buffers + static_cast<size_t>(p) * kAmxPieceBytes);
      }
      ShapeBf16(strips > 1 ? kAmxRows : last0, strips > 1 ? kAmxRows : std::max<int64_t>(last1, 1));
      for (int64_t t = 0; t < strips; ++t) {
        const bool tail = t == strips - 1;
        if (tail && t > 0 && last_rows < 2 * kAmxRows) ShapeBf16(last0, std::max<int64_t>(last1, 1));
        const int64_t rows0 = tail ? last0 : kAmxRows, rows1 = tail ? last1 : kAmxRows;
        const uint8_t* const tile = x + static_cast<size_t>(t) * 2 * kAmxRows * row_bytes;
        const uint8_t* const a0 = tile + k / 32 * rows0 * 64;
        const uint8_t* const a1 = tile + kAmxRows * row_bytes + static_cast<size_t>(k / 32 * rows1 * 64);
        for (int64_t p = 0; p < pairs; ++p) {
          float* const acc = sums + (p * strips + t) * strip_floats;
          // The strips together prefetch the bytes that follow the piece, first of one panel and then of the other.
          const int64_t at = t * steps * lines * 64;
          const uint8_t* const far = at < ahead ? next[p].first + at : next[p].second + (at - ahead);
          const auto run = [&]<bool kAdd>(float* to) HWY_ATTR {
            if (rows1 > 0) {
              AmxStrip<2, kAdd>(a0, a1, rows0 * 64, rows1 * 64, w[p], steps, to, far, lines);
            } else {
              AmxStrip<1, kAdd>(a0, a0, rows0 * 64, 0, w[p], steps, to, far, lines);
            }
          };
          if constexpr (S::kScaled) {
            const PanelPair panels(job, group.slice, p0 + p);
            const DF df;
            const VF s0 = hn::LoadU(df, S::Scales(panels.p0, k)), s1 = hn::LoadU(df, S::Scales(panels.p1, k));
            run.template operator()<false>(piece_sums);
            for (int64_t r = 0; r < rows0 + rows1; ++r) {
              float* const to = acc + 32 * r;
              const float* const from = piece_sums + 32 * r;
              const VF c0 = k == 0 ? hn::Zero(df) : hn::Load(df, to), c1 = k == 0 ? hn::Zero(df) : hn::Load(df, to + 16);
              hn::Store(hn::MulAdd(s0, hn::Load(df, from), c0), df, to);
              hn::Store(hn::MulAdd(s1, hn::Load(df, from + 16), c1), df, to + 16);
            }
          } else if (k > 0) {
            run.template operator()<true>(acc);
          } else {
            run.template operator()<false>(acc);
          }
        }
      }
    }
    for (int64_t r = 0; r < group.rows; ++r) {  // a row of the output is written in one run
      for (int64_t p = 0; p < pairs; ++p) {
        const PanelPair panels(job, group.slice, p0 + p);
        epilogue.Row(sums + p * strips * strip_floats + 32 * r, group.row_begin + r, panels.col, panels.n);
      }
    }
  }
}

// The product of a job. few(group, x, first, last): pairs of panels [first, last) times a group of at most kAmxRows rows, packed at x.
template <class S, class Few>
void RunAmxBf16(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch, const Few& few) {
  ForEachGroup(job, begin, end, [&](const RowGroup& group, int64_t first, int64_t last) HWY_ATTR {
    if (group.rows > kAmxRows) return AmxBf16Group<S>(job, group, first, last, scratch);
    const Tiles tiles;
    ShapeBf16(group.rows, 1);
    few(group, job.x.data + static_cast<size_t>(group.row_begin) * job.x.row_bytes(), first, last);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_AMX

#endif  // include guard
