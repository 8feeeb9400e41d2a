// SPDX-License-Identifier: Apache-2.0
// GatedNormOp with the elements of a vector as lanes.
#include <cmath>
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/gated_norm/gated_norm_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/gated_norm/gated_norm.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/math-inl.h"
#include "engine/kernels/norm/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

void RunGatedNorm(const GatedNormOp& op, int64_t begin, int64_t end) {
  const D d;
  const int64_t k = op.vector_size();
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / op.groups, at = t % op.groups * k;
    const float* const w = op.weight.Vector() + (op.weight.cols == k ? 0 : at);
    const float* const gate = op.gate.Row(row) + at;
    const float* x = op.x.Row(row) + at;
    float* const out = op.out.Row(row) + at;
    const float squares = SumOver(k, [&](auto tail, V acc, int64_t i, size_t count) HWY_ATTR {
      V v = LoadLanes(tail, d, x + i, count);
      if (op.gate_first) {  // the products are stored in out, which may be x
        v = hn::Mul(v, Activate(d, op.activation, LoadLanes(tail, d, gate + i, count)));
        StoreLanes(tail, v, d, out + i, count);
      }
      return hn::MulAdd(v, v, acc);
    });
    if (op.gate_first) x = out;
    const V inverse = hn::Set(d, 1.0f / std::sqrt(squares / static_cast<float>(k) + op.eps));
    ForLanes(d, k, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      V y = hn::Mul(hn::Mul(LoadLanes(tail, d, x + i, count), inverse), LoadLanes(tail, d, w + i, count));
      if (!op.gate_first) y = hn::Mul(y, Activate(d, op.activation, LoadLanes(tail, d, gate + i, count)));
      StoreLanes(tail, y, d, out + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunGatedNorm);
void RunGatedNormHwy(const GatedNormOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunGatedNorm)(op, begin, end);
}

}  // namespace tally
#endif
