// SPDX-License-Identifier: Apache-2.0
// The scalar reference of NormOp. A task is one vector: group t % groups of row t / groups.
//
// Tolerance of the Highway kernel, u = 2^-24. The two add the K terms of a sum in different orders; the rounding errors of such
// sums grow as sqrt(K) u in practice (Higham & Mary 2019). A lost or doubled element of ordinary data changes the result by
// 1/(2K), which exceeds the tolerance up to K = 15,000.
//   RMSNorm, L2  |y - y'| <= NormTolerance(K) |y|
//   LayerNorm    |y - y'| <= NormTolerance(K) (|w| (1 + max|x| / sd) + |y| + |b|)
//                max and standard deviation of the vector, since the rounding of the mean affects every element
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/norm/norm.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline double NormTolerance(int64_t k) { return (4 * std::sqrt(static_cast<double>(k)) + 8) * 0x1p-24; }

// kRms, kL2
template <class S>
void RmsNormVector(NormKind kind, const float* x, const float* w, int64_t k, float eps, bool add, float* out) {
  S sum(0.0f);
  for (int64_t i = 0; i < k; ++i) sum = Fma(S(x[i]), S(x[i]), sum);
  if (kind == NormKind::kRms) sum = sum / S(static_cast<float>(k));
  const S inverse = Rsqrt(sum + S(eps));
  for (int64_t i = 0; i < k; ++i) {
    const S scaled = S(x[i]) * inverse, y = w != nullptr ? scaled * S(w[i]) : scaled;
    out[i] = ToF32(add ? S(out[i]) + y : y);
  }
}

template <class S>
void LayerNormVector(const float* x, const float* w, const float* b, int64_t k, float eps, float* out) {
  S sum(0.0f);
  for (int64_t i = 0; i < k; ++i) sum = sum + S(x[i]);
  const S mean = sum / S(static_cast<float>(k));
  S squares(0.0f);
  for (int64_t i = 0; i < k; ++i) {  // the centred values are stored in out
    const S centred = S(x[i]) - mean;
    squares = Fma(centred, centred, squares);
    out[i] = ToF32(centred);
  }
  const S inverse = Rsqrt(squares / S(static_cast<float>(k)) + S(eps));
  for (int64_t i = 0; i < k; ++i) {
    const S scaled = S(out[i]) * inverse;
    out[i] = ToF32(b != nullptr ? Fma(scaled, S(w[i]), S(b[i])) : scaled * S(w[i]));
  }
}

template <class S>
void NormRef(const NormOp& op, int64_t begin, int64_t end) {
  const int64_t k = op.vector_size();
  const float* b = op.bias.empty() ? nullptr : op.bias.Vector();
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / op.groups, at = t % op.groups * k;
    const float* w = op.WeightsAt(at);
    const float* x = op.x.Row(row) + at;
    float* out = op.out.Row(row) + at;
    if (op.kind != NormKind::kLayer) {
      RmsNormVector<S>(op.kind, x, w, k, op.eps, op.add_to_out, out);
    } else {
      LayerNormVector<S>(x, w, b, k, op.eps, out);
    }
  }
}

}  // namespace tally
