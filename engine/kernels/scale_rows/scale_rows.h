// SPDX-License-Identifier: Apache-2.0
// Rows times factors, and the factors of Llama 4's attention temperature.
#pragma once

#include "engine/kernels/op.h"

namespace tally {

// out[t * k + s] = weights[t][s] * x[t]; with groups, k is 1 and each of the row's vectors has a factor of its own.
struct ScaleRowsOp {
  static constexpr std::string_view kName = "scale_rows";
  Mat<const float> x;                                        // [n, d]
  Mat<const float> weights;                                  // [n, k], or [n, groups]
  Mat<float> out;                                            // [n * k, d]; may be x itself if k is 1
  int64_t groups = 1;                                        // vectors in a row of x
  bool softplus = false;                                     // the factors are softplus(weights)
  int64_t factors() const { return weights.cols / groups; }  // k
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(x.rows); }
  // Class residual/bias: k d multiplies a row. Softplus, class activation: an add, special: exp, log.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

// out[t] = 1 + scale * ln(1 + floor((position + offset) / floor)), a factor of queries.
struct TemperatureOp {
  static constexpr std::string_view kName = "temperature";
  std::span<const int32_t> positions;  // [n]
  float scale = 0, offset = 1, floor = 1;
  Mat<float> out;  // [n, 1]
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(static_cast<int64_t>(positions.size())); }
  // Class attention's softmax, per row: 4 FLOPs (two adds, a multiply, an add); special: divide, log. The floor is a conversion.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<ScaleRowsOp>> Kernels<ScaleRowsOp>();
template <>
std::span<const Kernel<TemperatureOp>> Kernels<TemperatureOp>();

void RunScaleRowsHwy(const ScaleRowsOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
