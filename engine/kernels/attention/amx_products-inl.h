// SPDX-License-Identifier: Apache-2.0
// Products of bf16 tiles for attention: left tiles of queries or probabilities, right tiles of keys or values. A number is the sum of
// kParts bf16. A sum takes 32 steps at a time, each as hi lo, hi hi, lo hi (left first; lo lo is left out), or hi hi alone; amx-inl.h has
// the order within 32. The order is that for any number of rows and columns.
#include <algorithm>
#include <cstdint>

#include "engine/kernels/amx-inl.h"
#include "engine/kernels/attention/softmax-inl.h"

#if defined(TALLY_ATTENTION_AMX_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_ATTENTION_AMX_PRODUCTS_INL_H
#undef TALLY_ATTENTION_AMX_PRODUCTS_INL_H
#else
#define TALLY_ATTENTION_AMX_PRODUCTS_INL_H
#endif

#if TALLY_AMX

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

constexpr int64_t kAmxTile = 1024, kAmxStep = kTileStep, kAmxBlockSteps = kKvBlock / kAmxStep;

// Right tiles: of column group c, step s and part p at base + c * col + s * step + p * part; rows `row` bytes apart.
struct RightTiles {
  const uint8_t* base;
  int64_t col, step, part, row;
};

// Left tiles: of step s and part p at base + s * step + p * part, of the second 16 rows `second` further; rows `row` bytes apart.
struct LeftTiles {
  const uint8_t* base;
  int64_t step, part, second, row;
};

// Shapes for TileProducts: sums in tiles 0 to 3, left ones in 4 and 5, right ones in 6 and 7.
HWY_INLINE void ShapeProducts(int64_t rows) {
  TileShapes shapes;
  const int64_t first = std::min<int64_t>(rows, 16), second = rows > 16 ? rows - 16 : rows;
  for (int t : {0, 1, 4}) shapes.Set(t, first, 64);
  for (int t : {2, 3, 5}) shapes.Set(t, second, 64);
  for (int t : {6, 7}) shapes.Set(t, 16, 64);
  Tiles::Shape(shapes);
}

// Two left tiles (rows 0 to 15, 16 to 31) times `pairs` times 2 groups of 16 columns, all steps. out: rows `out_bytes` apart. Each load
// stands two products or more before its use, and reads what the next step or pair of groups needs; a prefetch of right tiles would only
// be slower. each(): called after every four products.
template <int kParts, class Each>
HWY_INLINE void TwoRows(const LeftTiles& l, const RightTiles& r, int64_t pairs, int64_t steps, float* out, int64_t out_bytes,
                        const Each& each) {
  const int64_t first_part = kParts > 1 ? r.part : 0;
  const uint8_t *a = l.base, *b = r.base;
  TileLoad<4>(a, l.row);
  TileLoad<6>(b + first_part, r.row);
  TileLoad<5>(a + l.second, l.row);
  TileLoad<7>(b + first_part + r.col, r.row);
  for (int64_t pair = 0; pair < pairs; ++pair, out += 32) {
    TileZero<0>();
    TileZero<1>();
    TileZero<2>();
    TileZero<3>();
    for (int64_t s = 0; s < steps; ++s) {
      const uint8_t *a_next = a + l.step, *b_next = b + r.step;
      if (s == steps - 1) {
        a_next = l.base;
        b_next = r.base + (pair + 1 < pairs ? 2 * (pair + 1) * r.col : 0);
      }
      if constexpr (kParts > 1) {
        TileDotBF16<0, 4, 6>();
        TileDotBF16<2, 5, 6>();
        TileLoad<6>(b, r.row);
        TileDotBF16<1, 4, 7>();
        TileDotBF16<3, 5, 7>();
        TileLoad<7>(b + r.col, r.row);
        each();
        TileDotBF16<0, 4, 6>();
        TileDotBF16<1, 4, 7>();
        TileLoad<4>(a + l.part, l.row);
        TileDotBF16<2, 5, 6>();
        TileDotBF16<3, 5, 7>();
        TileLoad<5>(a + l.part + l.second, l.row);
        each();
      }
      TileDotBF16<0, 4, 6>();
      TileDotBF16<1, 4, 7>();
      TileLoad<4>(a_next, l.row);
      TileDotBF16<2, 5, 6>();
      TileLoad<6>(b_next + first_part, r.row);
      TileDotBF16<3, 5, 7>();
      TileLoad<5>(a_next + l.second, l.row);
      TileLoad<7>(b_next + first_part + r.col, r.row);
      each();
      a = a_next;
      b = b_next;
    }
    float* const second = out + 16 * (out_bytes / 4);
    TileStore<0>(out, out_bytes);
    TileStore<1>(out + 16, out_bytes);
    TileStore<2>(second, out_bytes);
    TileStore<3>(second + 16, out_bytes);
  }
}

// The same times one group of columns.
template <int kParts>
HWY_INLINE void TwoRowsOnce(const LeftTiles& l, const RightTiles& r, int64_t steps, float* out, int64_t out_bytes) {
  TileZero<0>();
  TileZero<2>();
  const uint8_t *a = l.base, *b = r.base;
  for (int64_t s = 0; s < steps; ++s, a += l.step, b += r.step) {
    TileLoad<4>(a, l.row);
    TileLoad<5>(a + l.second, l.row);
    if constexpr (kParts > 1) {
      TileLoad<6>(b + r.part, r.row);
      TileDotBF16<0, 4, 6>();
      TileDotBF16<2, 5, 6>();
    }
    TileLoad<7>(b, r.row);
    TileDotBF16<0, 4, 7>();
    TileDotBF16<2, 5, 7>();
    if constexpr (kParts > 1) {
      TileLoad<4>(a + l.part, l.row);
      TileLoad<5>(a + l.part + l.second, l.row);
      TileDotBF16<0, 4, 7>();
      TileDotBF16<2, 5, 7>();
    }
  }
  TileStore<0>(out, out_bytes);
  TileStore<2>(out + 16 * (out_bytes / 4), out_bytes);
}

template <int kParts, int kSums, int kRight>
HWY_INLINE void OneRowStep(const uint8_t* b, const RightTiles& r) {
  if constexpr (kParts > 1) {
    TileLoad<kRight>(b + r.part, r.row);
    TileDotBF16<kSums, 4, kRight>();
  }
  TileLoad<kRight>(b, r.row);
  TileDotBF16<kSums, 4, kRight>();
  if constexpr (kParts > 1) TileDotBF16<kSums, 5, kRight>();
}

// One left tile times kCols <= 4 groups of columns, in the same order of sums. of(s): the right tiles of step s.
template <int kParts, int kCols, class Of>
HWY_INLINE void OneRow(const LeftTiles& l, const RightTiles& r, int64_t steps, float* out, int64_t out_bytes, const Of& of) {
  TileZero<0>();
  if constexpr (kCols > 1) TileZero<1>();
  if constexpr (kCols > 2) TileZero<2>(), TileZero<3>();
  const uint8_t* a = l.base;
  for (int64_t s = 0; s < steps; ++s, a += l.step) {
    const uint8_t* const b = of(s);
    TileLoad<4>(a, l.row);
    if constexpr (kParts > 1) TileLoad<5>(a + l.part, l.row);
    OneRowStep<kParts, 0, 6>(b, r);
    if constexpr (kCols > 1) OneRowStep<kParts, 1, 7>(b + r.col, r);
    if constexpr (kCols > 2) {
      OneRowStep<kParts, 2, 6>(b + 2 * r.col, r);
      OneRowStep<kParts, 3, 7>(b + 3 * r.col, r);
    }
  }
  TileStore<0>(out, out_bytes);
  if constexpr (kCols > 1) TileStore<1>(out + 16, out_bytes);
  if constexpr (kCols > 2) TileStore<2>(out + 32, out_bytes), TileStore<3>(out + 48, out_bytes);
}

constexpr int64_t OneRowCols(int64_t cols) { return cols >= 4 ? 4 : cols >= 2 ? 2 : 1; }
template <int kParts, class Of>
HWY_INLINE void OneRowOf(int64_t cols, const LeftTiles& l, const RightTiles& r, int64_t steps, float* out, int64_t out_bytes,
                         const Of& of) {
  switch (OneRowCols(cols)) {
    case 4: return OneRow<kParts, 4>(l, r, steps, out, out_bytes, of);
    case 2: return OneRow<kParts, 2>(l, r, steps, out, out_bytes, of);
    default: OneRow<kParts, 1>(l, r, steps, out, out_bytes, of);
  }
}

// Calls of `each` that TileProducts makes.
template <int kParts>
inline int64_t ProductCalls(int64_t rows, int64_t cols, int64_t steps) {
  return rows > 16 ? std::max<int64_t>(1, cols / 2 * steps * (kParts > 1 ? 3 : 1)) : steps * (cols / 4 + (cols % 4 + 1) / 2);
}
// `rows` rows, as ShapeProducts was told, times `cols` groups of 16 columns.
template <int kParts, class Each>
HWY_INLINE void TileProducts(int64_t rows, const LeftTiles& l, RightTiles r, int64_t cols, int64_t steps, float* out,
                             int64_t out_bytes, const Each& each) {
  if (rows > 16) {
    if (cols >= 2) TwoRows<kParts>(l, r, cols / 2, steps, out, out_bytes, each);
    if (cols % 2 == 0) return;
    r.base += (cols - 1) * r.col;
    return TwoRowsOnce<kParts>(l, r, steps, out + 16 * (cols - 1), out_bytes);
  }
  for (int64_t c = 0, n; c < cols; c += n) {
    n = OneRowCols(cols - c);
    OneRowOf<kParts>(n, l, r, steps, out + 16 * c, out_bytes, [&](int64_t s) HWY_ATTR {
      each();
      return r.base + c * r.col + s * r.step;
    });
  }
}

// One left tile times right tiles that are made a step before their use. buffers: two of kAmxBuffer bytes. make(c, n, s, to): the tiles
// of step s and column groups c to c + n, [n][kParts]. Few tiles at a time stay in the first cache, in order of memory.
constexpr int64_t kAmxBuffer = 4 * kAmxTile;
template <int kParts>
constexpr int64_t MadeCols(int64_t cols) {
  return std::min<int64_t>(OneRowCols(cols), 4 / kParts);
}
template <int kParts, class Make>
HWY_INLINE void OneRowMade(const LeftTiles& l, int64_t cols, int64_t steps, float* out, int64_t out_bytes, uint8_t* buffers,
                           const Make& make) {
  const RightTiles r = {nullptr, kParts * kAmxTile, 0, kAmxTile, 64};
  int64_t at = 0;  // of the current step's buffer
  make(0, MadeCols<kParts>(cols), 0, buffers);
  for (int64_t c = 0, n; c < cols; c += n) {
    n = MadeCols<kParts>(cols - c);
    OneRowOf<kParts>(n, l, r, steps, out + 16 * c, out_bytes, [&](int64_t s) HWY_ATTR {
      const uint8_t* const now = buffers + at;
      at = kAmxBuffer - at;
      if (s + 1 < steps) {
        make(c, n, s + 1, buffers + at);
      } else if (c + n < cols) {
        make(c + n, MadeCols<kParts>(cols - c - n), 0, buffers + at);
      }
      return now;
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_AMX

#endif  // include guard
