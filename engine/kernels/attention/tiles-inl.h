// SPDX-License-Identifier: Apache-2.0
// Register tiles of attention: products of queries with keys, and of probabilities with values.
//
// A unit is 16 lanes: 16 positions of K, or 16 dimensions of V. A register tile is queries x units. Its size keeps the multiply-add
// pipes busy (latency x pipes = 8 to 10 sums) without spilling registers. Tiling never changes the order of a sum.
#if defined(TALLY_ATTENTION_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_ATTENTION_TILES_INL_H
#undef TALLY_ATTENTION_TILES_INL_H
#else
#define TALLY_ATTENTION_TILES_INL_H
#endif

#include <cstdint>
#include <type_traits>

#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/kv_store/kv_formats-inl.h"
#include "engine/kernels/kv_store/kv_vectors-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = KvFloats;
using VF = KvVec;
constexpr DF kF32;
constexpr int kLanes = kKvLanes;

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

// Prefetches the bytes that come next while others are read: `split` bytes from at, then those from `then`.
struct Ahead {
  const uint8_t *at, *then;
  int64_t split;
  bool on = true;
  HWY_INLINE void Line(int64_t offset) const { hwy::Prefetch((offset < split ? at : then - split) + offset); }
  HWY_INLINE void FarLine(int64_t offset) const {  // into the second cache
    __builtin_prefetch((offset < split ? at : then - split) + offset, 0, 2);
  }
  HWY_INLINE Ahead From(int64_t offset) const { return {at + offset, then, split - offset, on}; }
};

// Scores of Q queries with U groups of 16 positions: p[i][16 u + lane] = scale * sum over steps in order.
// k: [u][step][16], groups `group` elements apart. q: [step][kTileQueries].
template <class A, int Q, int U>
HWY_INLINE void ScoreTile(const typename A::Stored* HWY_RESTRICT k, int64_t group, int64_t steps,
                          const typename A::Factor* HWY_RESTRICT q, float scale, float* HWY_RESTRICT p, const Ahead& ahead) {
  constexpr int kStepBytes = U * kUnit * static_cast<int>(sizeof(*k));
  VF sum[Q][U * kVecs];
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) { HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::Zero(kF32); }
  for (int64_t n = 0; n < steps; ++n, q += kTileQueries) {
    decltype(A::Load(k)) x[U * kVecs];
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) x[j] = A::Load(k + j / kVecs * group + n * kUnit + j % kVecs * kLanes);
    if (ahead.on) {
      HWY_UNROLL(8) for (int line = 0; line < kStepBytes; line += 64) ahead.Line(n * kStepBytes + line);
    }
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = A::Add(x[j], q + i, sum[i][j]);
    }
  }
  const VF s = hn::Set(kF32, scale);
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) hn::StoreU(hn::Mul(sum[i][j], s), kF32, p + i * kKvBlock + j * kLanes);
  }
}

// Where a block's sums of p v go: into o, added; or, if `total` is not null, merged into it: total = total a + sum b.
struct ValueSums {
  float *o, *total;  // [queries][padded]
  const float *a, *b;
  ValueSums From(int64_t query, int64_t d, int64_t padded) const {
    const int64_t at = query * padded + d;
    return {o + at, total != nullptr ? total + at : nullptr, a + query, b + query};
  }
};

// sum[i][0 .. 16 U) += over steps in order p[i][step] * v[step][0 .. 16 U) for Q queries.
template <class A, int Q, int U>
HWY_INLINE void ValueTile(const typename A::Stored* HWY_RESTRICT v, int64_t padded, int64_t steps,
                          const typename A::Factor* HWY_RESTRICT p, const ValueSums& sums, const Ahead& ahead) {
  constexpr int kStepBytes = U * kUnit * static_cast<int>(sizeof(*v)), kStride = kKvBlock / A::kElements;
  VF sum[Q][U * kVecs];
  if (sums.total != nullptr) {
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) { HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::Zero(kF32); }
  } else {
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::LoadU(kF32, sums.o + i * padded + j * kLanes);
    }
  }
  for (int64_t n = 0; n < steps; ++n) {
    decltype(A::Load(v)) x[U * kVecs];
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) x[j] = A::Load(v + n * padded + j * kLanes);
    if (ahead.on) {
      HWY_UNROLL(8) for (int line = 0; line < kStepBytes; line += 64) ahead.Line(n * kStepBytes + line);
    }
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = A::Add(x[j], p + i * kStride + n, sum[i][j]);
    }
  }
  if (sums.total == nullptr) {
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) hn::StoreU(sum[i][j], kF32, sums.o + i * padded + j * kLanes);
    }
    return;
  }
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
    const VF a = hn::Set(kF32, sums.a[i]), b = hn::Set(kF32, sums.b[i]);
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) {
      float* to = sums.total + i * padded + j * kLanes;
      hn::StoreU(hn::MulAdd(hn::LoadU(kF32, to), a, hn::Mul(sum[i][j], b)), kF32, to);
    }
  }
}

template <class A, int Q>
HWY_NOINLINE void Scores(const typename A::Stored* k, int64_t groups, int64_t group, int64_t steps, const typename A::Factor* q,
                         float scale, float* p, const Ahead& ahead) {
  constexpr int kU = UnitsFor(Q);
  const int64_t bytes = steps * kUnit * static_cast<int64_t>(sizeof(*k));
  int64_t g = 0;
  for (; g + kU <= groups; g += kU)
    ScoreTile<A, Q, kU>(k + g * group, group, steps, q, scale, p + g * kUnit, ahead.From(g * bytes));
  if constexpr (kU > 1) {
    for (; g < groups; ++g) ScoreTile<A, Q, 1>(k + g * group, group, steps, q, scale, p + g * kUnit, ahead.From(g * bytes));
  }
}

template <class A, int Q>
HWY_NOINLINE void Values(const typename A::Stored* v, int64_t padded, int64_t steps, const typename A::Factor* p,
                         const ValueSums& sums, const Ahead& ahead) {
  constexpr int kU = UnitsFor(Q);
  const int64_t bytes = steps * static_cast<int64_t>(sizeof(*v));
  int64_t d = 0;
  for (; d + kU * kUnit <= padded; d += kU * kUnit) {
    ValueTile<A, Q, kU>(v + d, padded, steps, p, sums.From(0, d, padded), ahead.From(d * bytes));
  }
  if constexpr (kU > 1) {
    for (; d < padded; d += kUnit) ValueTile<A, Q, 1>(v + d, padded, steps, p, sums.From(0, d, padded), ahead.From(d * bytes));
  }
}

// Calls fn(integral_constant<int, n>, first query) for tiles of n <= Most queries, as even as can be.
template <int Most, class F>
HWY_INLINE void ForQueryTiles(int64_t queries, F&& fn) {
  const int64_t tiles = (queries + Most - 1) / Most;
  for (int64_t t = 0, i = 0; t < tiles; ++t) {
    const int n = static_cast<int>(queries / tiles + (t < queries % tiles ? 1 : 0));
    [&]<int... kCounts>(std::integer_sequence<int, kCounts...>) {
      (void)((n == kCounts + 1 && (fn(std::integral_constant<int, kCounts + 1>(), i), true)) || ...);
    }
    (std::make_integer_sequence<int, Most>());
    i += n;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
