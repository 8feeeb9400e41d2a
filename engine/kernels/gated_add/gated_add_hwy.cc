// SPDX-License-Identifier: Apache-2.0
// GatedAddOp with columns as lanes.
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/gated_add/gated_add_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/gated_add/gated_add.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RunGatedAdd(const GatedAddOp& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  for (int64_t t = begin; t < end; ++t) {
    const auto weight = op.gate.empty() ? hn::Set(d, op.scale) : Sigmoid(d, hn::Set(d, *op.gate.Row(t)));
    const float* y = op.y.Row(t);
    float* out = op.out.Row(t);
    ForLanes(d, op.out.cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      const auto gated = hn::Mul(weight, LoadLanes(tail, d, y + i, count));
      StoreLanes(tail, hn::Add(LoadLanes(tail, d, out + i, count), gated), d, out + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunGatedAdd);
void RunGatedAddHwy(const GatedAddOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunGatedAdd)(op, begin, end);
}

}  // namespace tally
#endif
