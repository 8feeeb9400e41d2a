// Matrix products: y = W x (+ bias), of one weight or of a gate and an up weight together, over one group of rows or one per
// expert.
//
// The order of accumulation is the same for any number of rows. k (f32), pairs of k (bf16) or blocks of 32 k (int8) are added in
// order:
//   f32   acc = fma(w[k], x[k], acc), w widened to f32
//   bf16  the target's bf16 dot product if it has one (own order within a pair, subnormals flushed), else
//         acc = fma(w1, x1, fma(w0, x0, acc)) per pair
//   int8  acc = fma(float(sum_32 q_w q_x), w_scale * x_scale, acc)
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/act_pack.h"
#include "engine/kernels/op.h"

namespace tally {

// Packs rows of x: quantises, converts or interleaves them. Row i of the pack is row `row_index[i]` of x, or row i if it is empty.
struct PackActOp {
  static constexpr std::string_view kName = "pack_act";
  Mat<const float> x;                  // [n, K]
  std::span<const int32_t> row_index;  // [pack.rows] or empty
  ActPack pack;
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(pack.rows); }
  Cost Useful(const CostAmounts& n) const;  // bytes only; the FLOPs of quantising are in Executed
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return {}; }
  void Describe(OpDescription& d) const;
};

// out[row(i)] (+)= act(W_slice x_i + bias_slice)
struct MatMulOp {
  static constexpr std::string_view kName = "matmul";
  ActPack x;                                          // [n, K], one group or one per expert
  WeightView w;                                       // [slices, N, K], kPanel16
  WeightView bias;                                    // [slices, N] f32 or empty
  ActivationKind activation = ActivationKind::kNone;  // kNone, kGeluTanh, kGeluErf, kSilu
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
  ActivationKind activation = ActivationKind::kSilu;  // kSilu, kGeluTanh: act(g) * u; kSwigluOai: see math_scalar.h
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
std::span<const Kernel<PackActOp>> Kernels<PackActOp>();
template <>
std::span<const Kernel<MatMulOp>> Kernels<MatMulOp>();
template <>
std::span<const Kernel<GatedMatMulOp>> Kernels<GatedMatMulOp>();

// Upper bound of the scratch of a thread (TaskPlan) for products of `rows` rows of at most `cols` columns, for all weight types.
uint64_t MostMatMulScratchBytes(uint64_t cols, uint64_t rows);

}  // namespace tally
