// SPDX-License-Identifier: Apache-2.0
// The scalar reference of GatedAddOp. A task is one row.
//
// Tolerance of the Highway kernel, u = 2^-24: |out - out'| <= 10 u |sigmoid(g) y| + u |out|. exp has an error of 1.1 ulp there
// and 1 ulp here; the divide and the multiply round once each. Without a gate the bits are the same.
#pragma once

#include <cstdint>

#include "engine/kernels/gated_add/gated_add.h"
#include "engine/kernels/scalar.h"

namespace tally {

// G and A: the scalar types of gating and of adding.
template <class G, class A>
void GatedAddRef(const GatedAddOp& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const G weight = op.gate.empty() ? G(op.scale) : G(1.0f) / (G(1.0f) + Exp(-G(*op.gate.Row(t))));
    const float* y = op.y.Row(t);
    float* out = op.out.Row(t);
    for (int64_t i = 0; i < op.out.cols; ++i) out[i] = ToF32(A(out[i]) + A(ToF32(weight * G(y[i]))));
  }
}

}  // namespace tally
