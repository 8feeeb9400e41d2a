// Attention for every Highway target: tiles of (rows of one sequence) x (the query heads of one KV head), so that a block of
// K and V is read once for all of them. One row (decode) is a tile of one row: a query's arithmetic is the same whatever
// shares its tile, since register tiles only choose which queries and lanes go side by side, never an order of sums.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after foreach_target.h: not per target
#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/math-inl.h"
#include "hwy/cache_control.h"

#ifndef TALLY_ATTENTION_HWY_ONCE
#define TALLY_ATTENTION_HWY_ONCE
namespace tally {

// How far ahead of its use K and V are asked for, in bytes of the KV head's share.
inline constexpr size_t kPrefetchAhead = 4096;
// Positions taken at a time: f16 is widened into a buffer of so many when several register tiles use it.
inline constexpr int64_t kChunk = 32;

// A thread's work arrays for one tile, in floats. Query i of the tile is row i / group, head i % group.
struct AttentionScratch {
  float *q, *o, *total;            // [queries][padded dim]: queries; a block's sum of p v; the running sum O
  float *p;                        // [queries][kKvBlock]: scores, then probabilities
  float *wide;                     // [kChunk][padded dim]: widened K or V
  float *max, *sum, *a, *b;        // [queries]: M, L and the factors of the join

  static size_t Floats(const AttentionOp& op) {
    const size_t padded = KvHeadDim(op.head_dim), queries = TileRows(op) * (op.heads / op.kv_heads);
    return queries * (3 * padded + kKvBlock) + kChunk * padded + 4 * RoundedQueries(queries);
  }
  AttentionScratch(const AttentionOp& op, std::span<uint8_t> bytes) {
    const size_t padded = KvHeadDim(op.head_dim), queries = TileRows(op) * (op.heads / op.kv_heads);
    float* next = reinterpret_cast<float*>(bytes.data());
    auto take = [&next](size_t n) {
      next += n;
      return next - n;
    };
    q = take(queries * padded);
    o = take(queries * padded);
    total = take(queries * padded);
    p = take(queries * kKvBlock);
    wide = take(kChunk * padded);
    max = take(RoundedQueries(queries));
    sum = take(RoundedQueries(queries));
    a = take(RoundedQueries(queries));
    b = take(RoundedQueries(queries));
  }
  static size_t RoundedQueries(size_t n) { return (n + 15) / 16 * 16; }
};

}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr DF kF32;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));

// A unit is 16 floats: 16 positions of K for one d, or 16 dimensions of V for one position. A register tile is some queries
// by some units, sized to keep the multiply-add pipes busy (latency x pipes = 8 to 10 sums) within the registers there are.
constexpr int kUnit = 16;
constexpr int kVecs = kUnit / kLanes;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kSums = 12;
#else
constexpr int kSums = 24;
#endif
constexpr int kMaxQueries = kVecs >= kSums ? 1 : kSums / (kVecs == 1 ? 2 : kVecs);
constexpr int UnitsFor(int queries) {
  int units = 8;
  while (units > 1 && units * queries * kVecs > kSums) units /= 2;
  return units;
}

HWY_INLINE VF Widen(const float* x) { return hn::LoadU(kF32, x); }
HWY_INLINE VF Widen(const hwy::float16_t* x) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(kF32, hn::LoadU(d16, x));
}

// Scores of Q queries with U groups of 16 positions: p[i][16 u + lane] = scale * sum over d in order of k * q.
// k: [u][d][16], groups `k_group` elements apart; q rows `q_stride` apart.
template <class T, int Q, int U>
HWY_INLINE void ScoreTile(const T* HWY_RESTRICT k, int64_t k_group, int64_t dim, const float* HWY_RESTRICT q, int64_t q_stride,
                          float scale, float* HWY_RESTRICT p) {
  VF sum[Q][U * kVecs];
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::Zero(kF32);
  }
  for (int64_t d = 0; d < dim; ++d) {
    VF x[U * kVecs];
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) x[j] = Widen(k + j / kVecs * k_group + d * kUnit + j % kVecs * kLanes);
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
      const VF y = hn::Set(kF32, q[i * q_stride + d]);
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::MulAdd(x[j], y, sum[i][j]);
    }
  }
  const VF s = hn::Set(kF32, scale);
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) hn::StoreU(hn::Mul(sum[i][j], s), kF32, p + i * kKvBlock + j * kLanes);
  }
}

// o[i][0 .. 16 U) += sum over positions in order of p[i][position] * v[position][0 .. 16 U) for Q queries.
template <class T, int Q, int U>
HWY_INLINE void ValueTile(const T* HWY_RESTRICT v, int64_t padded, int64_t positions, const float* HWY_RESTRICT p,
                          float* HWY_RESTRICT o) {
  VF sum[Q][U * kVecs];
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::LoadU(kF32, o + i * padded + j * kLanes);
  }
  for (int64_t n = 0; n < positions; ++n) {
    VF x[U * kVecs];
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) x[j] = Widen(v + n * padded + j * kLanes);
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
      const VF y = hn::Set(kF32, p[i * kKvBlock + n]);
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::MulAdd(x[j], y, sum[i][j]);
    }
  }
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) hn::StoreU(sum[i][j], kF32, o + i * padded + j * kLanes);
  }
}

template <class T, int Q>
HWY_NOINLINE void Scores(const T* k, int64_t groups, int64_t k_group, int64_t dim, const float* q, int64_t q_stride,
                         float scale, float* p) {
  constexpr int kU = UnitsFor(Q);
  int64_t g = 0;
  for (; g + kU <= groups; g += kU) ScoreTile<T, Q, kU>(k + g * k_group, k_group, dim, q, q_stride, scale, p + g * kUnit);
  if constexpr (kU > 1) {
    for (; g < groups; ++g) ScoreTile<T, Q, 1>(k + g * k_group, k_group, dim, q, q_stride, scale, p + g * kUnit);
  }
}

template <class T, int Q>
HWY_NOINLINE void Values(const T* v, int64_t padded, int64_t positions, const float* p, float* o) {
  constexpr int kU = UnitsFor(Q);
  int64_t d = 0;
  for (; d + kU * kUnit <= padded; d += kU * kUnit) ValueTile<T, Q, kU>(v + d, padded, positions, p, o + d);
  if constexpr (kU > 1) {
    for (; d < padded; d += kUnit) ValueTile<T, Q, 1>(v + d, padded, positions, p, o + d);
  }
}

// Calls fn<Q>(first) for register tiles of nearly equal size that cover `queries` queries.
template <int Q, class F>
HWY_INLINE void WithQueries(int queries, F&& fn) {
  if constexpr (Q > 1) {
    if (queries < Q) return WithQueries<Q - 1>(queries, fn);
  }
  fn(std::integral_constant<int, Q>());
}

template <class T>
HWY_INLINE void ScoresOf(const T* k, int64_t groups, int64_t padded, int64_t dim, const float* q, int64_t queries,
                         float scale, float* p) {
  const int64_t tiles = (queries + kMaxQueries - 1) / kMaxQueries;
  for (int64_t t = 0, i = 0; t < tiles; ++t) {
    const int n = static_cast<int>(queries / tiles + (t < queries % tiles ? 1 : 0));
    WithQueries<kMaxQueries>(n, [&](auto size) {
      Scores<T, decltype(size)::value>(k, groups, padded * kUnit, dim, q + i * padded, padded, scale, p + i * kKvBlock);
    });
    i += n;
  }
}

template <class T>
HWY_INLINE void ValuesOf(const T* v, int64_t padded, int64_t positions, const float* p, int64_t queries, float* o) {
  const int64_t tiles = (queries + kMaxQueries - 1) / kMaxQueries;
  for (int64_t t = 0, i = 0; t < tiles; ++t) {
    const int n = static_cast<int>(queries / tiles + (t < queries % tiles ? 1 : 0));
    WithQueries<kMaxQueries>(n, [&](auto size) {
      Values<T, decltype(size)::value>(v, padded, positions, p + i * kKvBlock, o + i * padded);
    });
    i += n;
  }
}

HWY_INLINE void WidenRun(const hwy::float16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) hn::StoreU(Widen(x + i), kF32, out + i);
}

// Scores of one query in lanes [begin, end) of a block become probabilities; returns their sum and sets `max`. Lanes of the
// first and last group of 16 that are not visible are given a score of -inf, whose exp is exactly 0.
HWY_INLINE float BlockSoftmax(float* HWY_RESTRICT p, PositionRange lanes, float& max) {
  const int64_t first = lanes.begin / kUnit * kUnit, last = (lanes.end + kUnit - 1) / kUnit * kUnit;
  for (int64_t i = first; i < lanes.begin; ++i) p[i] = -std::numeric_limits<float>::infinity();
  for (int64_t i = lanes.end; i < last; ++i) p[i] = -std::numeric_limits<float>::infinity();
  VF m[kVecs], sum[kVecs];
  HWY_UNROLL(16) for (int j = 0; j < kVecs; ++j) {
    m[j] = hn::Set(kF32, -std::numeric_limits<float>::infinity());
    sum[j] = hn::Zero(kF32);
  }
  for (int64_t i = first; i < last; i += kUnit) {
    HWY_UNROLL(16) for (int j = 0; j < kVecs; ++j) m[j] = hn::Max(m[j], hn::LoadU(kF32, p + i + j * kLanes));
  }
  HWY_UNROLL(16) for (int j = 1; j < kVecs; ++j) m[0] = hn::Max(m[0], m[j]);
  max = hn::ReduceMax(kF32, m[0]);
  const VF all = hn::Set(kF32, max);
  for (int64_t i = first; i < last; i += kUnit) {
    HWY_UNROLL(16) for (int j = 0; j < kVecs; ++j) {
      const VF e = Exp(kF32, hn::Sub(hn::LoadU(kF32, p + i + j * kLanes), all));
      hn::StoreU(e, kF32, p + i + j * kLanes);
      sum[j] = hn::Add(sum[j], e);
    }
  }
  HWY_UNROLL(16) for (int j = 1; j < kVecs; ++j) sum[0] = hn::Add(sum[0], sum[j]);
  return hn::ReduceSum(kF32, sum[0]);
}

HWY_INLINE float ScalarExp(float x) { return hn::GetLane(Exp(kF32, hn::Set(kF32, x))); }

// Joins a block's (max, sum) to the running ones and leaves the factors of O and o in a and b. M = -inf: the first block.
HWY_INLINE void Join(float block_max, float block_sum, float& max, float& sum, float& a, float& b) {
  a = b = 1.0f;
  if (max == -std::numeric_limits<float>::infinity()) {
    a = 0.0f;
    max = block_max;
  } else if (block_max > max) {
    a = ScalarExp(max - block_max);
    max = block_max;
  } else {
    b = ScalarExp(block_max - max);
  }
  sum = sum * a + block_sum * b;
}

// One KV head's K and V as they pass: this block's share, and the next one's for prefetching.
struct Stream {
  const uint8_t* share;
  const uint8_t* next;  // nullptr: none
  size_t bytes;         // of a share

  // Asks for the `n` bytes that lie kPrefetchAhead bytes beyond `offset`.
  HWY_INLINE void Ahead(size_t offset, size_t n) const {
    for (size_t i = offset + kPrefetchAhead; i < offset + kPrefetchAhead + n; i += 64) {
      if (i < bytes) {
        hwy::Prefetch(share + i);
      } else if (next != nullptr) {
        hwy::Prefetch(next + (i - bytes));
      }
    }
  }
};

// Rows [row, row + rows) of one table with one KV head.
template <class T>
void AttendTile(const AttentionOp& op, int64_t row, int64_t rows, int64_t kv_head, const AttentionScratch& w) {
  const int64_t dim = op.head_dim, padded = KvHeadDim(dim), group = op.heads / op.kv_heads, queries = rows * group;
  const KvTable& table = op.tables[op.rows[row].table];
  const size_t share_bytes = KvHeadBytes(op.type, dim);
  const bool widen = sizeof(T) == 2 && queries > kMaxQueries;

  PositionRange any{INT64_MAX, 0}, all{0, INT64_MAX};  // positions that some row sees, that every row sees
  for (int64_t r = 0; r < rows; ++r) {
    const PositionRange v = VisiblePositions(op.rows[row + r].position, op.window);
    any = {std::min(any.begin, v.begin), std::max(any.end, v.end)};
    all = {std::max(all.begin, v.begin), std::min(all.end, v.end)};
    std::memset(w.total + r * group * padded, 0, static_cast<size_t>(group * padded) * sizeof(float));
    for (int64_t g = 0; g < group; ++g) {
      const int64_t i = r * group + g, head = kv_head * group + g;
      std::memcpy(w.q + i * padded, op.q.Row(row + r) + head * dim, static_cast<size_t>(dim) * sizeof(float));
      w.max[i] = op.sinks.empty() ? -std::numeric_limits<float>::infinity() : op.sinks.Vector()[head];
      w.sum[i] = op.sinks.empty() ? 0.0f : ScalarExp(w.max[i] - w.max[i]);
    }
  }

  const int64_t blocks = (any.end - 1) / kKvBlock;  // the last one's index
  for (int64_t block = any.begin / kKvBlock; block <= blocks; ++block) {
    const int64_t base = block * kKvBlock;
    const PositionRange some = Within(any, base, kKvBlock), every = Within(all, base, kKvBlock);
    const uint8_t* share = table.blocks[block] + kv_head * share_bytes;
    const uint8_t* next = block < blocks ? table.blocks[block + 1] : nullptr;
    const Stream stream{share, next == nullptr ? nullptr : next + kv_head * share_bytes, share_bytes};
    const T* k = reinterpret_cast<const T*>(share);
    const T* v = k + kKvBlock * padded;
    // Lanes of the chunk at `c` that row r sees.
    auto lanes_of = [&](int64_t r, int64_t c) {
      PositionRange p = Within(VisiblePositions(op.rows[row + r].position, op.window), base, kKvBlock);
      return PositionRange{std::max(p.begin, c), std::min(p.end, c + kChunk)};
    };

    for (int64_t c = some.begin / kChunk * kChunk; c < some.end; c += kChunk) {
      stream.Ahead(static_cast<size_t>(c * padded) * sizeof(T), static_cast<size_t>(kChunk * padded) * sizeof(T));
      const bool whole = every.begin <= c && c + kChunk <= every.end;
      const PositionRange used = {std::max(some.begin, c) / kUnit, (std::min(some.end, c + kChunk) + kUnit - 1) / kUnit};
      if (widen) {
        for (int64_t g = used.begin; g < used.end; ++g) {
          WidenRun(reinterpret_cast<const hwy::float16_t*>(k) + g * kUnit * padded, dim * kUnit,
                   w.wide + (g * kUnit - c) * padded);
        }
      }
      auto scores = [&](PositionRange groups, int64_t first, int64_t n) {
        float* p = w.p + first * kKvBlock + groups.begin * kUnit;
        const float* q = w.q + first * padded;
        if (widen) {
          ScoresOf(w.wide + (groups.begin * kUnit - c) * padded, groups.size(), padded, dim, q, n, op.scale, p);
        } else {
          ScoresOf(k + groups.begin * kUnit * padded, groups.size(), padded, dim, q, n, op.scale, p);
        }
      };
      if (whole) {
        scores(used, 0, queries);
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        const PositionRange lanes = lanes_of(r, c);
        if (!lanes.empty()) scores({lanes.begin / kUnit, (lanes.end + kUnit - 1) / kUnit}, r * group, group);
      }
    }

    for (int64_t r = 0; r < rows; ++r) {
      const PositionRange lanes = Within(VisiblePositions(op.rows[row + r].position, op.window), base, kKvBlock);
      if (lanes.empty()) continue;
      for (int64_t i = r * group; i < (r + 1) * group; ++i) {
        float max;
        const float sum = BlockSoftmax(w.p + i * kKvBlock, lanes, max);
        Join(max, sum, w.max[i], w.sum[i], w.a[i], w.b[i]);
      }
    }

    std::memset(w.o, 0, static_cast<size_t>(queries * padded) * sizeof(float));
    for (int64_t c = some.begin / kChunk * kChunk; c < some.end; c += kChunk) {
      stream.Ahead(static_cast<size_t>((kKvBlock + c) * padded) * sizeof(T), static_cast<size_t>(kChunk * padded) * sizeof(T));
      const bool whole = every.begin <= c && c + kChunk <= every.end;
      const PositionRange used = {std::max(some.begin, c), std::min(some.end, c + kChunk)};
      if (widen) {
        WidenRun(reinterpret_cast<const hwy::float16_t*>(v) + used.begin * padded, used.size() * padded,
                 w.wide + (used.begin - c) * padded);
      }
      auto values = [&](PositionRange lanes, int64_t first, int64_t n) {
        const float* p = w.p + first * kKvBlock + lanes.begin;
        float* o = w.o + first * padded;
        if (widen) {
          ValuesOf(w.wide + (lanes.begin - c) * padded, padded, lanes.size(), p, n, o);
        } else {
          ValuesOf(v + lanes.begin * padded, padded, lanes.size(), p, n, o);
        }
      };
      if (whole) {
        values(used, 0, queries);
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        const PositionRange lanes = lanes_of(r, c);
        if (!lanes.empty()) values(lanes, r * group, group);
      }
    }

    for (int64_t r = 0; r < rows; ++r) {
      if (Within(VisiblePositions(op.rows[row + r].position, op.window), base, kKvBlock).empty()) continue;
      for (int64_t i = r * group; i < (r + 1) * group; ++i) {
        const VF a = hn::Set(kF32, w.a[i]), b = hn::Set(kF32, w.b[i]);
        for (int64_t d = 0; d < padded; d += kLanes) {
          float* total = w.total + i * padded + d;
          hn::StoreU(hn::MulAdd(hn::LoadU(kF32, total), a, hn::Mul(hn::LoadU(kF32, w.o + i * padded + d), b)), kF32, total);
        }
      }
    }
  }

  for (int64_t i = 0; i < queries; ++i) {
    float* total = w.total + i * padded;
    const VF sum = hn::Set(kF32, w.sum[i]);
    for (int64_t d = 0; d < padded; d += kLanes) hn::StoreU(hn::Div(hn::LoadU(kF32, total + d), sum), kF32, total + d);
    std::memcpy(op.out.Row(row + i / group) + (kv_head * group + i % group) * dim, total, static_cast<size_t>(dim) * sizeof(float));
  }
}

// Rows [begin, end) with one KV head, in runs of one table.
void AttendRows(const AttentionOp& op, int64_t begin, int64_t end, int64_t kv_head, std::span<uint8_t> scratch) {
  const AttentionScratch work(op, scratch);
  while (begin < end) {
    int64_t run = begin + 1;
    while (run < end && op.rows[run].table == op.rows[begin].table) ++run;
    if (op.type == KvType::kF16) {
      AttendTile<hwy::float16_t>(op, begin, run - begin, kv_head, work);
    } else {
      AttendTile<float>(op, begin, run - begin, kv_head, work);
    }
    begin = run;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(AttendRows);

TaskPlan PlanAttentionHwy(const AttentionOp& op, int) {
  const int64_t n = static_cast<int64_t>(op.rows.size()), tile_rows = TileRows(op);
  int64_t tiles = 0;
  for (int64_t row = 0; row < n; row = TileEnd(op.rows, row, tile_rows)) ++tiles;
  // Rows differ in depth, so tiles are handed out one by one; the heads of a single row cost the same.
  return {tiles * op.kv_heads, tiles > 1 ? 1 : 0, AttentionScratch::Floats(op) * sizeof(float)};
}

void RunAttentionHwy(const AttentionOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const int64_t n = static_cast<int64_t>(op.rows.size()), tile_rows = TileRows(op);
  int64_t task = 0;
  for (int64_t row = 0; row < n && task < end;) {
    const int64_t row_end = TileEnd(op.rows, row, tile_rows);
    for (int64_t head = 0; head < op.kv_heads; ++head, ++task) {
      if (task >= begin && task < end) {
        HWY_DYNAMIC_DISPATCH(AttendRows)(op, row, row_end, head, scratch);
      }
    }
    row = row_end;
  }
}

}  // namespace tally
#endif
