// SPDX-License-Identifier: Apache-2.0
// The scalar reference of RatesOp. A task is one row. Both sides of a choice are computed; the choice itself is not counted.
//
// Tolerance of the Highway kernel, u = 2^-24: |s - s'| <= 8 u |s|, since exp and log(1 + x) have errors of some ulp on both sides, and the
// rounding of x + bias is the same. The error of s is A s u in the exponent of the decay: |w - w'| <= (8 |A s| + 4) u w. beta: 8 u beta.
// With a bound s is a sigmoid, whose argument A y is the same on both sides: |s - s'| <= 8 u s, and the same with |bound s| for |A s|.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/math_scalar.h"
#include "engine/kernels/rates/rates.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline constexpr double kRatesTolerance = 8 * 0x1p-24;
// log(1 + exp(x)) is x from here on; a decay of e^x is 0 below.
inline constexpr float kSoftplusLinear = 20, kLeastDecay = -60;

// B, A: the scalars of the bias, and of all else.
template <class B, class A>
void RatesRef(const RatesOp& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    float* const x = op.x.Row(t);
    for (int64_t h = 0; h < op.x.cols; ++h) {
      const float y = ToF32(B(x[h]) + B(op.bias.Vector()[h]));
      const A a(op.a.Vector()[h / op.dim()]);
      A s, exponent;
      if (op.bound != 0) {
        s = Sigmoid(a * A(y));
        exponent = A(op.bound) * s;
      } else {
        s = Log1p(Exp(A(y)));
        if (y > kSoftplusLinear) s = A(y);
        if (op.least > 0) s = Max(s, A(op.least));
        if (std::isfinite(op.most)) s = Min(s, A(op.most));
        exponent = a * s;
      }
      const A decay = Exp(exponent);
      x[h] = ToF32(s);
      op.decay.Row(t)[h] = ToF32(exponent) < kLeastDecay ? 0.0f : ToF32(decay);
    }
    for (int64_t h = 0; h < op.beta.cols; ++h) op.beta.Row(t)[h] = ToF32(Sigmoid(A(op.beta.Row(t)[h])));
  }
}

}  // namespace tally
