// SPDX-License-Identifier: Apache-2.0
// The scalar reference of ElementwiseOp.
//
// Tolerance of the Highway kernel, u = 2^-24: |x - x'| <= 8 u |x|. Both round the same products; tanh has an error of 2.5 ulp there
// and 1 ulp here.
#pragma once

#include <cstdint>

#include "engine/kernels/elementwise/elementwise.h"
#include "engine/kernels/math_scalar.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline constexpr double kElementwiseTolerance = 8 * 0x1p-24;

template <class S>
void ElementwiseRef(const ElementwiseOp& op, int64_t begin, int64_t end) {
  const bool xielu = op.activation == ActivationKind::kXielu;
  const Xielu numbers = xielu ? op.Numbers() : Xielu();
  for (int64_t t = begin; t < end; ++t) {
    const ElementwiseTask task(op, t);
    float* x = op.x.Row(task.row) + task.begin;
    const float* up = op.up.empty() ? nullptr : op.up.Row(task.row) + task.begin;
    for (int64_t i = 0; i < task.cols; ++i) {
      S y(x[i]);
      if (op.scale != 1) y = S(op.scale) * y;
      if (!op.factor.empty()) y = S(op.factor.Vector()[0]) * y;
      if (op.limit != 0) y = Max(Min(y, S(op.limit)), S(-op.limit));
      if (op.softcap != 0) y = S(op.softcap) * Tanh(y * S(1 / op.softcap));
      if (up != nullptr)
        y = ActivateGated(op.activation, y, S(up[i]), S(op.swiglu_alpha), S(op.swiglu_limit));
      else
        y = xielu ? XieluOf(y, numbers) : Activate(op.activation, y);
      x[i] = ToF32(y);
    }
  }
}

}  // namespace tally
