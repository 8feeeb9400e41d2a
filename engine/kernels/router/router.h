// SPDX-License-Identifier: Apache-2.0
// Chooses experts from router logits, and combines their outputs.
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"

namespace tally {

// Rules by which every expert has a probability or a sigmoid.
constexpr bool ScoresAll(RoutingRule r) { return SoftmaxOfAll(r) || SigmoidOfAll(r); }

// The experts with the k largest scores, ties to the lower index, in descending order. The score is the logit, or, for rules with a sigmoid
// of all, sigmoid(logit) + bias; with a softmax of all and a bias, the probability + bias. A NaN ranks above all numbers, so that it
// reaches the weights.
// With groups (DeepSeek-V2 and V3) only experts of the `kept_groups` groups with the largest sums of their `group_best` best scores are
// chosen.
// Useful, class router, per row. Choosing: k X compares; with groups also group_best X and kept_groups * groups compares, and (group_best -
// 1) groups adds.
// Softmax over m = k or X values: m max, m subtracts, m adds; special: m exps, m divides. Sigmoid of m values: m adds; special: m exps, m
// divides; X adds of the bias.
// Dividing by the sum: k - 1 adds (k with sum_eps) and k divides. Scale: k multiplies; scales of the experts: k more.
struct RouteOp {
  static constexpr std::string_view kName = "route";
  Mat<const float> logits;  // [n, X]
  int64_t top_k = 0;
  RoutingRule rule = RoutingRule::kTopKThenSoftmax;
  WeightView bias;                      // [X] or empty; only for rules with a softmax or sigmoid of all; not in the weights
  int64_t groups = 1, kept_groups = 1;  // experts in equal groups, one after another
  int64_t group_best = 1;               // at most X / groups
  float scale = 1;                      // multiplies the weights
  WeightView expert_scale = {};         // [X] or empty: multiplies the weight of each chosen expert, last
  float sum_eps = 0;                    // joins the sum that weights are divided by
  Mat<int32_t> experts;                 // [n, k]
  Mat<float> weights;                   // [n, k]
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(logits.rows); }
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return weights; }
  void Describe(OpDescription& d) const;
};

// out[t] (+)= sum over slots s in order of weights[t][s] * y[t*k + s]. The sum starts at 0; each term is one fused multiply-add,
// without weights an add.
struct MoeCombineOp {
  static constexpr std::string_view kName = "moe_combine";
  Mat<const float> y;        // [n*k, d]
  Mat<const float> weights;  // [n, k]
  bool weighted = true;      // false: the weights' values are not used, only their shape
  bool add_to_out = true;    // out += (the residual stream) instead of out =
  Mat<float> out;            // [n, d]
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(out.rows); }
  Cost Useful(const CostAmounts& n) const;  // class residual/bias: n*k*d fma or adds; with add_to_out n*d adds
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<RouteOp>> Kernels<RouteOp>();
template <>
std::span<const Kernel<MoeCombineOp>> Kernels<MoeCombineOp>();

void RunRouteHwy(const RouteOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);
void RunMoeCombineHwy(const MoeCombineOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
