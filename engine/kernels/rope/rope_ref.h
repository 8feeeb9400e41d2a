// SPDX-License-Identifier: Apache-2.0
// The scalar references of RopeTableOp and RopeOp.
//
// Tolerances of the Highway kernels, u = 2^-24.
//   Table: the angles are the same f32 products. Each side's cosine and sine has an error of at most 1 ulp (2 u), and each side
//   rounds
//     the product with the magnitude: |t - t'| <= 6 u |t|.
//   Rope: a result is a product and a multiply-add. Targets without FMA round the second product too, and each side rounds its
//   result:
//     |a' - a''| <= 3 u (|a cos| + |b sin|), and the same for b'.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/kernels/rope/rope.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline constexpr double kRopeTableTolerance = 6 * 0x1p-24;
inline constexpr double kRopeTolerance = 3 * 0x1p-24;

// A task is one row.
template <class S>
void RopeTableRef(const RopeTableOp& op, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    float* cos = op.cos.Row(r);
    float* sin = op.sin.Row(r);
    for (int64_t i = 0; i < op.cos.cols; ++i) {
      const size_t axis = op.axes.empty() ? 0 : op.axes[static_cast<size_t>(i)];
      const S position(static_cast<float>(op.Position(static_cast<size_t>(r), axis)));
      const S angle = position * S(op.inv_freq[static_cast<size_t>(i)]);
      cos[i] = ToF32(Cos(angle) * S(op.magnitude));
      sin[i] = ToF32(Sin(angle) * S(op.magnitude));
    }
  }
}

// Task t is head t % heads of row t / heads.
template <class S>
void RopeRef(const RopeOp& op, int64_t begin, int64_t end) {
  const int64_t half = op.dim / 2;
  const bool adjacent = op.style == RopeStyle::kAdjacentPair;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / op.heads;
    const float* x = op.x.Row(row) + t % op.heads * op.head_dim;
    float* out = op.to().Row(row) + t % op.heads * op.to_head_dim();
    if (op.style == RopeStyle::kNone) {
      std::copy_n(x, op.dim, out);
      continue;
    }
    const float* cos = op.cos.Row(row);
    const float* sin = op.sin.Row(row);
    for (int64_t i = 0; i < half; ++i) {
      const int64_t first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + half;
      const S a(x[first]), b(x[second]), c(cos[i]), s(sin[i]);
      out[first] = ToF32(Fma(a, c, -(b * s)));
      out[second] = ToF32(Fma(b, c, a * s));
    }
  }
}

}  // namespace tally
