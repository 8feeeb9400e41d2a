// SPDX-License-Identifier: Apache-2.0
// ScaleRowsOp with columns as lanes.
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/scale_rows/scale_rows_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/scale_rows/scale_rows.h"
#include "engine/kernels/scale_rows/scale_rows_ref.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RunScaleRows(const ScaleRowsOp& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t k = op.factors(), cols = op.x.cols / op.groups;
  for (int64_t t = begin; t < end; ++t) {
    const float* weights = op.weights.Row(t / k) + t % k;
    for (int64_t g = 0; g < op.groups; ++g) {
      const auto weight = hn::Set(d, op.softplus ? Softplus(weights[g]) : weights[g]);
      const float* x = op.x.Row(t / k) + g * cols;
      float* out = op.out.Row(t) + g * cols;
      ForLanes(d, cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
        StoreLanes(tail, hn::Mul(weight, LoadLanes(tail, d, x + i, count)), d, out + i, count);
      });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunScaleRows);
void RunScaleRowsHwy(const ScaleRowsOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunScaleRows)(op, begin, end);
}

}  // namespace tally
#endif
