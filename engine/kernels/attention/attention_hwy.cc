// SPDX-License-Identifier: Apache-2.0
// Attention for every Highway target. A tile is rows of one sequence x query heads of one KV head; it reads each block of K and V once. A
// query's result does not depend on the other queries of its tile. If tiles are few, a task is a slice of one: it leaves the sums of its
// ranges of positions in op.partials, and later tasks merge them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after foreach_target.h: not per target
#include "engine/kernels/attention/attention_amx-inl.h"
#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/attention/attention_scratch.h"
#include "engine/kernels/attention/int8_scores-inl.h"
#include "engine/kernels/attention/ranges-inl.h"
#include "engine/kernels/attention/softmax-inl.h"
#include "engine/kernels/attention/tiles-inl.h"
#include "engine/kernels/kv_store/kv_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bytes that are prefetched ahead of keys, in the softmax of a query, and ahead of values.
constexpr int64_t kKeysAhead = 4096, kSoftmaxAhead = 1024, kValuesAhead = 8192;

// The products of a tile's queries with keys: KvSingles, KvPairs.
template <class A>
struct KeyProductsOf {
  using Factor = typename A::Factor;
  static int64_t Steps(int64_t k_dim) { return (k_dim + A::kElements - 1) / A::kElements; }
  // Elements of a group of 16 positions.
  static int64_t Group(int64_t k_dim) { return KvPadded(k_dim) / A::kElements * kUnit; }
  static void StoreQuery(const float* x, int64_t k_dim, int64_t query, Factor* q) {
    for (int64_t d = 0; d < k_dim; d += A::kElements) {
      q[d / A::kElements * kTileQueries + query] = A::Make(x[d], A::kElements > 1 && d + 1 < k_dim ? x[d + 1] : 0.0f);
    }
  }
  static HWY_INLINE void Scores(const typename A::Stored* k, int64_t groups, int64_t k_dim, const Factor* q, int64_t queries,
                                float scale, float* p, Ahead ahead) {
    ForQueryTiles<kMaxQueries>(queries, [&]<class N>(N, int64_t i) HWY_ATTR {
      HWY_NAMESPACE::Scores<A, N::value>(k, groups, Group(k_dim), Steps(k_dim), q + i, scale, p + i * kKvBlock, ahead);
      ahead.on = false;
    });
  }
};

template <>
struct KeyProductsOf<KvInt8> {
  using Factor = uint32_t;
  static int64_t Group(int64_t k_dim) { return KvQ8Blocks(k_dim) * KvQ8_0::kGroupBytes; }
  static void StoreQuery(const float* x, int64_t k_dim, int64_t query, uint32_t* q) { Int8Query::Store(x, k_dim, query, q); }
  static HWY_INLINE void Scores(const uint8_t* k, int64_t groups, int64_t k_dim, const uint32_t* q, int64_t queries, float scale,
                                float* p, Ahead ahead) {
    ForQueryTiles<kMaxInt8Queries>(queries, [&]<class N>(N, int64_t i) HWY_ATTR {
      Int8Scores<N::value>(k, groups, KvQ8Blocks(k_dim), q + i, scale, p + i * kKvBlock, ahead);
      ahead.on = false;
    });
  }
};

template <class A>
HWY_INLINE void ValuesOf(const typename A::Stored* v, int64_t padded, int64_t steps, const typename A::Factor* p, int64_t queries,
                         const ValueSums& sums, Ahead ahead) {
  ForQueryTiles<kMaxQueries>(queries, [&]<class N>(N, int64_t i) HWY_ATTR {
    Values<A, N::value>(v, padded, steps, p + i * (kKvBlock / A::kElements), sums.From(i, 0, padded), ahead);
    ahead.on = false;
  });
}

// Rows [row, row + rows), all of one table.
template <class Format>
class TileRun : RangeRun {
  using Vectors = KvVectors<Format>;
  using Keys = KeyProductsOf<typename Vectors::KeyProducts>;
  using V = typename Vectors::ValueProducts;
  using StoredKey = typename Vectors::KeyProducts::Stored;
  static constexpr bool kPairs = V::kElements == 2;

 public:
  TileRun(const AttentionOp& op, int64_t row, int64_t rows, const TaskShare& share, const AttentionScratch& work)
      : RangeRun(op, row, rows, share, static_cast<int64_t>(Format::HeadBytes(op.layout)), work) {}

  void Run() {
    using Factor = typename Keys::Factor;
    RunRanges([&](const float* q, int64_t i) HWY_ATTR { Keys::StoreQuery(q, k_dim_, i, reinterpret_cast<Factor*>(w_.q)); },
              [&]() HWY_ATTR { Block(); });
  }

 private:
  static PositionRange Groups(PositionRange lanes) { return {lanes.begin / kUnit, (lanes.end + kUnit - 1) / kUnit}; }

  Ahead NoneAhead() const { return {share_, share_, 0, false}; }

  HWY_INLINE void Block() {
    // Groups that every row sees are multiplied by all queries together; what is left and right of them row by row.
    PositionRange common = Within(every_, base_, kKvBlock);
    common = {(common.begin + kUnit - 1) / kUnit * kUnit, common.end / kUnit * kUnit};
    if (common.empty()) common = {kKvBlock, kKvBlock};
    bool edges = false;
    if (!common.empty()) ScoreGroups(Groups(common), 0, queries_);
    ForEdges(common, [&](int64_t r, PositionRange lanes) HWY_ATTR {
      edges = true;
      ScoreGroups(Groups(lanes), r * group_, group_);
    });
    const Ahead ahead = AheadOf(Vectors::ValueAt(layout_, 0), kKeysAhead);
    for (int64_t r = 0; r < rows_; ++r) SoftmaxRow(r, ahead.From(r == 0 ? 0 : kSoftmaxAhead));
    MergeSums(queries_, w_.max, w_.sum, w_.range_max, w_.range_sum, w_.a, w_.b);
    if (!edges && (Vectors::kDirectValues || UnpackedGroups() >= Groups(common).size())) {
      return AddValues(common, 0, queries_, {w_.o, w_.range_o, w_.a, w_.b});
    }
    const ValueSums sums = {w_.o, nullptr, w_.a, w_.b};
    std::memset(w_.o, 0, static_cast<size_t>(queries_ * v_padded_) * sizeof(float));
    ForEdges({common.begin, INT64_MAX}, [&](int64_t r, PositionRange lanes) HWY_ATTR { AddRowValues(lanes, r, sums); });
    if (!common.empty()) AddValues(common, 0, queries_, sums);
    ForEdges({INT64_MIN, common.end}, [&](int64_t r, PositionRange lanes) HWY_ATTR { AddRowValues(lanes, r, sums); });
    for (int64_t i = 0; i < queries_; ++i) {
      if (!Lanes(i / group_).empty()) MergeOutputs(v_padded_, At(w_.o, i), w_.a[i], w_.b[i], At(w_.range_o, i));
    }
  }

  // fn(r, lanes) for the lanes of each row left of `common`, and right of it.
  template <class F>
  HWY_INLINE void ForEdges(PositionRange common, const F& fn) const {
    for (int64_t r = 0; r < rows_; ++r) {
      const PositionRange lanes = Lanes(r), left = {lanes.begin, std::min(lanes.end, common.begin)},
                          right = {std::max(lanes.begin, common.end), lanes.end};
      if (!left.empty()) fn(r, left);
      if (!right.empty()) fn(r, right);
    }
  }

  HWY_NOINLINE void ScoreGroups(PositionRange groups, int64_t first, int64_t queries) {
    using Factor = typename Keys::Factor;
    const Factor* q = reinterpret_cast<const Factor*>(w_.q) + first;
    float* p = w_.p + first * kKvBlock;
    const size_t at = Vectors::KeyAt(layout_, groups.begin * kUnit);
    if constexpr (Vectors::kDirectKeys) {
      Keys::Scores(Vectors::Keys(layout_, share_, groups.begin * kUnit), groups.size(), k_dim_, q, queries, op_.scale,
                   p + groups.begin * kUnit, AheadOf(at, kKeysAhead));
    } else {
      StoredKey* k = reinterpret_cast<StoredKey*>(w_.unpacked);
      const int64_t most = FittingGroups(Keys::Group(k_dim_) * static_cast<int64_t>(sizeof(StoredKey)));
      for (int64_t g = groups.begin; g < groups.end; g += most) {
        const int64_t n = std::min(most, groups.end - g);
        Vectors::UnpackKeys(layout_, share_, g * kUnit, n, k);
        Keys::Scores(k, n, k_dim_, q, queries, op_.scale, p + g * kUnit, AheadOf(Vectors::KeyAt(layout_, g * kUnit), kKeysAhead));
      }
    }
  }

  HWY_NOINLINE void SoftmaxRow(int64_t r, Ahead ahead) {
    const PositionRange lanes = Lanes(r);
    const bool change = op_.softcap != 0 || !op_.slopes.empty();
    for (int64_t i = r * group_; i < (r + 1) * group_; ++i) {
      if (lanes.empty()) {  // merging this changes nothing
        w_.max[i] = w_.range_max[i];
        w_.sum[i] = 0;
        continue;
      }
      if (change) {
        const int64_t from = lanes.begin / kUnit * kUnit, to = (lanes.end + kUnit - 1) / kUnit * kUnit;
        const float slope = op_.slopes.empty() ? 0 : op_.slopes[static_cast<size_t>(first_head_ + i % group_)];
        ChangeScores(w_.p + i * kKvBlock + from, to - from, op_.softcap, slope, base_ + from - op_.rows[row_ + r].position);
      }
      w_.sum[i] = BlockSoftmax<V>(w_.p + i * kKvBlock, lanes, Factors(i), w_.max[i], ahead);
      ahead = ahead.From(kSoftmaxAhead);
    }
  }

  // The factors of a query: in place of the scores if they have their size.
  typename V::Factor* Factors(int64_t query) const {
    constexpr bool kInPlace = sizeof(typename V::Factor) == V::kElements * sizeof(float);
    float* at = kInPlace ? w_.p + query * kKvBlock : w_.factors + query * (kKvBlock / 2);
    return reinterpret_cast<typename V::Factor*>(at);
  }
  int64_t FittingGroups(int64_t group_bytes) const {
    return std::clamp<int64_t>(kUnpackBytes / group_bytes, 1, kKvBlock / kUnit);
  }
  int64_t UnpackedGroups() const {
    return FittingGroups(kUnit / V::kElements * v_padded_ * static_cast<int64_t>(sizeof(typename V::Stored)));
  }

  // Lanes that all of the queries see. With pairs they are whole groups.
  HWY_NOINLINE void AddValues(PositionRange lanes, int64_t first, int64_t queries, const ValueSums& sums) {
    const ValueSums to = sums.From(first, 0, v_padded_);
    const typename V::Factor* p = Factors(first);
    if constexpr (Vectors::kDirectValues) {
      const auto* v = Vectors::Values(layout_, share_, lanes.begin);
      ValuesOf<V>(v, v_padded_, lanes.size() / V::kElements, p + lanes.begin / V::kElements, queries, to,
                  AheadOf(Vectors::ValueAt(layout_, lanes.begin), kValuesAhead));
    } else {
      typename V::Stored* v = reinterpret_cast<typename V::Stored*>(w_.unpacked);
      const int64_t most = UnpackedGroups();
      for (int64_t g = lanes.begin / kUnit; g * kUnit < lanes.end; g += most) {
        const int64_t n = std::min(most, Groups(lanes).end - g);
        Unpack(g, n, v);
        const PositionRange part = {std::max(lanes.begin, g * kUnit), std::min(lanes.end, (g + n) * kUnit)};
        ValuesOf<V>(v + (part.begin - g * kUnit) / V::kElements * v_padded_, v_padded_, part.size() / V::kElements,
                    p + part.begin / V::kElements, queries, to, NoneAhead());
      }
    }
  }
  // Prefetches while it unpacks.
  HWY_INLINE void Unpack(int64_t group, int64_t groups, typename V::Stored* v) const {
    const int64_t stored = static_cast<int64_t>(Vectors::ValueAt(layout_, kUnit) - Vectors::ValueAt(layout_, 0));
    for (int64_t g = group; g < group + groups; ++g, v += kUnit / V::kElements * v_padded_) {
      const Ahead ahead = AheadOf(Vectors::ValueAt(layout_, g * kUnit), kValuesAhead);
      for (int64_t line = 0; line < stored; line += 64) ahead.Line(line);
      Vectors::UnpackValues(layout_, share_, g * kUnit, 1, v);
    }
  }

  // Lanes of one row.
  HWY_NOINLINE void AddRowValues(PositionRange lanes, int64_t r, const ValueSums& sums) {
    if constexpr (kPairs) {
      // A group of which some lanes are masked is copied, with zeros in these.
      const int64_t begin = (lanes.begin + kUnit - 1) / kUnit * kUnit, end = lanes.end / kUnit * kUnit;
      if (lanes.begin < begin) AddEdge({lanes.begin, std::min(begin, lanes.end)}, r, sums);
      if (begin < end) AddValues({begin, end}, r * group_, group_, sums);
      if (std::max(begin, end) < lanes.end && begin <= end) AddEdge({end, lanes.end}, r, sums);
    } else {
      AddValues(lanes, r * group_, group_, sums);
    }
  }
  HWY_INLINE void AddEdge(PositionRange lanes, int64_t r, const ValueSums& sums) {
    if constexpr (kPairs) {
      const int64_t group = lanes.begin / kUnit;
      const uint32_t* from = reinterpret_cast<const uint32_t*>(w_.unpacked);
      uint32_t* v = reinterpret_cast<uint32_t*>(w_.edge);
      if constexpr (Vectors::kDirectValues) {
        from = Vectors::Values(layout_, share_, group * kUnit);
      } else {
        Vectors::UnpackValues(layout_, share_, group * kUnit, 1, reinterpret_cast<uint32_t*>(w_.unpacked));
      }
      for (int64_t n = 0; n < kUnit / 2; ++n) {
        const int64_t lane = group * kUnit + 2 * n;
        const uint32_t mask = (lanes.begin <= lane && lane < lanes.end ? 0x0000ffffu : 0) |
                              (lanes.begin <= lane + 1 && lane + 1 < lanes.end ? 0xffff0000u : 0);
        for (int64_t d = n * v_padded_; d < (n + 1) * v_padded_; d += kLanes) {
          hn::StoreU(hn::And(hn::LoadU(kKvWords, from + d), hn::Set(kKvWords, mask)), kKvWords, v + d);
        }
      }
      ValuesOf<V>(v, v_padded_, kUnit / 2, Factors(r * group_) + group * (kUnit / 2), group_, sums.From(r * group_, 0, v_padded_),
                  NoneAhead());
    }
  }
};

// Rows [begin, end) with the query heads of a head task, one slice. Splits the rows into runs of one table.
void AttendRows(const AttentionOp& op, int64_t begin, int64_t end, int64_t head_task, int64_t slice, int64_t slices,
                std::span<uint8_t> scratch) {
  const AttentionScratch work(op, scratch);
  const int64_t tasks = TasksPerKvHead(op), kv_head = head_task / tasks, task = head_task % tasks, each = HeadsPerKvHead(op);
  const int64_t first = kv_head * each + each * task / tasks, next = kv_head * each + each * (task + 1) / tasks;
  while (begin < end) {
    int64_t run = begin + 1;
    while (run < end && op.rows[run].table == op.rows[begin].table) ++run;
    WithKvFormat(op.layout, [&](auto format) {
#if TALLY_AMX
      if constexpr (requires { AmxFormat<decltype(format)>::kParts; }) {
        if (OnTiles(op.layout)) {
          return AmxRun<decltype(format)>(op, begin, run - begin, {kv_head, first, next - first, slice, slices}, work).Run();
        }
      }
#endif
      TileRun<decltype(format)>(op, begin, run - begin, {kv_head, first, next - first, slice, slices}, work).Run();
    });
    begin = run;
  }
}

// Merges the partial sums that slices left for one row and query head.
void MergePartials(const AttentionOp& op, int64_t row, int64_t head, std::span<uint8_t> scratch) {
  const AttentionScratch w(op, scratch);
  const int64_t padded = KvPadded(op.layout.v_dim);
  for (float* array : {w.range_max, w.range_sum, w.all_max, w.all_sum}) std::fill_n(array, kLanes, 0.0f);
  StartSums(op, head, *w.all_max, *w.all_sum);
  std::memset(w.all_o, 0, static_cast<size_t>(padded) * sizeof(float));
  const PositionRange visible = VisiblePositions(op, op.rows[row]);
  for (int64_t range = visible.begin / kRangePositions; range * kRangePositions < visible.end; ++range) {
    const float* partial = PartialOf(op, row, head, range);
    *w.range_max = partial[0];
    *w.range_sum = partial[1];
    MergeSums(1, w.range_max, w.range_sum, w.all_max, w.all_sum, w.a, w.b);
    MergeOutputs(padded, partial + 16, *w.a, *w.b, w.all_o);
  }
  FinishOutput(op, row, head, *w.all_sum, w.all_o);
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(AttendRows);
HWY_EXPORT(MergePartials);

namespace {

int64_t Tiles(const AttentionOp& op) {
  const int64_t n = static_cast<int64_t>(op.rows.size()), tile_rows = TileRows(op);
  int64_t tiles = 0;
  for (int64_t row = 0; row < n; row = TileEnd(op.rows, row, tile_rows)) ++tiles;
  return tiles;
}

}  // namespace

TaskPlan PlanAttentionHwy(const AttentionOp& op, int) {
  const int64_t tiles = Tiles(op), slices = SlicesOf(op, tiles);
  // Tiles and slices differ in the number of visible positions, so threads take them one by one. The heads of a single tile cost the
  // same.
  return {.tasks = tiles * HeadTasks(op) * slices,
          .chunk = tiles > 1 || slices > 1 ? 1 : 0,
          .scratch_bytes = AttentionScratch::Floats(op) * sizeof(float),
          .later = slices > 1 ? static_cast<int64_t>(op.rows.size()) * op.heads : 0};
}

void RunAttentionHwy(const AttentionOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const int64_t n = static_cast<int64_t>(op.rows.size()), tile_rows = TileRows(op);
  const int64_t slices = SlicesOf(op, Tiles(op)), tile_tasks = HeadTasks(op) * slices;
  int64_t task = 0;  // the first of the tile
  for (int64_t row = 0; row < n && task < end; task += tile_tasks) {
    const int64_t row_end = TileEnd(op.rows, row, tile_rows);
    for (int64_t t = std::max(begin, task); t < std::min(end, task + tile_tasks); ++t) {
      HWY_DYNAMIC_DISPATCH(AttendRows)(op, row, row_end, (t - task) / slices, (t - task) % slices, slices, scratch);
    }
    row = row_end;
  }
  for (int64_t t = std::max(begin, task); t < end; ++t) {
    HWY_DYNAMIC_DISPATCH(MergePartials)(op, (t - task) / op.heads, (t - task) % op.heads, scratch);
  }
}

}  // namespace tally
#endif
