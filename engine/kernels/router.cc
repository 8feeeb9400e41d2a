#include "engine/kernels/router.h"

#include "engine/kernels/router_ref.h"
#include "engine/kernels/small_hwy.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `d` columns of each row, as the kernel at hand counts them.
Cost CombineCost(const MoeCombineOp& op, uint64_t d) {
  Cost cost;
  const uint64_t n = static_cast<uint64_t>(op.out.rows), cols = static_cast<uint64_t>(op.out.cols);
  const uint64_t k = static_cast<uint64_t>(op.weights.cols);
  cost.AddFlops(WorkClass::kResidualBias, n * d * (2 * k + 1));
  cost.AddBytes(ByteKind::kActivationsRead, n * (k * cols + k + cols) * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, n * cols * 4);
  return cost;
}

const char* RouteAlways(const RouteOp&) { return nullptr; }
const char* CombineAlways(const MoeCombineOp&) { return nullptr; }
TaskPlan PlanRoute(const RouteOp& op, int) { return {op.logits.rows, 0, RouteScratchBytes(op)}; }
TaskPlan PlanCombine(const MoeCombineOp& op, int) { return {op.out.rows, 0, 0}; }

}  // namespace

Status RouteOp::Validate() const {
  if (logits.cols <= 0 || logits.cols > INT32_MAX) return InternalError("routing needs experts");
  if (top_k <= 0 || top_k > logits.cols) {
    return InternalError("routing to " + std::to_string(top_k) + " of " + std::to_string(logits.cols) + " experts");
  }
  TALLY_RETURN_IF_ERROR(CheckShape("router logits", logits, logits.rows, logits.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("chosen experts", experts, logits.rows, top_k));
  return CheckShape("expert weights", weights, logits.rows, top_k);
}

Cost RouteOp::Useful() const {
  Cost cost;
  const uint64_t n = static_cast<uint64_t>(logits.rows), x = static_cast<uint64_t>(logits.cols);
  const uint64_t k = static_cast<uint64_t>(top_k);
  const uint64_t softmax = rule == RoutingRule::kTopKThenSoftmax ? k : x;
  cost.AddFlops(WorkClass::kRouter, n * (k * x + 3 * softmax));
  cost.AddSpecial(WorkClass::kRouter, n * 2 * softmax);
  if (rule == RoutingRule::kSoftmaxThenTopKRenormed) {
    cost.AddFlops(WorkClass::kRouter, n * (k - 1));
    cost.AddSpecial(WorkClass::kRouter, n * k);
  }
  cost.AddBytes(ByteKind::kActivationsRead, n * x * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, n * k * 8);  // indices and weights
  return cost;
}

Status MoeCombineOp::Validate() const {
  if (weights.cols <= 0) return InternalError("combining needs at least one expert a row");
  TALLY_RETURN_IF_ERROR(CheckShape("combined output", out, out.rows, out.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("expert weights", weights, out.rows, weights.cols));
  return CheckShape("expert outputs", y, out.rows * weights.cols, out.cols);
}

Cost MoeCombineOp::Useful() const { return CombineCost(*this, static_cast<uint64_t>(out.cols)); }

template <>
std::span<const Kernel<RouteOp>> Kernels<RouteOp>() {
  static constexpr Kernel<RouteOp> kKernels[] = {
      {"ref", RouteAlways, PlanRoute, RouteRef<float>, [](const RouteOp& op) { return op.Useful(); }}};
  return kKernels;
}

template <>
std::span<const Kernel<MoeCombineOp>> Kernels<MoeCombineOp>() {
  static constexpr Kernel<MoeCombineOp> kKernels[] = {
      {"hwy", CombineAlways, PlanCombine, RunMoeCombineHwy,
       [](const MoeCombineOp& op) { return CombineCost(op, HwyPadded(op.out.cols)); }},
      {"ref", CombineAlways, PlanCombine,
       [](const MoeCombineOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { MoeCombineRef<float>(op, begin, end); },
       [](const MoeCombineOp& op) { return op.Useful(); }}};
  return kKernels;
}

}  // namespace tally
