// SPDX-License-Identifier: Apache-2.0
// The steps on each element of a matrix, in this order: x = scale * x (logits of Cohere, Granite, MiniCPM); x = factor * x, factor a stored
// number (the output of Gemma 4's layers); x = min(max(x, -limit), limit) (q, k and v of OLMoE and MPT); x = c tanh(x / c), as c tanh(x (1
// / c)) (logits of Gemma 2); x = act(x) * up, or x = act(x) without up (xIELU). The product is that of a gated feed-forward whose two
// matrices differ in type; GatedMatMulOp does it if they have one type.
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"

namespace tally {

struct ElementwiseOp {
  static constexpr std::string_view kName = "elementwise";
  Mat<float> x;                                       // [n, d], in place
  float scale = 1;                                    // 1: no multiply
  float limit = 0;                                    // 0: none
  float softcap = 0;                                  // 0: none
  Mat<const float> up = {};                           // [n, d] or empty
  ActivationKind activation = ActivationKind::kNone;  // with up as of GatedMatMulOp
  float swiglu_alpha = 1.702f, swiglu_limit = 7.0f;
  WeightView factor = {};  // [1] or empty
  // kXielu's numbers. The alphas may be weights [1], both or none; the stored alpha_n excludes beta.
  Xielu xielu = {};
  WeightView alpha_n = {}, alpha_p = {};
  Xielu Numbers() const;
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(x.rows); }
  // Class activation, per element: 1 multiply by a scale other than 1, and by the factor; for the limit a min and a max; for the soft cap 2
  // multiplies, special: tanh; with up, ActivateGatedCost, or else ActivateCost (math_scalar.h).
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches& touches) const;
  Mat<const float> Output() const { return x; }
  void Describe(OpDescription& d) const;
};

// A task is a piece of a row: columns [begin, begin + cols) of row `row`.
inline constexpr int64_t kElementwisePiece = 4096;
struct ElementwiseTask {
  int64_t row, begin, cols;
  ElementwiseTask(const ElementwiseOp& op, int64_t task)
      : row(task / Pieces(op)), begin(task % Pieces(op) * kElementwisePiece), cols(0) {
    cols = begin + kElementwisePiece < op.x.cols ? kElementwisePiece : op.x.cols - begin;
  }
  static int64_t Pieces(const ElementwiseOp& op) { return (op.x.cols + kElementwisePiece - 1) / kElementwisePiece; }
};

template <>
std::span<const Kernel<ElementwiseOp>> Kernels<ElementwiseOp>();

void RunElementwiseHwy(const ElementwiseOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
