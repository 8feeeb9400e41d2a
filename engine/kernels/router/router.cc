#include "engine/kernels/router/router.h"

#include "engine/kernels/describe.h"
#include "engine/kernels/router/router_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `choosing`: compares per row. `x`, `k`: experts and chosen experts, with the kernel's padding. `softmax_flops`: per value.
Cost RouteCost(const RouteOp& op, uint64_t n, uint64_t choosing, uint64_t x, uint64_t k, uint64_t softmax_flops) {
  Cost cost;
  const uint64_t top_k = static_cast<uint64_t>(op.top_k);
  const uint64_t softmax = op.rule == RoutingRule::kTopKThenSoftmax ? k : x;
  cost.AddFlops(WorkClass::kRouter, n * (choosing + softmax_flops * softmax));
  cost.AddSpecial(WorkClass::kRouter, n * 2 * softmax);  // exps, divides
  if (op.rule == RoutingRule::kSoftmaxThenTopKRenormed) {
    cost.AddFlops(WorkClass::kRouter, n * (k - 1));
    cost.AddSpecial(WorkClass::kRouter, n * k);
  }
  cost.AddBytes(ByteKind::kActivationsRead, n * static_cast<uint64_t>(op.logits.cols) * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, n * top_k * 8);  // indices and weights
  return cost;
}

// One compare per key to build it. Per slot, one compare per key after the first vector to search, and 3 per lane to reduce the
// lanes (maximum, equality, lowest index). The softmax maximum is slot 0, hence 2 FLOPs per value.
Cost RouteExecutedHwy(const RouteOp& op, const CostAmounts& n) {
  const uint64_t x = HwyPadded(op.logits.cols), lanes = static_cast<uint64_t>(HwyF32Lanes());
  const uint64_t passes = static_cast<uint64_t>(op.top_k);
  return RouteCost(op, n[Amount::kRows], x + passes * (x - lanes + 3 * lanes), x, HwyPadded(op.top_k), 2);
}

// `d`: columns the kernel processes, padding included.
Cost CombineCost(const MoeCombineOp& op, uint64_t n, uint64_t d) {
  Cost cost;
  const uint64_t cols = static_cast<uint64_t>(op.out.cols);
  const uint64_t k = static_cast<uint64_t>(op.weights.cols);
  cost.AddFlops(WorkClass::kResidualBias, n * d * (2 * k + 1));
  cost.AddBytes(ByteKind::kActivationsRead, n * (k * cols + k + cols) * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, n * cols * 4);
  return cost;
}

const char* RouteAlways(const RouteOp&) { return nullptr; }
const char* CombineAlways(const MoeCombineOp&) { return nullptr; }
TaskPlan PlanRouteRef(const RouteOp& op, int) { return {op.logits.rows, 0, RouteScratchBytes(op)}; }
TaskPlan PlanRouteHwy(const RouteOp& op, int) {
  const size_t arrays = op.rule == RoutingRule::kTopKThenSoftmax ? 1 : 2;  // keys, probabilities
  return {op.logits.rows, 0, arrays * HwyPadded(op.logits.cols) * 4};
}
TaskPlan PlanCombine(const MoeCombineOp& op, int) { return {op.out.rows, 0, 0}; }

}  // namespace

Status RouteOp::Validate() const {
  if (logits.cols <= 0 || logits.cols > INT32_MAX) return InternalError("routing needs experts");
  if (rule == RoutingRule::kSigmoidThenTopKRenormed) return InternalError("routing by sigmoids is not run yet");
  if (top_k <= 0 || top_k > logits.cols) {
    return InternalError("routing to " + std::to_string(top_k) + " of " + std::to_string(logits.cols) + " experts");
  }
  TALLY_RETURN_IF_ERROR(CheckShape("router logits", logits, logits.rows, logits.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("chosen experts", experts, logits.rows, top_k));
  return CheckShape("expert weights", weights, logits.rows, top_k);
}

Cost RouteOp::Useful(const CostAmounts& n) const {
  const uint64_t x = static_cast<uint64_t>(logits.cols), k = static_cast<uint64_t>(top_k);
  return RouteCost(*this, n[Amount::kRows], k * x, x, k, 3);
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
  d.Add("experts", kOut, "i32", Shape(experts));
  d.Add("weights", kOut, "f32", Shape(weights));
  d.Set("rule", NameOf(kRoutingRuleNames, rule));
}

void MoeCombineOp::Describe(OpDescription& d) const {
  d.Add("y", kIn, "f32", Shape(y));
  d.Add("weights", kIn, "f32", Shape(weights));
  d.Add("out", kInOut, "f32", Shape(out));
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
