// SPDX-License-Identifier: Apache-2.0
// bf16 products by BFDOT (few rows) and BFMMLA (many). A BFMMLA adds two pairs of k as two BFDOT do, one after the other, so that the bits
// are the same.
#include "engine/kernels/arm-inl.h"
#include "engine/kernels/matmul/tile-inl.h"

#if defined(TALLY_MATMUL_BF16_ARM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_MATMUL_BF16_ARM_INL_H_
#undef TALLY_MATMUL_BF16_ARM_INL_H_
#else
#define TALLY_MATMUL_BF16_ARM_INL_H_
#endif

#if TALLY_ARM

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

inline constexpr int kArmBf16Rows = 6;  // of a microkernel call

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm+bf16")

// A panel times T rows of a tile. x: [pairs][tile] of two bf16, from the first of the T rows on. acc: [T][32]; 16 columns are written.
template <int T>
HWY_NOINLINE void BfdotMicro(const uint8_t* HWY_RESTRICT panel, const uint8_t* HWY_RESTRICT x, int tile, int64_t pairs,
                             float* HWY_RESTRICT acc) {
  const DF df;
  const DU du;
  VF f[T][kPanelVecs];
  HWY_UNROLL(6) for (int j = 0; j < T; ++j) HWY_UNROLL(4) for (int v = 0; v < kPanelVecs; ++v) f[j][v] = hn::Zero(df);
  for (int64_t k = 0; k < pairs; ++k, panel += 64, x += 4 * tile) {
    PrefetchStream(panel);
    HWY_UNROLL(4) for (int v = 0; v < kPanelVecs; ++v) {
      const VU w = hn::LoadU(du, reinterpret_cast<const uint32_t*>(panel) + kLanes * v);
      HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
        const VU b = hn::LoadU(du, reinterpret_cast<const uint32_t*>(x) + j / 4 * 4);
        f[j][v] = BfdotLane(f[j][v], w, b, j % 4);
      }
    }
  }
  HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(4) for (int v = 0; v < kPanelVecs; ++v) hn::StoreU(f[j][v], df, acc + 32 * j + kLanes * v);
  }
}

// Adds the products of a panel's 8 pairs of rows and R pairs of rows of a tile. w: [quads][2 panels][8][2][4] bf16, from the panel on, then
// with `odd` a pair of k, [8] of w0 w1 w0 w1. acc: [R][2 panels][8][2][2].
template <int R>
HWY_NOINLINE void BfmmlaMicro(const uint8_t* HWY_RESTRICT w, const uint8_t* HWY_RESTRICT x, int tile, int64_t quads, bool odd,
                              float* HWY_RESTRICT acc) {
  const DF df;
  const DU du;
  constexpr int kPairs = kPanelRows / 2;
  VF f[R][kPairs];
  HWY_UNROLL(3) for (int r = 0; r < R; ++r) {
    HWY_UNROLL(8) for (int p = 0; p < kPairs; ++p) f[r][p] = hn::Load(df, acc + 64 * r + 4 * p);
  }
  const auto* words = reinterpret_cast<const uint32_t*>(x);
  for (int64_t k = 0; k < quads; ++k, w += 256, words += 2 * tile) {
    VU b[R];
    const VU even = hn::LoadU(du, words), next = hn::LoadU(du, words + tile);
    b[0] = hn::InterleaveLower(du, even, next);
    if constexpr (R > 1) b[1] = hn::InterleaveUpper(du, even, next);
    if constexpr (R > 2) b[2] = hn::InterleaveLower(du, hn::LoadU(du, words + 4), hn::LoadU(du, words + tile + 4));
    HWY_UNROLL(8) for (int p = 0; p < kPairs; ++p) {
      const VU a = hn::Load(du, reinterpret_cast<const uint32_t*>(w) + 4 * p);
      HWY_UNROLL(3) for (int r = 0; r < R; ++r) f[r][p] = Bfmmla(f[r][p], b[r], a);
    }
  }
  if (odd) {
    HWY_UNROLL(3) for (int r = 0; r < R; ++r) {
      const VU even = hn::LoadU(du, words + 2 * r), b = hn::InterleaveLower(du, even, even);
      HWY_UNROLL(8) for (int p = 0; p < kPairs; ++p) {
        f[r][p] = Bfdot(f[r][p], hn::Load(du, reinterpret_cast<const uint32_t*>(w) + 4 * p), b);
      }
    }
  }
  HWY_UNROLL(3) for (int r = 0; r < R; ++r) {
    HWY_UNROLL(8) for (int p = 0; p < kPairs; ++p) hn::Store(f[r][p], df, acc + 64 * r + 4 * p);
  }
}

#pragma GCC pop_options

// Pairs of k [k, k + n) of two panels for BfmmlaMicro.
inline void PairRows(const PanelPair& panels, int64_t k, int64_t n, uint8_t* HWY_RESTRICT out) {
  const DU du;
  for (int64_t i = 0; i < n; i += 2, out += 256) {
    for (int p = 0; p < 2; ++p) {
      const uint32_t* from = reinterpret_cast<const uint32_t*>((p == 0 ? panels.p0 : panels.p1) + (k + i) * 64);
      uint32_t* to = reinterpret_cast<uint32_t*>(out) + 32 * p;
      for (int v = 0; v < kPanelVecs; ++v, from += kLanes, to += 2 * kLanes) {
        const VU first = hn::LoadU(du, from);
        if (i + 1 < n) {
          const VU second = hn::LoadU(du, from + kPanelRows);
          hn::Store(hn::InterleaveLower(du, first, second), du, to);
          hn::Store(hn::InterleaveUpper(du, first, second), du, to + kLanes);
        } else {
          hn::Store(hn::ConcatLowerLower(du, first, first), du, to);
          hn::Store(hn::ConcatUpperUpper(du, first, first), du, to + kLanes);
        }
      }
    }
  }
}

// Many rows. Scratch: a piece of two panels, and the sums of all rows.
inline void BfmmlaPair(const MatJob& job, const RowGroup& group, const PanelPair& panels, const Epilogue& epilogue,
                       std::span<uint8_t> scratch) {
  constexpr int kTile = ActTile(ActKind::kBF16);
  static_assert(kTile % 2 == 0 && kArmBf16Rows % 2 == 0 && kTile % kArmBf16Rows == 0);
  constexpr int64_t kPiece = kArmBf16PieceBytes / 128;  // pairs of k
  const DF df;
  const int64_t pairs = (job.w.cols + 1) / 2;
  const size_t row_bytes = job.x.row_bytes();
  uint8_t* const w = scratch.data();
  float* const acc = reinterpret_cast<float*>(w + kArmBf16PieceBytes);
  std::memset(acc, 0, static_cast<size_t>((group.rows + 1) / 2) * 64 * sizeof(float));
  for (int64_t k = 0; k < pairs; k += kPiece) {
    const int64_t n = std::min(kPiece, pairs - k);
    PairRows(panels, k, n, w);
    for (int64_t r = 0; r < group.rows; r += kTile) {
      const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
      const uint8_t* const x =
          job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes + static_cast<size_t>(k * 4 * tile);
      for (int j = 0; j < tile; j += kArmBf16Rows) {
        const int rows = std::min(kArmBf16Rows, tile - j);
        WithSubTile<3>((rows + 1) / 2, [&]<int R>() {
          for (int p = 0; p < 2; ++p) {
            BfmmlaMicro<R>(w + 128 * p, x + 4 * j, tile, n / 2, n % 2 != 0, acc + 32 * (r + j) + 32 * p);
          }
        });
      }
    }
  }
  alignas(64) float rows[2][32];
  for (int64_t r = 0; r < group.rows; r += 2) {
    for (int p = 0; p < 16; p += 2) {
      const VF first = hn::Load(df, acc + 32 * r + 4 * p), second = hn::Load(df, acc + 32 * r + 4 * p + 4);
      hn::Store(hn::ConcatLowerLower(df, second, first), df, rows[0] + 2 * p);
      hn::Store(hn::ConcatUpperUpper(df, second, first), df, rows[1] + 2 * p);
    }
    for (int64_t j = 0; j < std::min<int64_t>(2, group.rows - r); ++j) {
      epilogue.Row(rows[j], group.row_begin + r + j, panels.col, panels.n);
    }
  }
}

inline void RunBf16Arm(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  constexpr int64_t kFew = StreamRows(ActKind::kBF16);
  ForEachGroup(job, begin, end, [&](const RowGroup& group, int64_t first, int64_t last) {
    if (group.rows > kFew) {
      const Epilogue epilogue(job, group.slice);
      for (int64_t pair = first; pair < last; ++pair) {
        BfmmlaPair(job, group, PanelPair(job, group.slice, pair), epilogue, scratch);
      }
      return;
    }
    const uint8_t* const x = job.x.data + static_cast<size_t>(group.row_begin) * job.x.row_bytes();
    const int rows = static_cast<int>(group.rows);
    StreamPanels<kFew>(job, group, first, last, [&](const uint8_t* panel, float* acc) {
      for (int j = 0; j < rows;) {
        j += WithSubTile<kArmBf16Rows>(
            rows - j, [&]<int T>() { BfdotMicro<T>(panel, x + 4 * j, rows, (job.w.cols + 1) / 2, acc + 32 * j); });
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_ARM

#endif  // include guard
