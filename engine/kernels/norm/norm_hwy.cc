// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm. A sum has four accumulators: groups of four whole vectors go one to each, the remaining elements to the
// first. A result depends on its own vector and the target only.
#include <cmath>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/norm/norm_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/norm/norm.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// term(tail, acc, i, count) returns acc plus the terms of elements [i, i + count).
template <class Term>
HWY_INLINE float SumOver(int64_t k, const Term& term) {
  const D d;
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

void RmsNormVector(const float* x, const float* w, int64_t k, float eps, bool add, float* out) {
  const D d;
  const float squares = SumOver(k, [&](auto tail, V acc, int64_t i, size_t count) HWY_ATTR {
    const V v = LoadLanes(tail, d, x + i, count);
    return hn::MulAdd(v, v, acc);
  });
  const V inverse = hn::Set(d, 1.0f / std::sqrt(squares / static_cast<float>(k) + eps));
  ForLanes(d, k, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    const V scaled = hn::Mul(LoadLanes(tail, d, x + i, count), inverse);
    V y = w != nullptr ? hn::Mul(scaled, LoadLanes(tail, d, w + i, count)) : scaled;
    if (add) y = hn::Add(LoadLanes(tail, d, out + i, count), y);
    StoreLanes(tail, y, d, out + i, count);
  });
}

void LayerNormVector(const float* x, const float* w, const float* b, int64_t k, float eps, float* out) {
  const D d;
  const float sum = SumOver(
      k, [&](auto tail, V acc, int64_t i, size_t count) HWY_ATTR { return hn::Add(acc, LoadLanes(tail, d, x + i, count)); });
  const V mean = hn::Set(d, sum / static_cast<float>(k));
  // The centred values are stored in out, which may be x.
  const float squares = SumOver(k, [&](auto tail, V acc, int64_t i, size_t count) HWY_ATTR {
    const V centred = ZeroBeyond(tail, d, hn::Sub(LoadLanes(tail, d, x + i, count), mean), count);
    StoreLanes(tail, centred, d, out + i, count);
    return hn::MulAdd(centred, centred, acc);
  });
  const V inverse = hn::Set(d, 1.0f / std::sqrt(squares / static_cast<float>(k) + eps));
  ForLanes(d, k, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    const V scaled = hn::Mul(LoadLanes(tail, d, out + i, count), inverse), scale = LoadLanes(tail, d, w + i, count);
    const V y = b != nullptr ? hn::MulAdd(scaled, scale, LoadLanes(tail, d, b + i, count)) : hn::Mul(scaled, scale);
    StoreLanes(tail, y, d, out + i, count);
  });
}

void RunNorm(const NormOp& op, int64_t begin, int64_t end) {
  const int64_t k = op.vector_size();
  const float* b = op.bias.empty() ? nullptr : op.bias.Vector();
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / op.groups, at = t % op.groups * k;
    const float* w = op.WeightsAt(at);
    const float* x = op.x.Row(row) + at;
    float* out = op.out.Row(row) + at;
    if (op.kind == NormKind::kRms) {
      RmsNormVector(x, w, k, op.eps, op.add_to_out, out);
    } else {
      LayerNormVector(x, w, b, k, op.eps, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunNorm);
void RunNormHwy(const NormOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunNorm)(op, begin, end);
}

}  // namespace tally
#endif
