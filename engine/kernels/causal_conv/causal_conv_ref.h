// SPDX-License-Identifier: Apache-2.0
// The scalar reference of CausalConvOp. Targets with FMA give the same bits. Others round each of the n products once more:
// |out - out'| <= CausalConvTolerance |gate| sum |w x|.
#pragma once

#include <cstdint>

#include "engine/kernels/causal_conv/causal_conv.h"
#include "engine/kernels/scalar.h"

namespace tally {

// n products, then n sums on each side, and the gate's product on each side, in units of 2^-24.
inline double CausalConvTolerance(int64_t taps) { return static_cast<double>(3 * taps + 2) * 0x1p-24; }

// A task is one row. S: the scalar of the convolution; G: of the gate.
template <class S, class G>
void CausalConvRef(const CausalConvOp& op, int64_t begin, int64_t end) {
  const int64_t taps = op.taps.slices;
  for (int64_t t = begin; t < end; ++t) {
    const float* gate = op.gate.Row(t);
    float* out = op.out.Row(t);
    for (int64_t i = 0; i < op.out.cols; ++i) {
      S sum(0.0f);
      for (int64_t k = 0; k < taps; ++k) {
        const float* row = CachedRow(op, t, taps - 1 - k);
        sum = Fma(S(op.taps.Vector(k)[i]), S(row != nullptr ? row[i] : 0.0f), sum);
      }
      out[i] = ToF32(G(gate[i]) * G(ToF32(sum)));
    }
  }
}

}  // namespace tally
