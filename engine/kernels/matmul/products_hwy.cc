// SPDX-License-Identifier: Apache-2.0
// Products that know no weight format, for every Highway target: of f32 weights that a format has widened, of int8 blocks that it has
// decoded, and the epilogue of all. Formats' files have the products of few rows, which decode in registers.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/matmul/products_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/matmul/decoded-inl.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

void Epilogue::Row(const float* HWY_RESTRICT acc, int64_t row, int64_t col, int64_t n) const {
  const int64_t out_row = job_.out_row.empty() ? row : job_.out_row[static_cast<size_t>(row)];
  float* out = job_.out.Row(out_row) + col;
  const DF df;
  for (int64_t i = 0; i < n; i += kLanes) {
    const size_t count = static_cast<size_t>(std::min<int64_t>(kLanes, n - i));
    const bool whole = count == static_cast<size_t>(kLanes);
    VF v = hn::LoadU(df, acc + i);
    if (bias_ != nullptr) v = hn::Add(v, whole ? hn::LoadU(df, bias_ + col + i) : hn::LoadN(df, bias_ + col + i, count));
    if (job_.gated) {
      VF u = hn::LoadU(df, acc + kPanelRows + i);
      if (up_bias_ != nullptr) {
        u = hn::Add(u, whole ? hn::LoadU(df, up_bias_ + col + i) : hn::LoadN(df, up_bias_ + col + i, count));
      }
      v = ActivateGated(df, job_.activation, v, u, job_.swiglu_alpha, job_.swiglu_limit);
    } else if (job_.activation != ActivationKind::kNone) {
      v = Activate(df, job_.activation, v);
    }
    if (job_.add_to_out) v = hn::Add(whole ? hn::LoadU(df, out + i) : hn::LoadN(df, out + i, count), v);
    if (whole) {
      hn::StoreU(v, df, out + i);
    } else {
      hn::StoreN(v, df, out + i, count);
    }
  }
}

// Rows of a tile per microkernel call. 16-lane targets have 32 registers, AVX2 and SSE4 have 16.
inline constexpr int kFloatSubTile = kLanes >= 16 ? 12 : (kLanes == 8 ? 6 : 3);

// Many rows: adds to acc [T][32]. w: [n][32] f32. x: [n][tile] f32, from the first of the T rows on.
template <int T>
HWY_NOINLINE void FloatMicro(const float* HWY_RESTRICT w, const float* HWY_RESTRICT x, int tile, int64_t n,
                             float* HWY_RESTRICT acc) {
  const DF df;
  constexpr int kVecs = kLanes >= 16 ? 2 : kPanelVecs;
  VF f[T][kVecs];
  HWY_UNROLL(12) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) f[j][v] = hn::Load(df, acc + 32 * j + kLanes * v);
  }
  for (int64_t k = 0; k < n; ++k, w += 32, x += tile) {
    VF wv[kVecs];
    HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) wv[v] = hn::Load(df, w + kLanes * v);
    HWY_UNROLL(12) for (int j = 0; j < T; ++j) {
      const VF b = Broadcast(x + j);
      HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) f[j][v] = hn::MulAdd(wv[v], b, f[j][v]);
    }
  }
  HWY_UNROLL(12) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) hn::Store(f[j][v], df, acc + 32 * j + kLanes * v);
  }
}

void FloatGroup(const MatJob& job, const RowGroup& group, const PanelPair& panels, const Epilogue& epilogue,
                std::span<uint8_t> scratch, WidenPanels widen) {
  constexpr int kTile = ActTile(ActKind::kF32);
  const int64_t cols = job.w.cols;
  float* w = reinterpret_cast<float*>(scratch.data());
  float* acc = w + kF32KBlock * 32;
  std::memset(acc, 0, static_cast<size_t>(group.rows) * 32 * sizeof(float));
  const size_t row_bytes = job.x.row_bytes();
  for (int64_t k0 = 0; k0 < cols; k0 += kF32KBlock) {
    const int64_t n = std::min(kF32KBlock, cols - k0);
    widen(panels.p0, panels.p1, k0, n, w);
    for (int64_t r = 0; r < group.rows; r += kTile) {
      const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
      const float* x =
          reinterpret_cast<const float*>(job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes) + k0 * tile;
      for (int j = 0; j < tile;) {
        j += WithSubTile<kFloatSubTile>(tile - j, [&]<int T>() HWY_ATTR {
          FloatMicro<T>(w, x + j, tile, n, acc + 32 * (r + j));
          if constexpr (kLanes < 16) FloatMicro<T>(w + kPanelRows, x + j, tile, n, acc + 32 * (r + j) + kPanelRows);
        });
      }
    }
  }
  for (int64_t r = 0; r < group.rows; ++r) epilogue.Row(acc + 32 * r, group.row_begin + r, panels.col, panels.n);
}

void RunWidened(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch, WidenPanels widen) {
  ForEachGroup(job, begin, end, [&](const RowGroup& group, int64_t first, int64_t last) HWY_ATTR {
    const Epilogue epilogue(job, group.slice);
    for (int64_t pair = first; pair < last; ++pair) {
      FloatGroup(job, group, PanelPair(job, group.slice, pair), epilogue, scratch, widen);
    }
  });
}

// The shapes of the formats, each with one of them.
#define TALLY_DECODED_SHAPE(...)                                                                                              \
  template void RunInt8Group<DecodedShape<__VA_ARGS__>>(const MatJob&, const RowGroup&, int64_t, int64_t, std::span<uint8_t>, \
                                                        DecodeInt8);
TALLY_DECODED_SHAPE(1, 0, 1, false, 1, false)  // Q4_0, Q5_0
TALLY_DECODED_SHAPE(1, 0, 1, false, 1, true)   // MXFP4
TALLY_DECODED_SHAPE(1, 0, 1, true, 1, false)   // Q8_0, IQ4_NL
TALLY_DECODED_SHAPE(1, 1, 2, false, 1, false)  // Q4_1, Q4_K
TALLY_DECODED_SHAPE(1, 1, 2, false, 2, false)  // Q5_1, Q5_K
TALLY_DECODED_SHAPE(2, 0, 3, false, 2, false)  // Q3_K, Q6_K
TALLY_DECODED_SHAPE(2, 2, 5, false, 2, false)  // Q2_K
#undef TALLY_DECODED_SHAPE

#if TALLY_AMX
#define TALLY_DECODED_SHAPE(...)                                                                                                 \
  template void RunAmxInt8Group<DecodedShape<__VA_ARGS__>>(const MatJob&, const RowGroup&, int64_t, int64_t, std::span<uint8_t>, \
                                                           DecodeTiles);
TALLY_DECODED_SHAPE(1, 0, 1, false, 1, false)
TALLY_DECODED_SHAPE(1, 0, 1, false, 1, true)
TALLY_DECODED_SHAPE(1, 0, 1, true, 1, false)
TALLY_DECODED_SHAPE(1, 1, 2, false, 1, false)
TALLY_DECODED_SHAPE(1, 1, 2, false, 2, false)
#undef TALLY_DECODED_SHAPE
#endif

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();
