// SPDX-License-Identifier: Apache-2.0
// The scalar references. The Highway kernel of ScaleRowsOp gives the same bits; TemperatureOp has no other.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/scalar.h"
#include "engine/kernels/scale_rows/scale_rows.h"

namespace tally {

// log(1 + exp(x)); x itself from 20 on, as in torch.
template <class S>
S Softplus(S x) {
  const S y = Log1p(Exp(x));
  return ToF32(x) > 20 ? x : y;
}

// A task is one row of out.
template <class S>
void ScaleRowsRef(const ScaleRowsOp& op, int64_t begin, int64_t end) {
  const int64_t k = op.factors(), cols = op.x.cols / op.groups;
  for (int64_t t = begin; t < end; ++t) {
    const float* weights = op.weights.Row(t / k) + t % k;
    for (int64_t g = 0; g < op.groups; ++g) {
      const S weight = op.softplus ? Softplus(S(weights[g])) : S(weights[g]);
      const float* x = op.x.Row(t / k) + g * cols;
      float* out = op.out.Row(t) + g * cols;
      for (int64_t i = 0; i < cols; ++i) out[i] = ToF32(weight * S(x[i]));
    }
  }
}

// A task is one row.
template <class S>
void TemperatureRef(const TemperatureOp& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const S periods = (S(static_cast<float>(op.positions[static_cast<size_t>(t)])) + S(op.offset)) / S(op.floor);
    const S whole(std::floor(ToF32(periods)));
    *op.out.Row(t) = ToF32(S(1.0f) + S(op.scale) * Log(S(1.0f) + whole));
  }
}

}  // namespace tally
