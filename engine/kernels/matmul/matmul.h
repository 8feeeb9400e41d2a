// SPDX-License-Identifier: Apache-2.0
// Matrix products: y = W x (+ bias), of one weight or of a gate and an up weight together, over one group of rows or one per
// expert.
//
// The order of accumulation is the same for any number of rows. k (f32), pairs of k (bf16) or blocks of 32 k (int8) are added in
// order:
//   f32   acc = fma(w[k], x[k], acc), w widened to f32
//   bf16  the target's bf16 dot product if it has one (own order within a pair, or by AMX of 32 k; subnormals flushed), else
//         acc = fma(w1, x1, fma(w0, x0, acc)) per pair
//   int8  acc = fma(float(sum_32 q_w q_x), w_scale * x_scale, acc)
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"
#include "engine/kernels/pack_act/act_pack.h"

namespace tally {

// out[row(i)] (+)= act(W_slice x_i + bias_slice)
struct MatMulOp {
  static constexpr std::string_view kName = "matmul";
  ActPack x;                                          // [n, K], one group or one per expert
  WeightView w;                                       // [slices, N, K], kPanel16
  WeightView bias;                                    // [slices, N] f32 or empty
  ActivationKind activation = ActivationKind::kNone;  // of one value, without numbers
  bool add_to_out = false;                            // out += instead of out =; not together with an activation
  Mat<float> out;                                     // [>= n, N]
  std::span<const int32_t> out_row;                   // [n]: the row of out for pack row i; empty: row i
  WorkClass work_class = WorkClass::kLinear;          // kRouter for the router's matrix
  Status Validate() const;
  CostAmounts Amounts() const;
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

// out[i] = glu(gate_slice x_i + gate_bias_slice, up_slice x_i + up_bias_slice)
struct GatedMatMulOp {
  static constexpr std::string_view kName = "gated_matmul";
  ActPack x;                                          // [n, K]
  WeightView gate, up;                                // [slices, N, K], kPanel16, of one dtype
  WeightView gate_bias, up_bias;                      // [slices, N] f32 or empty
  ActivationKind activation = ActivationKind::kSilu;  // ActivateGated (math_scalar.h)
  float swiglu_alpha = 1.702f, swiglu_limit = 7.0f;
  Mat<float> out;  // [n, N]
  Status Validate() const;
  CostAmounts Amounts() const;
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<MatMulOp>> Kernels<MatMulOp>();
template <>
std::span<const Kernel<GatedMatMulOp>> Kernels<GatedMatMulOp>();

}  // namespace tally
