// SPDX-License-Identifier: Apache-2.0
// int8 products of many rows: panels are decoded into scratch, and multiplied from there. Here F is a DecodedShape. Included by
// products_hwy.cc only.
#include "engine/kernels/matmul/int8-inl.h"

#if defined(TALLY_MATMUL_DECODED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_MATMUL_DECODED_INL_H_
#undef TALLY_MATMUL_DECODED_INL_H_
#else
#define TALLY_MATMUL_DECODED_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL

// Bits of positive f32 numbers: their order is that of the numbers.
struct BitsRange {
  int32_t least = INT32_MAX, greatest = 0;

  void Add(VI v) {
    least = std::min(least, hn::ReduceMin(DI(), v));
    greatest = std::max(greatest, hn::ReduceMax(DI(), v));
  }
};

// The range of the scales of a group's activations.
template <class F>
BitsRange ActScales(const MatJob& job, const RowGroup& group) {
  const int64_t tile = TilingOf(job.x.format, group.rows).rows;
  const DI di;
  const VI one = hn::BitCast(di, hn::Set(DF(), 1.0f));
  VI least = one, greatest = one;
  for (int64_t r = 0; r < group.rows; r += tile) {
    const size_t rows = static_cast<size_t>(std::min(tile, group.rows - r)), step = 4 * rows;
    const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin + r) * job.x.row_bytes() + kScalesAt * step;
    for (int64_t b = 0; b < job.w.cols / kInt8Block; ++b, a += kBlockWords<F> * step) {
      const VI bits = hn::LoadNOr(one, di, reinterpret_cast<const int32_t*>(a), rows);
      least = hn::Min(least, bits);
      greatest = hn::Max(greatest, bits);
    }
  }
  BitsRange range;
  range.Add(least);
  range.Add(greatest);
  return range;
}

// Whether w * x is a normal number for all scales w, powers of two, of n words and x.
inline bool ScalesAreNormal(const float* words, int64_t n, BitsRange x) {
  BitsRange w;
  for (int64_t i = 0; i < n; i += kPanelRows) w.Add(hn::Load(DI(), reinterpret_cast<const int32_t*>(words) + i));
  constexpr int32_t kNormal = 1 << 23, kInfinity = 255 << 23;
  if (w.least < kNormal || w.greatest >= kInfinity || x.least < kNormal || x.greatest >= kInfinity) return false;
  const int32_t bias = 127;
  return (w.least >> 23) + (x.least >> 23) > bias && (w.greatest >> 23) + (x.greatest >> 23) < bias + 255;
}

template <class F>
void RunInt8Group(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch,
                  DecodeInt8 decode) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  constexpr bool kPowersOf2 = F::kAddsExponents;
  const Epilogue epilogue(job, group.slice);
  const int64_t blocks = job.w.cols / kInt8Block;
  const size_t row_bytes = job.x.row_bytes();
  alignas(64) float acc[kTile * 32];
  uint8_t* q0 = scratch.data();
  uint8_t* q1 = q0 + blocks * 512;
  float* s0 = reinterpret_cast<float*>(q1 + blocks * 512);
  float* s1 = s0 + blocks * kPanelRows * F::kScaleWords;
  const DecodedSource<F> both[] = {{q0, s0}, {q1, s1}};
  BitsRange x_scales;
  if constexpr (kPowersOf2) x_scales = ActScales<F>(job, group);
  for (int64_t pair = first; pair < last; ++pair) {
    const PanelPair panels(job, group.slice, pair);
    decode(panels.p0, 0, blocks, false, q0, s0);
    decode(panels.p1, 0, blocks, false, q1, s1);
    bool add_exponents = false;
    if constexpr (kPowersOf2) add_exponents = ScalesAreNormal(s0, 2 * blocks * kPanelRows, x_scales);
    for (int64_t r = 0; r < group.rows; r += kTile) {
      const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
      const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes;
      // Prefetches the next pair of panels, one line per block.
      const size_t fetched = static_cast<size_t>(r / kTile) * static_cast<size_t>(blocks) * 64;
      const uint8_t* far = panels.NextAt(job, fetched);
      if constexpr (kPowersOf2) {
        if (add_exponents) Int8Tile<F, true>(both, a, tile, blocks, acc, far);
      }
      if (!add_exponents) Int8Tile<F, false>(both, a, tile, blocks, acc, far);
      for (int j = 0; j < tile; ++j) epilogue.Row(acc + 32 * j, group.row_begin + r + j, panels.col, panels.n);
    }
  }
}

#else

template <class F, ByteDot kDot>
void RunInt8Pair(const MatJob& job, const RowGroup& group, const PanelPair& panels, const Epilogue& epilogue,
                 std::span<uint8_t> scratch, DecodeInt8 decode) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  constexpr bool kSigned = F::kWide && kDot == ByteDot::kNone;
  const int64_t blocks = job.w.cols / kInt8Block;
  const size_t row_bytes = job.x.row_bytes();
  // K is cut into pieces whose decoded panel stays in the first-level cache while it is multiplied by every tile of the group. The
  // order of the sums does not change.
  constexpr int64_t kPiece = kInt8PieceBytes / (kSigned ? 1024 : 512);
  uint8_t* q = scratch.data();
  float* s = reinterpret_cast<float*>(q + kPiece * kDecodedBytes<kSigned>);
  float* acc = s + kPiece * kPanelRows * F::kScaleWords;
  std::memset(acc, 0, static_cast<size_t>(group.rows) * 32 * sizeof(float));
  for (int half = 0; half < 2; ++half) {
    const uint8_t* panel = half == 0 ? panels.p0 : panels.p1;
    for (int64_t b = 0; b < blocks; b += kPiece) {
      const int64_t n = std::min(kPiece, blocks - b);
      decode(panel, b, n, kSigned, q, s);
      for (int64_t r = 0; r < group.rows; r += kTile) {
        const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
        const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes +
                           static_cast<size_t>(b) * 4 * kBlockWords<F> * static_cast<size_t>(tile);
        Int8TilePanel<F, kDot>(DecodedSource<F, kSigned>{q, s}, a, tile, n, acc + 32 * r + kPanelRows * half);
      }
    }
  }
  for (int64_t r = 0; r < group.rows; ++r) epilogue.Row(acc + 32 * r, group.row_begin + r, panels.col, panels.n);
}

template <class F>
void RunInt8Group(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch,
                  DecodeInt8 decode) {
  const Epilogue epilogue(job, group.slice);
  WithByteDot<F>([&]<ByteDot kDot>() HWY_ATTR {
    for (int64_t pair = first; pair < last; ++pair) {
      RunInt8Pair<F, kDot>(job, group, PanelPair(job, group.slice, pair), epilogue, scratch, decode);
    }
  });
}

#endif  // a dot product of bytes

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if TALLY_AMX
#include "engine/kernels/matmul/amx_int8-inl.h"
#endif

#endif  // include guard
