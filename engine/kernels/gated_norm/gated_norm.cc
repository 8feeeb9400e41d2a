// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/gated_norm/gated_norm.h"

#include <cmath>

#include "engine/kernels/describe.h"
#include "engine/kernels/gated_norm/gated_norm_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `k`: elements of a vector that the kernel processes, padding included.
Cost GatedNormCost(const GatedNormOp& op, const CostAmounts& n, uint64_t k) {
  Cost cost;
  const uint64_t vectors = n[Amount::kRows] * static_cast<uint64_t>(op.groups);
  const uint64_t bytes = n[Amount::kRows] * static_cast<uint64_t>(op.x.cols) * 4;
  const ElementCost activation = ActivateGatedCost(op.activation);
  cost.AddFlops(WorkClass::kNorm, vectors * (4 * k + 1));  // sum of squares 2, scaling 2; eps
  cost.AddSpecial(WorkClass::kNorm, vectors * 2);          // divide, rsqrt
  cost.AddFlops(WorkClass::kActivation, vectors * k * activation.flops);
  cost.AddSpecial(WorkClass::kActivation, vectors * k * activation.special);
  cost.AddBytes(ByteKind::kActivationsRead, 2 * bytes);
  cost.AddBytes(ByteKind::kActivationsWritten, bytes);
  cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * op.weight.stored_row_bytes);
  cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * static_cast<uint64_t>(op.weight.cols) * 4);
  return cost;
}

const char* Always(const GatedNormOp&) { return nullptr; }
TaskPlan Plan(const GatedNormOp& op, int) { return {op.x.rows * op.groups, 0, 0}; }

}  // namespace

Status GatedNormOp::Validate() const {
  if (groups <= 0 || x.cols <= 0 || x.cols % groups != 0) return InternalError("gated norm needs vectors");
  if (weight.layout != WeightLayout::kVector || weight.dtype != DType::kF32 || weight.slices != 1 ||
      (weight.cols != x.cols && weight.cols != vector_size())) {
    return InternalError("the weight of a gated norm is not a vector of " + std::to_string(vector_size()) + " or " +
                         std::to_string(x.cols) + " F32");
  }
  if (activation != ActivationKind::kSilu && activation != ActivationKind::kSigmoid) {
    return InternalError("the gate of a norm is a SiLU or a sigmoid");
  }
  if (!std::isfinite(eps) || eps < 0) return InternalError("norm eps is not a number >= 0");
  TALLY_RETURN_IF_ERROR(CheckShape("gated norm's input", x, x.rows, x.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("gated norm's gate", gate, x.rows, x.cols));
  return CheckShape("gated norm's output", out, x.rows, x.cols);
}

Cost GatedNormOp::Useful(const CostAmounts& n) const { return GatedNormCost(*this, n, static_cast<uint64_t>(vector_size())); }

void GatedNormOp::Touches(WeightTouches& touches) const {
  if (x.rows > 0) touches.push_back({weight.id, 0, 0, 1});
}

void GatedNormOp::Describe(OpDescription& d) const {
  d.Add("x", kIn, "f32", Shape(x));
  d.Add("gate", kIn, "f32", Shape(gate));
  DescribeWeight("weight", weight, d);
  d.Add("out", kOut, "f32", Shape(out));
  d.Set("groups", groups);
  d.Set("gate_first", gate_first ? "yes" : "no");
  d.Set("activation", NameOf(kActivationKindNames, activation));
  d.Set("eps", static_cast<double>(eps));
}

template <>
std::span<const Kernel<GatedNormOp>> Kernels<GatedNormOp>() {
  static constexpr Kernel<GatedNormOp> kKernels[] = {
      {"hwy", Always, Plan, RunGatedNormHwy,
       [](const GatedNormOp& op, const CostAmounts& n) { return GatedNormCost(op, n, HwyPadded(op.vector_size())); }},
      {"ref", Always, Plan,
       [](const GatedNormOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { GatedNormRef<float, float>(op, begin, end); },
       [](const GatedNormOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
