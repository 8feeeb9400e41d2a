// SPDX-License-Identifier: Apache-2.0
// The scalar reference of GatedNormOp. A task is one vector: group t % groups of row t / groups.
//
// Tolerance of the Highway kernel: |y - y'| <= (NormTolerance(K) + 2^-20) |y|; the activations have errors below 2^-21 of their result on
// both sides (math-inl.h).
#pragma once

#include <cstdint>

#include "engine/kernels/gated_norm/gated_norm.h"
#include "engine/kernels/math_scalar.h"
#include "engine/kernels/norm/norm_ref.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline double GatedNormTolerance(int64_t k) { return NormTolerance(k) + 0x1p-20; }

// N, A: the scalars of the norm, and of the activation and its product.
template <class N, class A>
void GatedNormRef(const GatedNormOp& op, int64_t begin, int64_t end) {
  const int64_t k = op.vector_size();
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / op.groups, at = t % op.groups * k;
    const float* w = op.weight.Vector() + (op.weight.cols == k ? 0 : at);
    const float* x = op.x.Row(row) + at;
    const float* gate = op.gate.Row(row) + at;
    float* out = op.out.Row(row) + at;
    const auto times_gate = [&](float y, int64_t i) { return ToF32(A(y) * Activate(op.activation, A(gate[i]))); };
    if (op.gate_first) {
      for (int64_t i = 0; i < k; ++i) out[i] = times_gate(x[i], i);
      RmsNormVector<N>(NormKind::kRms, out, w, k, op.eps, false, out);
    } else {
      RmsNormVector<N>(NormKind::kRms, x, w, k, op.eps, false, out);
      for (int64_t i = 0; i < k; ++i) out[i] = times_gate(out[i], i);
    }
  }
}

}  // namespace tally
