// Chooses experts from router logits, and combines their outputs.
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"

namespace tally {

// Top-k by value, ties to the lower index; experts in descending order of value. A NaN ranks above all numbers, so that it reaches
// the weights. Useful, class router: k*X compares; softmax over m = k or X values (m max, m subtracts, m adds; special: m exps, m
// divides); kSoftmaxThenTopKRenormed also k - 1 adds and k divides.
struct RouteOp {
  static constexpr std::string_view kName = "route";
  Mat<const float> logits;  // [n, X]
  int64_t top_k = 0;
  RoutingRule rule = RoutingRule::kTopKThenSoftmax;
  Mat<int32_t> experts;  // [n, k]
  Mat<float> weights;    // [n, k]
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(logits.rows); }
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return weights; }
  void Describe(OpDescription& d) const;
};

// out[t] += sum over slots s in order of weights[t][s] * y[t*k + s]. The sum starts at 0; each term is one fused multiply-add.
struct MoeCombineOp {
  static constexpr std::string_view kName = "moe_combine";
  Mat<const float> y;        // [n*k, d]
  Mat<const float> weights;  // [n, k]
  Mat<float> out;            // [n, d], added to (the residual stream)
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(out.rows); }
  Cost Useful(const CostAmounts& n) const;  // class residual/bias: n*k*d fma + n*d adds
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<RouteOp>> Kernels<RouteOp>();
template <>
std::span<const Kernel<MoeCombineOp>> Kernels<MoeCombineOp>();

// router_hwy.cc
void RunRouteHwy(const RouteOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);
void RunMoeCombineHwy(const MoeCombineOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
