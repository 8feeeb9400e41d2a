// Attention for every Highway target. A tile is rows of one sequence x query heads of one KV head; it reads each block of K and V
// once. Tiling never changes the order of a sum, so a query's result does not depend on the other queries of its tile.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/attention_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after foreach_target.h: not per target
#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/kv_store/kv_formats-inl.h"
#include "engine/kernels/kv_store/kv_vectors-inl.h"
#include "engine/kernels/math-inl.h"
#include "hwy/cache_control.h"

#ifndef TALLY_ATTENTION_HWY_ONCE
#define TALLY_ATTENTION_HWY_ONCE
namespace tally {

// K and V are processed in chunks of positions: a power of two from 16 to a whole block, with at most 8 KB of K above 16. The next
// chunk is prefetched meanwhile. Elements narrower than f32 are widened a chunk at a time if several register tiles use it; formats that
// registers cannot read are always widened, and counted as 2 bytes an element.
inline int64_t ChunkPositions(int64_t k_dim, size_t element_bytes) {
  int64_t chunk = kKvBlock;
  while (chunk > 16 && chunk * KvPadded(k_dim) * static_cast<int64_t>(element_bytes) > 8192) chunk /= 2;
  return chunk;
}

// A thread's work arrays for one tile, in floats. Query i of the tile is row i / heads, head i % heads of the task's heads.
struct AttentionScratch {
  float* q;                  // [queries][padded k_dim]
  float *o, *total;          // [queries][padded v_dim]: a block's sum of p v; the running sum O
  float* p;                  // [queries][kKvBlock]: scores, then probabilities
  float* wide;               // [chunk][padded k_dim or v_dim]: widened K or V
  float *max, *sum, *a, *b;  // [queries]: M, L and the factors of the join

  static size_t Floats(const AttentionOp& op) {
    const size_t k = KvPadded(op.layout.k_dim), v = KvPadded(op.layout.v_dim), queries = Queries(op);
    return queries * (k + 2 * v + kKvBlock) + kKvBlock * std::max(k, v) + 4 * RoundedQueries(queries);
  }
  AttentionScratch(const AttentionOp& op, std::span<uint8_t> bytes) {
    const size_t k = KvPadded(op.layout.k_dim), v = KvPadded(op.layout.v_dim), queries = Queries(op);
    float* next = reinterpret_cast<float*>(bytes.data());
    auto take = [&next](size_t n) {
      next += n;
      return next - n;
    };
    q = take(queries * k);
    o = take(queries * v);
    total = take(queries * v);
    p = take(queries * kKvBlock);
    wide = take(kKvBlock * std::max(k, v));
    max = take(RoundedQueries(queries));
    sum = take(RoundedQueries(queries));
    a = take(RoundedQueries(queries));
    b = take(RoundedQueries(queries));
  }
  static size_t Queries(const AttentionOp& op) { return static_cast<size_t>(TileRows(op) * MostTaskHeads(op)); }
  static size_t RoundedQueries(size_t n) { return (n + 15) / 16 * 16; }
};

}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = KvFloats;
using VF = KvVec;
constexpr DF kF32;
constexpr int kLanes = kKvLanes;

// A unit is 16 floats: 16 positions of K for one d, or 16 dimensions of V for one position. A register tile is queries x units. Its
// size keeps the multiply-add pipes busy (latency x pipes = 8 to 10 sums) without spilling registers.
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

// Prefetch cursor: one line of `unit` bytes for each unit multiplied, from `at` on. unit 0: prefetches the same line again.
struct Ahead {
  const uint8_t* at;
  size_t unit;
  HWY_INLINE void Unit(int64_t i) const { hwy::Prefetch(at + static_cast<size_t>(i) * unit); }
  HWY_INLINE Ahead From(int64_t i) const { return {at + static_cast<size_t>(i) * unit, unit}; }
};

// Scores of Q queries with U groups of 16 positions: p[i][16 u + lane] = scale * sum over d in order of k * q.
// k: [u][d][16], groups `k_group` elements apart; rows of q are `q_stride` apart.
template <class T, int Q, int U>
HWY_INLINE void ScoreTile(const T* HWY_RESTRICT k, Ahead ahead, int64_t k_group, int64_t dim, const float* HWY_RESTRICT q,
                          int64_t q_stride, float scale, float* HWY_RESTRICT p) {
  VF sum[Q][U * kVecs];
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) { HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::Zero(kF32); }
  for (int64_t d = 0; d < dim; ++d) {
    VF x[U * kVecs];
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) x[j] = Widen(k + j / kVecs * k_group + d * kUnit + j % kVecs * kLanes);
    HWY_UNROLL(16) for (int u = 0; u < U; ++u) ahead.Unit(u * (k_group / kUnit) + d);
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
HWY_INLINE void ValueTile(const T* HWY_RESTRICT v, Ahead ahead, int64_t padded, int64_t positions, const float* HWY_RESTRICT p,
                          float* HWY_RESTRICT o) {
  VF sum[Q][U * kVecs];
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::LoadU(kF32, o + i * padded + j * kLanes);
  }
  for (int64_t n = 0; n < positions; ++n) {
    VF x[U * kVecs];
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) x[j] = Widen(v + n * padded + j * kLanes);
    HWY_UNROLL(16) for (int u = 0; u < U; ++u) ahead.Unit(n * U + u);
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
HWY_NOINLINE void Scores(const T* k, Ahead ahead, int64_t groups, int64_t k_group, int64_t dim, const float* q, int64_t q_stride,
                         float scale, float* p) {
  constexpr int kU = UnitsFor(Q);
  int64_t g = 0;
  for (; g + kU <= groups; g += kU)
    ScoreTile<T, Q, kU>(k + g * k_group, ahead.From(g * (k_group / kUnit)), k_group, dim, q, q_stride, scale, p + g * kUnit);
  if constexpr (kU > 1) {
    for (; g < groups; ++g)
      ScoreTile<T, Q, 1>(k + g * k_group, ahead.From(g * (k_group / kUnit)), k_group, dim, q, q_stride, scale, p + g * kUnit);
  }
}

template <class T, int Q>
HWY_NOINLINE void Values(const T* v, Ahead ahead, int64_t padded, int64_t positions, const float* p, float* o) {
  constexpr int kU = UnitsFor(Q);
  int64_t d = 0;
  for (; d + kU * kUnit <= padded; d += kU * kUnit)
    ValueTile<T, Q, kU>(v + d, ahead.From(d / kUnit * positions), padded, positions, p, o + d);
  if constexpr (kU > 1) {
    for (; d < padded; d += kUnit) ValueTile<T, Q, 1>(v + d, ahead.From(d / kUnit * positions), padded, positions, p, o + d);
  }
}

// Calls fn(integral_constant<int, queries>), queries in [1, Q].
template <int Q, class F>
HWY_INLINE void WithQueries(int queries, F&& fn) {
  if constexpr (Q > 1) {
    if (queries < Q) return WithQueries<Q - 1>(queries, fn);
  }
  fn(std::integral_constant<int, Q>());
}

template <class T>
HWY_INLINE void ScoresOf(const T* k, Ahead ahead, int64_t groups, int64_t padded, int64_t dim, const float* q, int64_t queries,
                         float scale, float* p) {
  const int64_t tiles = (queries + kMaxQueries - 1) / kMaxQueries;
  for (int64_t t = 0, i = 0; t < tiles; ++t) {
    const int n = static_cast<int>(queries / tiles + (t < queries % tiles ? 1 : 0));
    WithQueries<kMaxQueries>(n, [&](auto size) {
      Scores<T, decltype(size)::value>(k, ahead, groups, padded * kUnit, dim, q + i * padded, padded, scale, p + i * kKvBlock);
    });
    i += n;
    ahead.unit = 0;
  }
}

template <class T>
HWY_INLINE void ValuesOf(const T* v, Ahead ahead, int64_t padded, int64_t positions, const float* p, int64_t queries, float* o) {
  const int64_t tiles = (queries + kMaxQueries - 1) / kMaxQueries;
  for (int64_t t = 0, i = 0; t < tiles; ++t) {
    const int n = static_cast<int>(queries / tiles + (t < queries % tiles ? 1 : 0));
    WithQueries<kMaxQueries>(
        n, [&](auto size) { Values<T, decltype(size)::value>(v, ahead, padded, positions, p + i * kKvBlock, o + i * padded); });
    i += n;
    ahead.unit = 0;
  }
}

// e^x for x <= 0; 0 below -88, so there are no subnormal results. NaN gives NaN.
HWY_INLINE VF ExpOfNegative(VF x) {
  hn::Vec<hn::RebindToSigned<DF>> k;
  const VF m1 = ReducedExpM1(kF32, MaxKeepNaN(x, hn::Set(kF32, -88.0f)), k);
  const VF power = PowerOf2(kF32, k);  // k >= -127; -127 gives 0
  return hn::MulAdd(m1, power, power);
}

// Soft cap, then slope, of the scores p[0 .. n), n a multiple of kUnit. `distance`: position of p[0] less the query's.
HWY_INLINE void ChangeScores(float* HWY_RESTRICT p, int64_t n, float softcap, float slope, int64_t distance) {
  for (int64_t i = 0; i < n; i += kLanes) {
    VF s = hn::LoadU(kF32, p + i);
    if (softcap != 0) s = hn::Mul(hn::Set(kF32, softcap), Tanh(kF32, hn::Mul(s, hn::Set(kF32, 1 / softcap))));
    if (slope != 0) s = hn::MulAdd(hn::Set(kF32, slope), hn::Iota(kF32, static_cast<float>(distance + i)), s);
    hn::StoreU(s, kF32, p + i);
  }
}

// Replaces the scores of one query in `lanes` of a block by exp(score - max). Returns their sum and sets `max`. Masked lanes in the
// first and last group of 16 get the score -inf, whose exp is exactly 0.
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
      const VF e = ExpOfNegative(hn::Sub(hn::LoadU(kF32, p + i + j * kLanes), all));
      hn::StoreU(e, kF32, p + i + j * kLanes);
      sum[j] = hn::Add(sum[j], e);
    }
  }
  HWY_UNROLL(16) for (int j = 1; j < kVecs; ++j) sum[0] = hn::Add(sum[0], sum[j]);
  return hn::ReduceSum(kF32, sum[0]);
}

// Merges a block's (max, sum) into the running ones and sets the factors a of O and b of o. Before the first block max is -inf,
// which gives a = 0.
HWY_INLINE void Join(float block_max, float block_sum, float& max, float& sum, float& a, float& b) {
  const float e = hn::GetLane(ExpOfNegative(hn::Set(kF32, -std::fabs(block_max - max))));
  const bool higher = block_max > max;
  a = higher ? e : 1.0f;
  b = higher ? 1.0f : e;
  max = higher ? block_max : max;
  sum = sum * a + block_sum * b;
}

// Query heads [first, first + count) of one KV head.
struct TaskHeads {
  int64_t kv_head, first, count;
};

// Rows [row, row + rows), all of one table.
template <class Format>
class TileRun {
  using Vectors = KvVectors<Format>;
  using T = typename Vectors::Stored;

 public:
  TileRun(const AttentionOp& op, int64_t row, int64_t rows, TaskHeads heads, const AttentionScratch& work)
      : op_(op),
        row_(row),
        rows_(rows),
        first_head_(heads.first),
        w_(work),
        layout_(op.layout),
        share_(static_cast<size_t>(heads.kv_head) * Format::HeadBytes(op.layout)),
        k_dim_(op.layout.k_dim),
        v_dim_(op.layout.v_dim),
        k_padded_(KvPadded(k_dim_)),
        v_padded_(KvPadded(v_dim_)),
        group_(heads.count),
        queries_(rows * group_),
        chunk_(std::max<int64_t>(ChunkPositions(k_dim_, Vectors::kDirect ? sizeof(T) : 2),
                                 kUnit * UnitsFor(std::min<int64_t>(queries_, kMaxQueries)))),
        widen_(!Vectors::kDirect || (Vectors::kWidens && queries_ > 2 * kMaxQueries)) {}

  void Run() {
    PositionRange any{INT64_MAX, 0};  // positions that some row sees
    for (int64_t r = 0; r < rows_; ++r) {
      const PositionRange v = Visible(r);
      any = {std::min(any.begin, v.begin), std::max(any.end, v.end)};
      every_ = {std::max(every_.begin, v.begin), std::min(every_.end, v.end)};
      for (int64_t g = 0; g < group_; ++g) Start(r, g);
    }
    const KvTable& table = op_.tables[op_.rows[row_].table];
    const int64_t last = (any.end - 1) / kKvBlock;
    for (int64_t block = any.begin / kKvBlock; block <= last; ++block) {
      base_ = block * kKvBlock;
      if (!AnyRowSees()) continue;  // between the ranges of two rows; the block may have been freed
      const PositionRange some = Within(any, base_, kKvBlock);
      const uint8_t* share = table.blocks[block] + share_;
      const uint8_t* next = block < last ? table.blocks[block + 1] : nullptr;
      const int64_t first_chunk = some.begin / chunk_ * chunk_;
      for (int64_t c = first_chunk; c < some.end; c += chunk_) {
        ScoreChunk(share, c + chunk_ < some.end ? KeysFrom(share, c + chunk_) : ValuesFrom(share, first_chunk), some, c);
      }
      for (int64_t r = 0; r < rows_; ++r) SoftmaxRow(r);
      std::memset(w_.o, 0, static_cast<size_t>(queries_ * v_padded_) * sizeof(float));
      for (int64_t c = first_chunk; c < some.end; c += chunk_) {
        Next ahead = ValuesFrom(share, c + chunk_ < some.end ? c + chunk_ : c);
        if (c + chunk_ >= some.end && next != nullptr) ahead = KeysFrom(next + share_, 0);
        ValueChunk(share, ahead, some, c);
      }
      for (int64_t r = 0; r < rows_; ++r) JoinRow(r);
    }
    for (int64_t i = 0; i < queries_; ++i) Finish(i);
  }

 private:
  // Address of the next chunk to prefetch; `row`: elements between positions.
  struct Next {
    const T* at;
    int64_t row;
    Ahead From(int64_t position) const { return {reinterpret_cast<const uint8_t*>(at + position * row), kUnit * sizeof(T)}; }
  };
  Next KeysFrom(const uint8_t* share, int64_t lane) const { return {Vectors::Keys(layout_, share, lane), k_padded_}; }
  Next ValuesFrom(const uint8_t* share, int64_t lane) const { return {Vectors::Values(layout_, share, lane), v_padded_}; }

  PositionRange Visible(int64_t r) const { return VisiblePositions(op_, op_.rows[row_ + r].position); }
  // Lanes of the current block that row r sees.
  PositionRange Lanes(int64_t r) const { return Within(Visible(r), base_, kKvBlock); }
  PositionRange LanesOfChunk(PositionRange lanes, int64_t c) const {
    return {std::max(lanes.begin, c), std::min(lanes.end, c + chunk_)};
  }
  bool AnyRowSees() const {
    for (int64_t r = 0; r < rows_; ++r) {
      if (!Lanes(r).empty()) return true;
    }
    return false;
  }
  bool EveryRowSees(int64_t c) const { return every_.begin <= base_ + c && base_ + c + chunk_ <= every_.end; }
  static PositionRange Groups(PositionRange lanes) { return {lanes.begin / kUnit, (lanes.end + kUnit - 1) / kUnit}; }

  HWY_INLINE void Start(int64_t r, int64_t g) {
    const int64_t i = r * group_ + g, head = first_head_ + g;
    std::memcpy(w_.q + i * k_padded_, op_.q.Row(row_ + r) + head * k_dim_, static_cast<size_t>(k_dim_) * sizeof(float));
    std::memset(w_.total + i * v_padded_, 0, static_cast<size_t>(v_padded_) * sizeof(float));
    w_.max[i] = op_.sinks.empty() ? -std::numeric_limits<float>::infinity() : op_.sinks.Vector()[head];
    w_.sum[i] = op_.sinks.empty() ? 0.0f : 1.0f;  // exp(M - M)
  }

  // Scores of the chunk at lane c: all queries together, or row by row if some row does not see the whole chunk.
  HWY_INLINE void ScoreChunk(const uint8_t* share, Next next, PositionRange some, int64_t c) {
    const PositionRange used = Groups(LanesOfChunk(some, c));
    if (widen_) {
      const int64_t lane = used.begin * kUnit;
      Vectors::WidenKeys(layout_, share, lane, used.size(), w_.wide + (lane - c) * k_padded_);
    }
    if (EveryRowSees(c)) return ScoreQueries(share, next, used, c, 0, queries_);
    for (int64_t r = 0; r < rows_; ++r) {
      const PositionRange lanes = LanesOfChunk(Lanes(r), c);
      if (!lanes.empty()) ScoreQueries(share, next, Groups(lanes), c, r * group_, group_);
    }
  }
  HWY_INLINE void ScoreQueries(const uint8_t* share, Next next, PositionRange groups, int64_t c, int64_t first, int64_t n) {
    const int64_t lane = groups.begin * kUnit;
    float* p = w_.p + first * kKvBlock + lane;
    const float* q = w_.q + first * k_padded_;
    const Ahead ahead = next.From(lane - c);
    if (widen_) {
      ScoresOf(w_.wide + (lane - c) * k_padded_, ahead, groups.size(), k_padded_, k_dim_, q, n, op_.scale, p);
    } else if constexpr (Vectors::kDirect) {
      ScoresOf(Vectors::Keys(layout_, share, lane), ahead, groups.size(), k_padded_, k_dim_, q, n, op_.scale, p);
    }
  }

  HWY_INLINE void SoftmaxRow(int64_t r) {
    const PositionRange lanes = Lanes(r);
    if (lanes.empty()) return;
    const bool change = op_.softcap != 0 || !op_.slopes.empty();
    for (int64_t i = r * group_; i < (r + 1) * group_; ++i) {
      if (change) {
        const int64_t from = lanes.begin / kUnit * kUnit, to = (lanes.end + kUnit - 1) / kUnit * kUnit;
        const float slope = op_.slopes.empty() ? 0 : op_.slopes[static_cast<size_t>(first_head_ + i % group_)];
        ChangeScores(w_.p + i * kKvBlock + from, to - from, op_.softcap, slope, base_ + from - op_.rows[row_ + r].position);
      }
      float max;
      const float sum = BlockSoftmax(w_.p + i * kKvBlock, lanes, max);
      Join(max, sum, w_.max[i], w_.sum[i], w_.a[i], w_.b[i]);
    }
  }

  HWY_INLINE void ValueChunk(const uint8_t* share, Next next, PositionRange some, int64_t c) {
    const PositionRange used = LanesOfChunk(some, c);
    if (widen_) Vectors::WidenValues(layout_, share, used.begin, used.size(), w_.wide + (used.begin - c) * v_padded_);
    if (EveryRowSees(c)) return AddValues(share, next, used, c, 0, queries_);
    for (int64_t r = 0; r < rows_; ++r) {
      const PositionRange lanes = LanesOfChunk(Lanes(r), c);
      if (!lanes.empty()) AddValues(share, next, lanes, c, r * group_, group_);
    }
  }
  HWY_INLINE void AddValues(const uint8_t* share, Next next, PositionRange lanes, int64_t c, int64_t first, int64_t n) {
    const float* p = w_.p + first * kKvBlock + lanes.begin;
    float* o = w_.o + first * v_padded_;
    const Ahead ahead = next.From(lanes.begin - c);
    if (widen_) {
      ValuesOf(w_.wide + (lanes.begin - c) * v_padded_, ahead, v_padded_, lanes.size(), p, n, o);
    } else if constexpr (Vectors::kDirect) {
      ValuesOf(Vectors::Values(layout_, share, lanes.begin), ahead, v_padded_, lanes.size(), p, n, o);
    }
  }

  HWY_INLINE void JoinRow(int64_t r) {
    if (Lanes(r).empty()) return;
    for (int64_t i = r * group_; i < (r + 1) * group_; ++i) {
      const VF a = hn::Set(kF32, w_.a[i]), b = hn::Set(kF32, w_.b[i]);
      for (int64_t d = i * v_padded_; d < (i + 1) * v_padded_; d += kLanes) {
        const VF o = hn::Mul(hn::LoadU(kF32, w_.o + d), b);
        hn::StoreU(hn::MulAdd(hn::LoadU(kF32, w_.total + d), a, o), kF32, w_.total + d);
      }
    }
  }

  HWY_INLINE void Finish(int64_t i) {
    float* total = w_.total + i * v_padded_;
    const VF sum = hn::Set(kF32, w_.sum[i]);
    for (int64_t d = 0; d < v_padded_; d += kLanes) hn::StoreU(hn::Div(hn::LoadU(kF32, total + d), sum), kF32, total + d);
    float* out = op_.out.Row(row_ + i / group_) + (first_head_ + i % group_) * v_dim_;
    std::memcpy(out, total, static_cast<size_t>(v_dim_) * sizeof(float));
  }

  const AttentionOp& op_;
  const int64_t row_, rows_, first_head_;
  const AttentionScratch& w_;
  const KvLayout layout_;
  const size_t share_;  // byte offset of the head's share in a block
  const int64_t k_dim_, v_dim_, k_padded_, v_padded_;
  const int64_t group_, queries_;      // query heads; rows * group
  const int64_t chunk_;                // positions
  const bool widen_;                   // chunks are widened before tiles use them
  PositionRange every_{0, INT64_MAX};  // positions that every row sees
  int64_t base_ = 0;                   // first position of the current block
};

// Rows [begin, end) with the query heads of a head task. Splits the rows into runs of one table.
void AttendRows(const AttentionOp& op, int64_t begin, int64_t end, int64_t head_task, std::span<uint8_t> scratch) {
  const AttentionScratch work(op, scratch);
  const int64_t tasks = TasksPerKvHead(op), kv_head = head_task / tasks, task = head_task % tasks, each = HeadsPerKvHead(op);
  const int64_t first = kv_head * each + each * task / tasks, next = kv_head * each + each * (task + 1) / tasks;
  while (begin < end) {
    int64_t run = begin + 1;
    while (run < end && op.rows[run].table == op.rows[begin].table) ++run;
    WithKvFormat(op.layout, [&](auto format) {
      TileRun<decltype(format)>(op, begin, run - begin, {kv_head, first, next - first}, work).Run();
    });
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
  // Tiles differ in the number of visible positions, so threads take them one by one. The heads of a single tile cost the same.
  return {tiles * HeadTasks(op), tiles > 1 ? 1 : 0, AttentionScratch::Floats(op) * sizeof(float)};
}

void RunAttentionHwy(const AttentionOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const int64_t n = static_cast<int64_t>(op.rows.size()), tile_rows = TileRows(op);
  int64_t task = 0;
  for (int64_t row = 0; row < n && task < end;) {
    const int64_t row_end = TileEnd(op.rows, row, tile_rows);
    for (int64_t head_task = 0; head_task < HeadTasks(op); ++head_task, ++task) {
      if (task >= begin && task < end) {
        HWY_DYNAMIC_DISPATCH(AttendRows)(op, row, row_end, head_task, scratch);
      }
    }
    row = row_end;
  }
}

}  // namespace tally
#endif
