// SPDX-License-Identifier: Apache-2.0
// Products of queries with keys in q8_0 (KvInt8): exact sums of integers over blocks of 32 elements, scaled.
#if defined(TALLY_ATTENTION_INT8_SCORES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_ATTENTION_INT8_SCORES_INL_H
#undef TALLY_ATTENTION_INT8_SCORES_INL_H
#else
#define TALLY_ATTENTION_INT8_SCORES_INL_H
#endif

#include <cstring>

#include "engine/kernels/attention/query_int8.h"
#include "engine/kernels/attention/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// A tile's queries in int8, for each block of 32 elements: [8][kTileQueries] of four integers, then [kTileQueries] scales, then
// [kTileQueries] initial values of the sums: minus 128 times the sum of the integers, as keys are stored with 128 added.
struct Int8Query {
  static constexpr int64_t kScales = 8 * kTileQueries, kStarts = 9 * kTileQueries, kBlock = 10 * kTileQueries;

  static void Store(const float* x, int64_t k_dim, int64_t query, uint32_t* out) {
    for (int64_t d = 0; d < k_dim; d += kKvQ8Block, out += kBlock) {
      int8_t q[kKvQ8Block] = {};
      const float scale = QuantiseQuery<float>(x + d, std::min(kKvQ8Block, k_dim - d), q);
      int32_t sum = 0;
      for (const int8_t each : q) sum += each;
      const int32_t start = -128 * sum;
      for (int64_t i = 0; i < 8; ++i) std::memcpy(out + i * kTileQueries + query, q + 4 * i, 4);
      std::memcpy(out + kScales + query, &scale, 4);
      std::memcpy(out + kStarts + query, &start, 4);
    }
  }
};

// As many sums of floats as of integers.
constexpr int kMaxInt8Queries = kVecs == 1 ? 6 : kVecs == 2 ? 3 : 1;
constexpr int kInt8Units = kVecs == 1 ? 2 : 1;

// k: groups `group` bytes apart, as KvQ8_0 has them. q: of the first query.
template <int Q, int U>
HWY_INLINE void Int8ScoreTile(const uint8_t* HWY_RESTRICT k, int64_t group, int64_t blocks, const uint32_t* HWY_RESTRICT q,
                              float scale, float* HWY_RESTRICT p, const Ahead& ahead) {
  const hn::RebindToSigned<DF> di32;
  const hn::Repartition<uint8_t, DF> du8;
  const hn::Repartition<int8_t, DF> di8;
  const hn::Rebind<uint16_t, DF> d16;
  using VI = hn::Vec<decltype(di32)>;
  VF f[Q][U * kVecs];
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) { HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) f[i][j] = hn::Zero(kF32); }
  for (int64_t block = 0; block < blocks; ++block, k += KvQ8_0::kGroupBytes, q += Int8Query::kBlock) {
    VI sum[Q][U * kVecs];
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
      const VI start = hn::BitCast(di32, hn::Set(kKvWords, q[Int8Query::kStarts + i]));
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = start;
    }
    if (ahead.on) {
      HWY_UNROLL(18)
      for (int line = 0; line < U * KvQ8_0::kGroupBytes; line += 64) ahead.Line(block * U * KvQ8_0::kGroupBytes + line);
    }
    HWY_UNROLL(8) for (int step = 0; step < 8; ++step) {
      hn::Vec<decltype(du8)> x[U * kVecs];
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) {
        x[j] = hn::LoadU(du8, k + j / kVecs * group + 32 + step * 64 + j % kVecs * (4 * kLanes));
      }
      HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
        const auto y = hn::BitCast(di8, hn::Set(kKvWords, q[step * kTileQueries + i]));
        HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) sum[i][j] = hn::SumOfMulQuadAccumulate(di32, x[j], y, sum[i][j]);
      }
    }
    VF key_scale[U * kVecs];
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) {
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(k + j / kVecs * group) + j % kVecs * kLanes;
      key_scale[j] = WidenF16(kF32, hn::LoadU(d16, scales));
    }
    HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
      const VF query_scale = hn::BitCast(kF32, hn::Set(kKvWords, q[Int8Query::kScales + i]));
      HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) {
        f[i][j] = hn::MulAdd(hn::ConvertTo(kF32, sum[i][j]), hn::Mul(key_scale[j], query_scale), f[i][j]);
      }
    }
  }
  const VF s = hn::Set(kF32, scale);
  HWY_UNROLL(16) for (int i = 0; i < Q; ++i) {
    HWY_UNROLL(16) for (int j = 0; j < U * kVecs; ++j) hn::StoreU(hn::Mul(f[i][j], s), kF32, p + i * kKvBlock + j * kLanes);
  }
}

template <int Q>
HWY_NOINLINE void Int8Scores(const uint8_t* k, int64_t groups, int64_t blocks, const uint32_t* q, float scale, float* p,
                             const Ahead& ahead) {
  const int64_t group = blocks * KvQ8_0::kGroupBytes;
  int64_t g = 0;
  for (; g + kInt8Units <= groups; g += kInt8Units) {
    Int8ScoreTile<Q, kInt8Units>(k + g * group, group, blocks, q, scale, p + g * kUnit, ahead.From(g * group));
  }
  if constexpr (kInt8Units > 1) {
    for (; g < groups; ++g) Int8ScoreTile<Q, 1>(k + g * group, group, blocks, q, scale, p + g * kUnit, ahead.From(g * group));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
