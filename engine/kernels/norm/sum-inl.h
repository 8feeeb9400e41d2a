// SPDX-License-Identifier: Apache-2.0
// The sum over a vector to normalise. It has four accumulators: groups of four whole vectors go one to each, the remaining elements to the
// first. A result depends on the vector and the target only.
#if defined(TALLY_KERNELS_NORM_SUM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_NORM_SUM_INL_H
#undef TALLY_KERNELS_NORM_SUM_INL_H
#else
#define TALLY_KERNELS_NORM_SUM_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// term(tail, acc, i, count) returns acc plus the terms of elements [i, i + count).
template <class Term>
HWY_INLINE float SumOver(int64_t k, const Term& term) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const size_t count = static_cast<size_t>(lanes);
  const std::false_type whole;
  V a0 = hn::Zero(d), a1 = hn::Zero(d), a2 = hn::Zero(d), a3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= k; i += 4 * lanes) {
    a0 = term(whole, a0, i, count);
    a1 = term(whole, a1, i + lanes, count);
    a2 = term(whole, a2, i + 2 * lanes, count);
    a3 = term(whole, a3, i + 3 * lanes, count);
  }
  for (; i + lanes <= k; i += lanes) a0 = term(whole, a0, i, count);
  if (i < k) a0 = term(std::true_type(), a0, i, static_cast<size_t>(k - i));
  return hn::ReduceSum(d, hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)));
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_KERNELS_NORM_SUM_INL_H
