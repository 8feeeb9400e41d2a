// SPDX-License-Identifier: Apache-2.0
// The scalar references. The Highway kernel of ScaleRowsOp gives the same bits; TemperatureOp has no other.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/scalar.h"
#include "engine/kernels/scale_rows/scale_rows.h"

namespace tally {

// A task is one row of out.
template <class S>
void ScaleRowsRef(const ScaleRowsOp& op, int64_t begin, int64_t end) {
  const int64_t k = op.weights.cols;
  for (int64_t t = begin; t < end; ++t) {
    const S weight(op.weights.Row(t / k)[t % k]);
    const float* x = op.x.Row(t / k);
    float* out = op.out.Row(t);
    for (int64_t i = 0; i < op.x.cols; ++i) out[i] = ToF32(weight * S(x[i]));
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
