// SPDX-License-Identifier: Apache-2.0
// The scalar reference of CausalConvOp.
//
// Tolerance of the Highway kernel: without an activation, targets with FMA give the same bits. Others round each of the n products once
// more: |y - y'| <= CausalConvTolerance (sum |w x| + |bias|). SiLU passes that on, at most 1.1 times, and has an error of 2^-21 of its
// result.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/causal_conv/causal_conv.h"
#include "engine/kernels/causal_conv/causal_conv_inputs.h"
#include "engine/kernels/math_scalar.h"
#include "engine/kernels/scalar.h"

namespace tally {

// n products, then n sums on each side, the bias and the gate's product on each side, in units of 2^-24.
inline double CausalConvTolerance(int64_t taps) { return static_cast<double>(3 * taps + 4) * 0x1p-24; }

// S, B, A: the scalars of the convolution, of the bias, and of the activation and the gate.
template <class S, class B, class A>
void CausalConvRef(const CausalConvOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  float* const earlier = reinterpret_cast<float*>(scratch.data());
  ForConvPieces(op, begin, end, earlier, [&](const ConvInputs& inputs, int64_t c, int64_t channels, const StateRun& run) {
    for (int64_t t = 0; t < run.rows; ++t) {
      const int64_t oldest = run.position + t - op.layout.tail();
      for (int64_t i = 0; i < channels; ++i) {
        S sum(0.0f);
        for (int64_t k = 0; k < op.layout.taps; ++k) {
          sum = Fma(S(op.taps.Vector(k)[c + i]), S(inputs.At(oldest + k)[i]), sum);
        }
        float y = ToF32(sum);
        if (!op.bias.empty()) y = ToF32(B(y) + B(op.bias.Vector()[c + i]));
        A out = Activate(op.activation, A(y));
        if (!op.gate.empty()) out = out * A(op.gate.Row(inputs.Row(t))[c + i]);
        op.out.Row(inputs.Row(t))[c + i] = ToF32(out);
      }
      inputs.KeepRow(t);
    }
    inputs.KeepTails();
  });
}

}  // namespace tally
