// SPDX-License-Identifier: Apache-2.0
// ElementwiseOp with columns as lanes.
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/elementwise/elementwise_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/elementwise/elementwise.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RunElementwise(const ElementwiseOp& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, op.scale), limit = hn::Set(d, op.limit), cap = hn::Set(d, op.softcap),
             inverse = hn::Set(d, 1 / op.softcap), factor = hn::Set(d, op.factor.empty() ? 1 : op.factor.Vector()[0]);
  const bool xielu = op.activation == ActivationKind::kXielu;
  const Xielu numbers = xielu ? op.Numbers() : Xielu();
  for (int64_t t = begin; t < end; ++t) {
    const ElementwiseTask task(op, t);
    float* x = op.x.Row(task.row) + task.begin;
    const float* up = op.up.empty() ? nullptr : op.up.Row(task.row) + task.begin;
    ForLanes(d, task.cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      auto y = LoadLanes(tail, d, x + i, count);
      if (op.scale != 1) y = hn::Mul(scale, y);
      if (!op.factor.empty()) y = hn::Mul(factor, y);
      if (op.limit != 0) y = MaxKeepNaN(MinKeepNaN(y, limit), hn::Neg(limit));
      if (op.softcap != 0) y = hn::Mul(cap, Tanh(d, hn::Mul(y, inverse)));
      if (up != nullptr) {
        y = ActivateGated(d, op.activation, y, LoadLanes(tail, d, up + i, count), op.swiglu_alpha, op.swiglu_limit);
      } else {
        y = xielu ? XieluOf(d, y, numbers) : Activate(d, op.activation, y);
      }
      StoreLanes(tail, y, d, x + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunElementwise);
void RunElementwiseHwy(const ElementwiseOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunElementwise)(op, begin, end);
}

}  // namespace tally
#endif
