// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/router/router.h"

#include <cmath>

#include "engine/kernels/describe.h"
#include "engine/kernels/router/router_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `choosing`: compares per row. `x`, `k`: experts and chosen experts, with the kernel's padding. `softmax_flops`: per value.
Cost RouteCost(const RouteOp& op, const CostAmounts& amounts, uint64_t choosing, uint64_t x, uint64_t k, uint64_t softmax_flops) {
  Cost cost;
  const uint64_t n = amounts[Amount::kRows], top_k = static_cast<uint64_t>(op.top_k),
                 experts = static_cast<uint64_t>(op.logits.cols);
  const bool sigmoid = SigmoidOfAll(op.rule) || op.rule == RoutingRule::kTopKThenSigmoid;
  const uint64_t values = ScoresAll(op.rule) ? x : k;
  cost.AddFlops(WorkClass::kRouter, n * (choosing + (sigmoid ? 1 : softmax_flops) * values));
  cost.AddSpecial(WorkClass::kRouter, n * 2 * values);  // exps, divides
  if (op.groups > 1) {
    const uint64_t groups = static_cast<uint64_t>(op.groups), best = static_cast<uint64_t>(op.group_best);
    cost.AddFlops(WorkClass::kRouter,
                  n * (best * experts + static_cast<uint64_t>(op.kept_groups) * groups + (best - 1) * groups));
  }
  if (!op.bias.empty()) {
    cost.AddFlops(WorkClass::kRouter, n * x);
    cost.AddBytes(ByteKind::kWeightsStored, amounts[Amount::kCalls] * op.bias.stored_row_bytes);
    cost.AddBytes(ByteKind::kWeightsPacked, amounts[Amount::kCalls] * experts * 4);
  }
  if (Renormed(op.rule)) {
    cost.AddFlops(WorkClass::kRouter, n * (k - (op.sum_eps != 0 ? 0 : 1)));
    cost.AddSpecial(WorkClass::kRouter, n * k);
  }
  if (op.scale != 1) cost.AddFlops(WorkClass::kRouter, n * k);
  if (!op.expert_scale.empty()) {
    cost.AddFlops(WorkClass::kRouter, n * top_k);
    cost.AddBytes(ByteKind::kWeightsStored, amounts[Amount::kCalls] * op.expert_scale.stored_row_bytes);
    cost.AddBytes(ByteKind::kWeightsPacked, amounts[Amount::kCalls] * experts * 4);
  }
  cost.AddBytes(ByteKind::kActivationsRead, n * experts * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, n * top_k * 8);  // indices and weights
  return cost;
}

// One compare per key to build it. Per slot, one compare per key after the first vector to search, and 3 per lane to reduce the
// lanes (maximum, equality, lowest index). The softmax maximum is slot 0, hence 2 FLOPs per value; a biased choice is
// made after it.
Cost RouteExecutedHwy(const RouteOp& op, const CostAmounts& n) {
  const uint64_t x = HwyPadded(op.logits.cols), lanes = static_cast<uint64_t>(HwyF32Lanes());
  const uint64_t passes = static_cast<uint64_t>(op.top_k);
  return RouteCost(op, n, x + passes * (x - lanes + 3 * lanes), x, HwyPadded(op.top_k),
                   SoftmaxOfAll(op.rule) && !op.bias.empty() ? 3 : 2);
}

// `d`: columns the kernel processes, padding included.
Cost CombineCost(const MoeCombineOp& op, uint64_t n, uint64_t d) {
  Cost cost;
  const uint64_t cols = static_cast<uint64_t>(op.out.cols);
  const uint64_t k = static_cast<uint64_t>(op.weights.cols);
  cost.AddFlops(WorkClass::kResidualBias, n * d * ((op.weighted ? 2 : 1) * k + (op.add_to_out ? 1 : 0)));
  cost.AddBytes(ByteKind::kActivationsRead, n * (k * cols + (op.weighted ? k : 0) + (op.add_to_out ? cols : 0)) * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, n * cols * 4);
  return cost;
}

const char* RouteAlways(const RouteOp&) { return nullptr; }
const char* CombineAlways(const MoeCombineOp&) { return nullptr; }
TaskPlan PlanRouteRef(const RouteOp& op, int) { return {op.logits.rows, 0, RouteScratchBytes(op)}; }
TaskPlan PlanRouteHwy(const RouteOp& op, int) {
  return {op.logits.rows, 0, 4 * HwyPadded(op.logits.cols) * 4};  // keys, values, scores, keys of groups
}
TaskPlan PlanCombine(const MoeCombineOp& op, int) { return {op.out.rows, 0, 0}; }

}  // namespace

Status RouteOp::Validate() const {
  if (logits.cols <= 0 || logits.cols > INT32_MAX) return InternalError("routing needs experts");
  if (top_k <= 0 || top_k > logits.cols) {
    return InternalError("routing to " + std::to_string(top_k) + " of " + std::to_string(logits.cols) + " experts");
  }
  const int64_t size = groups > 0 ? logits.cols / groups : 0;
  if (groups < 1 || size * groups != logits.cols || kept_groups < 1 || kept_groups > groups || group_best < 1 ||
      group_best > size || top_k > kept_groups * size) {
    return InternalError("routing to " + std::to_string(top_k) + " experts of " + std::to_string(kept_groups) + " of " +
                         std::to_string(groups) + " groups");
  }
  if (SoftmaxOfAll(rule) && group_best > 1) return InternalError("groups are chosen by one probability each");
  if (!std::isfinite(scale) || !(sum_eps >= 0)) return InternalError("routing with a scale that is not a number");
  if (!bias.empty() && (!ScoresAll(rule) || bias.layout != WeightLayout::kVector || bias.cols != logits.cols)) {
    return InternalError("the choice of experts has no bias, or not one for each");
  }
  if (!expert_scale.empty() && (expert_scale.layout != WeightLayout::kVector || expert_scale.cols != logits.cols)) {
    return InternalError("the scales of experts are not one for each");
  }
  TALLY_RETURN_IF_ERROR(CheckShape("router logits", logits, logits.rows, logits.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("chosen experts", experts, logits.rows, top_k));
  return CheckShape("expert weights", weights, logits.rows, top_k);
}

Cost RouteOp::Useful(const CostAmounts& n) const {
  const uint64_t x = static_cast<uint64_t>(logits.cols), k = static_cast<uint64_t>(top_k);
  return RouteCost(*this, n, k * x, x, k, 3);
}

void RouteOp::Touches(WeightTouches& touches) const {
  if (!bias.empty() && logits.rows > 0) touches.push_back({bias.id, 0, 0, 1});
  if (!expert_scale.empty() && logits.rows > 0) touches.push_back({expert_scale.id, 0, 0, 1});
}

Status MoeCombineOp::Validate() const {
  if (weights.cols <= 0) return InternalError("combining needs at least one expert a row");
  TALLY_RETURN_IF_ERROR(CheckShape("combined output", out, out.rows, out.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("expert weights", weights, out.rows, weights.cols));
  return CheckShape("expert outputs", y, out.rows * weights.cols, out.cols);
}

Cost MoeCombineOp::Useful(const CostAmounts& n) const {
  return CombineCost(*this, n[Amount::kRows], static_cast<uint64_t>(out.cols));
}

void RouteOp::Describe(OpDescription& d) const {
  d.Add("logits", kIn, "f32", Shape(logits));
  DescribeWeight("bias", bias, d);
  DescribeWeight("expert_scale", expert_scale, d);
  d.Add("experts", kOut, "i32", Shape(experts));
  d.Add("weights", kOut, "f32", Shape(weights));
  d.Set("rule", NameOf(kRoutingRuleNames, rule));
  if (groups > 1) {
    d.Set("groups", groups);
    d.Set("kept_groups", kept_groups);
    d.Set("group_best", group_best);
  }
  d.Set("scale", static_cast<double>(scale));
}

void MoeCombineOp::Describe(OpDescription& d) const {
  d.Add("y", kIn, "f32", Shape(y));
  if (weighted) d.Add("weights", kIn, "f32", Shape(weights));
  d.Add("out", add_to_out ? kInOut : kOut, "f32", Shape(out));
}

template <>
std::span<const Kernel<RouteOp>> Kernels<RouteOp>() {
  static constexpr Kernel<RouteOp> kKernels[] = {
      {"hwy", RouteAlways, PlanRouteHwy, RunRouteHwy, RouteExecutedHwy},
      {"ref", RouteAlways, PlanRouteRef, RouteRef<float>, [](const RouteOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

template <>
std::span<const Kernel<MoeCombineOp>> Kernels<MoeCombineOp>() {
  static constexpr Kernel<MoeCombineOp> kKernels[] = {
      {"hwy", CombineAlways, PlanCombine, RunMoeCombineHwy,
       [](const MoeCombineOp& op, const CostAmounts& n) { return CombineCost(op, n[Amount::kRows], HwyPadded(op.out.cols)); }},
      {"ref", CombineAlways, PlanCombine,
       [](const MoeCombineOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { MoeCombineRef<float>(op, begin, end); },
       [](const MoeCombineOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
