// SPDX-License-Identifier: Apache-2.0
// Loops over arrays of any length: whole vectors, then one masked vector that neither loads nor stores beyond the end. The body is
// compiled for both; its argument `tail` is true_type for the masked one.
#if defined(TALLY_KERNELS_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_LANES_INL_H
#undef TALLY_KERNELS_LANES_INL_H
#else
#define TALLY_KERNELS_LANES_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// body(tail, i, count): lanes [i, i + count)
template <class D, class Body>
HWY_INLINE void ForLanes(D d, int64_t n, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(std::false_type(), i, static_cast<size_t>(lanes));
  if (i < n) body(std::true_type(), i, static_cast<size_t>(n - i));
}

// Lanes beyond `count` are 0.
template <bool kTail, class D>
HWY_INLINE hn::Vec<D> LoadLanes(std::bool_constant<kTail>, D d, const hn::TFromD<D>* p, size_t count) {
  if constexpr (kTail) return hn::LoadN(d, p, count);
  return hn::LoadU(d, p);
}

template <bool kTail, class D>
HWY_INLINE void StoreLanes(std::bool_constant<kTail>, hn::Vec<D> v, D d, hn::TFromD<D>* p, size_t count) {
  if constexpr (kTail) {
    hn::StoreN(v, d, p, count);
  } else {
    hn::StoreU(v, d, p);
  }
}

// Lanes beyond `count` become 0.
template <bool kTail, class D>
HWY_INLINE hn::Vec<D> ZeroBeyond(std::bool_constant<kTail>, D d, hn::Vec<D> v, size_t count) {
  if constexpr (kTail) return hn::IfThenElseZero(hn::FirstN(d, count), v);
  return v;
}

// Rows of activations lie kilobytes apart, which no hardware prefetcher follows.
HWY_INLINE void PrefetchFloats(const float* p, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) hwy::Prefetch(p + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_KERNELS_LANES_INL_H
