// SPDX-License-Identifier: Apache-2.0
// Softmax of a block's scores, and merging what blocks and ranges give.
#if defined(TALLY_ATTENTION_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_ATTENTION_SOFTMAX_INL_H
#undef TALLY_ATTENTION_SOFTMAX_INL_H
#else
#define TALLY_ATTENTION_SOFTMAX_INL_H
#endif

#include <limits>

#include "engine/kernels/attention/tiles-inl.h"
#include "engine/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// 2^f for |f| <= .5: a polynomial, minimax fit, relative error 9e-8.
HWY_INLINE VF Exp2OfFraction(VF f) {
  VF e = hn::Set(kF32, 0.00132647646f);
  e = hn::MulAdd(e, f, hn::Set(kF32, 0.00967151113f));
  e = hn::MulAdd(e, f, hn::Set(kF32, 0.0555073358f));
  e = hn::MulAdd(e, f, hn::Set(kF32, 0.240222424f));
  e = hn::MulAdd(e, f, hn::Set(kF32, 0.693147004f));
  e = hn::MulAdd(e, f, hn::Set(kF32, 1.0f));
  return e;
}

// e^x for x <= 0, as 2^n 2^f with n = round(x / ln 2) and f = x / ln 2 - n. The relative error is 2 ulp, and half an ulp of x. Exactly 0
// below -88. NaN gives NaN.
HWY_INLINE VF ExpOfNegative(VF x) {
  const hn::RebindToSigned<DF> di;
  // Adding 1.5 * 2^23 leaves n in the low mantissa bits. x / ln 2 >= -127.1, and n = -127 has the power 0.
  const VF magic = hn::Set(kF32, 12582912.0f), inverse = hn::Set(kF32, 1.44269504f);
  const VF least = hn::Set(kF32, -88.1f);
#if HWY_ARCH_X86
  x = hn::Max(least, x);  // the second argument where one is NaN
#else
  x = hn::IfThenElse(hn::Lt(x, least), least, x);  // there Max may be the argument that is a number
#endif
  const VF shifted = hn::MulAdd(x, inverse, magic);
  const VF f = hn::MulSub(x, inverse, hn::Sub(shifted, magic));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::BitCast(di, shifted), hn::Set(di, 127)));
  return hn::Mul(Exp2OfFraction(f), hn::BitCast(kF32, power));
}

// Soft cap, then slope, of the scores p[0 .. n), n a multiple of kUnit. `distance`: position of p[0] less the query's.
HWY_NOINLINE void ChangeScores(float* HWY_RESTRICT p, int64_t n, float softcap, float slope, int64_t distance) {
  for (int64_t i = 0; i < n; i += kLanes) {
    VF s = hn::LoadU(kF32, p + i);
    if (softcap != 0) s = hn::Mul(hn::Set(kF32, softcap), Tanh(kF32, hn::Mul(s, hn::Set(kF32, 1 / softcap))));
    if (slope != 0) s = hn::MulAdd(hn::Set(kF32, slope), hn::Iota(kF32, static_cast<float>(distance + i)), s);
    hn::StoreU(s, kF32, p + i);
  }
}

// Replaces the scores of one query in `lanes` of a block by exp(score - max), stored as factors of A, which may be p itself. Returns
// their sum and sets `max`. Masked lanes in the first and last group of 16 get the score -inf, whose exp is exactly 0. Prefetches
// two lines a group.
template <class A>
HWY_NOINLINE float BlockSoftmax(float* p, PositionRange lanes, typename A::Factor* factors, float& max, const Ahead& ahead) {
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
    ahead.Line(8 * (i - first));
    ahead.Line(8 * (i - first) + 64);
    HWY_UNROLL(16) for (int j = 0; j < kVecs; ++j) {
      const VF e = ExpOfNegative(hn::Sub(hn::LoadU(kF32, p + i + j * kLanes), all));
      A::StoreFactors(e, factors + (i + j * kLanes) / A::kElements);
      sum[j] = hn::Add(sum[j], e);
    }
  }
  HWY_UNROLL(16) for (int j = 1; j < kVecs; ++j) sum[0] = hn::Add(sum[0], sum[j]);
  return hn::ReduceSum(kF32, sum[0]);
}

// M before anything is merged: every other maximum is higher, so that its factor a is 0. Not -inf: -inf - -inf is NaN.
constexpr float kNoMaximum = std::numeric_limits<float>::lowest();

// Merges `queries` pairs (max, sum), rounded up to 16, into (into_max, into_sum), and sets the factors a of O and b of o.
HWY_NOINLINE void MergeSums(int64_t queries, const float* max, const float* sum, float* into_max, float* into_sum, float* a,
                            float* b) {
  const VF one = hn::Set(kF32, 1.0f);
  for (int64_t i = 0; i < queries; i += kLanes) {
    const VF m = hn::LoadU(kF32, max + i), old = hn::LoadU(kF32, into_max + i);
    const VF e = ExpOfNegative(hn::Neg(hn::Abs(hn::Sub(m, old))));
    const auto higher = hn::Gt(m, old);
    const VF x = hn::IfThenElse(higher, e, one), y = hn::IfThenElse(higher, one, e);
    hn::StoreU(x, kF32, a + i);
    hn::StoreU(y, kF32, b + i);
    hn::StoreU(hn::IfThenElse(higher, m, old), kF32, into_max + i);
    hn::StoreU(hn::MulAdd(hn::LoadU(kF32, into_sum + i), x, hn::Mul(hn::LoadU(kF32, sum + i), y)), kF32, into_sum + i);
  }
}

// into = into a + o b
HWY_NOINLINE void MergeOutputs(int64_t padded, const float* HWY_RESTRICT o, float a, float b, float* HWY_RESTRICT into) {
  const VF x = hn::Set(kF32, a), y = hn::Set(kF32, b);
  for (int64_t d = 0; d < padded; d += kLanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(kF32, into + d), x, hn::Mul(hn::LoadU(kF32, o + d), y)), kF32, into + d);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
