// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/elementwise/elementwise.h"

#include <cmath>

#include "engine/kernels/describe.h"
#include "engine/kernels/elementwise/elementwise_ref.h"
#include "engine/kernels/math_scalar.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `d`: columns the kernel processes, padding included.
Cost ElementwiseCost(const ElementwiseOp& op, const CostAmounts& amounts, uint64_t d) {
  Cost cost;
  const uint64_t n = amounts[Amount::kRows];
  const uint64_t bytes = n * static_cast<uint64_t>(op.x.cols) * 4;
  const ElementCost gated = op.up.empty() ? ActivateCost(op.activation) : ActivateGatedCost(op.activation);
  cost.AddFlops(WorkClass::kActivation, n * d *
                                            ((op.scale != 1 ? 1 : 0) + (op.factor.empty() ? 0 : 1) + (op.limit != 0 ? 2 : 0) +
                                             (op.softcap != 0 ? 2 : 0) + gated.flops));
  cost.AddSpecial(WorkClass::kActivation, n * d * ((op.softcap != 0 ? 1 : 0) + gated.special));
  cost.AddBytes(ByteKind::kActivationsRead, bytes * (op.up.empty() ? 1 : 2));
  cost.AddBytes(ByteKind::kActivationsWritten, bytes);
  for (const WeightView* w : {&op.factor, &op.alpha_n, &op.alpha_p}) {
    if (w->empty()) continue;
    cost.AddBytes(ByteKind::kWeightsStored, amounts[Amount::kCalls] * w->stored_row_bytes);
    cost.AddBytes(ByteKind::kWeightsPacked, amounts[Amount::kCalls] * sizeof(float));
  }
  return cost;
}

const char* Always(const ElementwiseOp&) { return nullptr; }
TaskPlan Plan(const ElementwiseOp& op, int) { return {op.x.rows * ElementwiseTask::Pieces(op), 0, 0}; }

}  // namespace

Status ElementwiseOp::Validate() const {
  if (!std::isfinite(scale) || !(limit >= 0) || !std::isfinite(softcap) || softcap < 0) {
    return InternalError("elements with a bad scale, limit or soft cap");
  }
  for (const WeightView* w : {&factor, &alpha_n, &alpha_p}) {
    if (!w->empty() && (w->layout != WeightLayout::kVector || w->cols != 1)) {
      return InternalError("a factor of elements is not one number");
    }
  }
  const bool xielu_kind = activation == ActivationKind::kXielu;
  if (up.empty() ? TakesTwo(activation) : xielu_kind) return InternalError("an activation of elements takes other values");
  if (alpha_n.empty() != alpha_p.empty() || (!alpha_n.empty() && !xielu_kind)) return InternalError("xIELU has two alphas");
  if (!up.empty()) TALLY_RETURN_IF_ERROR(CheckShape("up", up, x.rows, x.cols));
  return CheckShape("elements", x, x.rows, x.cols);
}

Cost ElementwiseOp::Useful(const CostAmounts& n) const { return ElementwiseCost(*this, n, static_cast<uint64_t>(x.cols)); }

void ElementwiseOp::Touches(WeightTouches& touches) const {
  for (const WeightView* w : {&factor, &alpha_n, &alpha_p}) {
    if (!w->empty() && x.rows > 0) touches.push_back({w->id, 0, 0, 1});
  }
}

Xielu ElementwiseOp::Numbers() const {
  if (alpha_n.empty()) return xielu;
  return {xielu.beta + alpha_n.Vector()[0], alpha_p.Vector()[0], xielu.beta, xielu.eps};
}

void ElementwiseOp::Describe(OpDescription& d) const {
  d.Add("x", kInOut, "f32", Shape(x));
  DescribeWeight("factor", factor, d);
  d.Set("scale", static_cast<double>(scale));
  d.Set("limit", static_cast<double>(limit));
  d.Set("softcap", static_cast<double>(softcap));
  if (up.empty() && activation == ActivationKind::kNone) return;
  d.Set("activation", NameOf(kActivationKindNames, activation));
  if (activation == ActivationKind::kXielu) {
    DescribeWeight("alpha_n", alpha_n, d);
    DescribeWeight("alpha_p", alpha_p, d);
    d.Set("alpha_n", static_cast<double>(xielu.alpha_n));
    d.Set("alpha_p", static_cast<double>(xielu.alpha_p));
    d.Set("beta", static_cast<double>(xielu.beta));
    d.Set("eps", static_cast<double>(xielu.eps));
  }
  if (up.empty()) return;
  d.Add("up", kIn, "f32", Shape(up));
  d.Set("swiglu_alpha", static_cast<double>(swiglu_alpha));
  d.Set("swiglu_limit", static_cast<double>(swiglu_limit));
}

template <>
std::span<const Kernel<ElementwiseOp>> Kernels<ElementwiseOp>() {
  static constexpr Kernel<ElementwiseOp> kKernels[] = {
      {"hwy", Always, Plan, RunElementwiseHwy,
       [](const ElementwiseOp& op, const CostAmounts& n) { return ElementwiseCost(op, n, HwyPadded(op.x.cols)); }},
      {"ref", Always, Plan,
       [](const ElementwiseOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { ElementwiseRef<float>(op, begin, end); },
       [](const ElementwiseOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
