// SPDX-License-Identifier: Apache-2.0
// Shared by all matrix kernels, per target: walking panels, and the epilogue of a tile.
#include "engine/kernels/formats/vectors-inl.h"
#include "hwy/cache_control.h"

#if defined(TALLY_MATMUL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_MATMUL_TILE_INL_H_
#undef TALLY_MATMUL_TILE_INL_H_
#else
#define TALLY_MATMUL_TILE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "engine/kernels/matmul/matmul_job.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keeps GCC from moving all multiplies before the chain of additions, which would spill on targets with 16 registers.
template <class V>
HWY_INLINE void Pin(V& v) {
#if HWY_TARGET == HWY_AVX2 && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+x"(v.raw));
#else
  (void)v;
#endif
}

// Prefetches for weights that stream from memory and are read at p now: into the first cache from near ahead, into the second from
// further. Measured on Sapphire Rapids, of read bandwidth: Q6_K .98 with both and .78 with the first alone, MXFP4 .95 and .76, Q4_0
// 1.0 and .87. Zen 4 needs none if few rows are multiplied: products of one row were 4 % faster without in BF16 (llama-3.2-1b)
// and equal in MXFP4 (gpt-oss-20b). With 8 rows, whose arithmetic takes as long as the memory, Q8_0 is a third faster with them there
// and Q4_K a half.
struct StreamAhead {
  int first_cache, second_cache;  // bytes; 0: none
};
inline constexpr bool kZen4 = HWY_TARGET == HWY_AVX3_ZEN4;
inline constexpr StreamAhead kAheadFewRows = kZen4 ? StreamAhead{0, 0} : StreamAhead{1024, 4096};
inline constexpr StreamAhead kAheadManyRows = kZen4 ? StreamAhead{4096, 0} : kAheadFewRows;
template <bool kManyRows = false>
HWY_INLINE void PrefetchStream(const uint8_t* p) {
  constexpr StreamAhead kAhead = kManyRows ? kAheadManyRows : kAheadFewRows;
  if constexpr (kAhead.first_cache > 0) hwy::Prefetch(p + kAhead.first_cache);
  if constexpr (kAhead.second_cache > 0) __builtin_prefetch(p + kAhead.second_cache, 0, 2);
}
HWY_INLINE void PrefetchFar(const uint8_t* p) { __builtin_prefetch(p, 0, 2); }

// Applies bias, activation or gate to the accumulators of one row and writes the output.
// acc: [32] f32, the two panels of the pair. col: first output column. n: columns of the pair that exist (<= 32, gated <= 16).
class Epilogue {
 public:
  Epilogue(const MatJob& job, int64_t slice)
      : job_(job),
        bias_(job.bias.empty() ? nullptr : job.bias.Vector(slice)),
        up_bias_(job.up_bias.empty() ? nullptr : job.up_bias.Vector(slice)) {}

  // The address that an output is written to.
  float* Line(int64_t row, int64_t col) const {
    return job_.out.Row(job_.out_row.empty() ? row : job_.out_row[static_cast<size_t>(row)]) + col;
  }

  void Row(const float* HWY_RESTRICT acc, int64_t row, int64_t col, int64_t n) const;  // products_hwy.cc

 private:
  const MatJob& job_;
  const float* bias_;
  const float* up_bias_;
};

// The two panels of a task and their output columns.
struct PanelPair {
  const uint8_t* p0;
  const uint8_t* p1;
  int64_t col;  // first output column
  int64_t n;    // columns to write
  PanelPair(const MatJob& job, int64_t slice, int64_t pair) {
    if (job.gated) {
      p0 = job.w.Panel(slice, pair);
      p1 = job.up.Panel(slice, pair);
      col = pair * kPanelRows;
      n = std::min<int64_t>(kPanelRows, job.w.rows - col);
    } else {
      const int64_t last = job.w.panels() - 1;
      p0 = job.w.Panel(slice, 2 * pair);
      p1 = job.w.Panel(slice, std::min(2 * pair + 1, last));  // an odd last panel is computed twice and written once
      col = pair * 2 * kPanelRows;
      n = std::min<int64_t>(2 * kPanelRows, job.w.rows - col);
    }
  }
  // Address of byte `offset` of the next pair in memory, for prefetching only; null beyond its two panels.
  const uint8_t* NextAt(const MatJob& job, size_t offset) const {
    const size_t panel = job.w.panel_stride;
    if (offset >= 2 * panel) return nullptr;
    if (!job.gated) return p1 + panel + offset;
    return offset < panel ? p0 + panel + offset : p1 + offset;
  }
};

// Calls fn.template operator()<T>() for the largest instantiated T <= n; returns T.
template <int kMax, class Fn>
HWY_INLINE int WithSubTile(int n, const Fn& fn) {
  if constexpr (kMax >= 12)
    if (n >= 12) return fn.template operator()<12>(), 12;
  if constexpr (kMax >= 8)
    if (n >= 8) return fn.template operator()<8>(), 8;
  if constexpr (kMax >= 6)
    if (n >= 6) return fn.template operator()<6>(), 6;
  if constexpr (kMax >= 5 && kMax < 8)
    if (n >= 5) return fn.template operator()<5>(), 5;
  if constexpr (kMax >= 4)
    if (n >= 4) return fn.template operator()<4>(), 4;
  if constexpr (kMax >= 3)
    if (n >= 3) return fn.template operator()<3>(), 3;
  if constexpr (kMax >= 2)
    if (n >= 2) return fn.template operator()<2>(), 2;
  return fn.template operator()<1>(), 1;
}

// Calls body(group, first, last) for each group of tasks [begin, end): pairs [first, last) of the group's slice.
template <class Body>
HWY_INLINE void ForEachGroup(const MatJob& job, int64_t begin, int64_t end, const Body& body) {
  const int64_t pairs = job.pairs();
  for (int64_t t = begin; t < end;) {
    const RowGroup& group = job.x.groups[static_cast<size_t>(t / pairs)];
    const int64_t first = t % pairs, last = std::min(pairs, first + (end - t));
    if (group.rows > 0) body(group, first, last);
    t += last - first;
  }
}

// Few rows: weights are read as one stream, since two streams took up to half as long again on Zen 4. For gate and up, a run of
// panels of one is read before the run of the other. panel(weights, acc) writes the products of one panel and all rows of the
// group (<= kMostRows) to 16 columns of acc [rows][32], or adds them to the zeros there.
template <int kMostRows, class Panel>
HWY_INLINE void StreamPanels(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, const Panel& panel) {
  const Epilogue epilogue(job, group.slice);
  constexpr int64_t kSums = 8 * kMostRows;  // rows of 32 sums: a run is 8 pairs of panels, or more with fewer rows
  alignas(64) float sums[kSums * 32];       // [pairs of a run][rows][32]
  const int64_t row_sums = group.rows * 32, longest = job.gated ? kSums / group.rows : 1;
  const int64_t pairs = last - first, runs = (pairs + longest - 1) / longest;
  for (int64_t r = 0; r < runs; ++r) {  // lengths differ by at most one
    const int64_t begin = first + pairs * r / runs, n = first + pairs * (r + 1) / runs - begin;
    std::memset(sums, 0, static_cast<size_t>(n * row_sums) * sizeof(float));
    for (int64_t i = 0; i < n; ++i) panel(PanelPair(job, group.slice, begin + i).p0, sums + i * row_sums);
    for (int64_t i = 0; i < n; ++i) panel(PanelPair(job, group.slice, begin + i).p1, sums + i * row_sums + kPanelRows);
    for (int64_t i = 0; i < n; ++i) {
      const PanelPair panels(job, group.slice, begin + i);
      for (int64_t j = 0; j < group.rows; ++j)
        epilogue.Row(sums + i * row_sums + 32 * j, group.row_begin + j, panels.col, panels.n);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
