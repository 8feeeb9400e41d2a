// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/gated_add/gated_add.h"

#include <cmath>

#include "engine/kernels/describe.h"
#include "engine/kernels/gated_add/gated_add_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `d`: columns the kernel processes, padding included.
Cost GatedAddCost(const GatedAddOp& op, uint64_t n, uint64_t d, size_t part) {
  Cost cost;
  const uint64_t cols = static_cast<uint64_t>(op.out.cols);
  if (part == 0 && op.gate.empty()) {
    cost.AddFlops(WorkClass::kResidualBias, n * d);
    cost.AddBytes(ByteKind::kActivationsRead, n * cols * 4);
  } else if (part == 0) {
    cost.AddFlops(WorkClass::kActivation, n * (1 + d));
    cost.AddSpecial(WorkClass::kActivation, n * 2);
    cost.AddBytes(ByteKind::kActivationsRead, n * (1 + cols) * 4);
  } else {
    cost.AddFlops(WorkClass::kResidualBias, n * d);
    cost.AddBytes(ByteKind::kActivationsRead, n * cols * 4);
    cost.AddBytes(ByteKind::kActivationsWritten, n * cols * 4);
  }
  return cost;
}

const char* Always(const GatedAddOp&) { return nullptr; }
TaskPlan Plan(const GatedAddOp& op, int) { return {op.out.rows, 0, 0}; }

}  // namespace

Status GatedAddOp::Validate() const {
  TALLY_RETURN_IF_ERROR(CheckShape("gated output", out, out.rows, out.cols));
  if (!gate.empty()) TALLY_RETURN_IF_ERROR(CheckShape("gates", gate, out.rows, 1));
  if (!std::isfinite(scale)) return InternalError("rows are weighted by a finite number");
  return CheckShape("gated input", y, out.rows, out.cols);
}

Cost GatedAddOp::Useful(const CostAmounts& n, size_t part) const {
  return GatedAddCost(*this, n[Amount::kRows], static_cast<uint64_t>(out.cols), part);
}

void GatedAddOp::Describe(OpDescription& d) const {
  d.Add("y", kIn, "f32", Shape(y));
  if (!gate.empty()) d.Add("gate", kIn, "f32", Shape(gate));
  d.Add("out", kInOut, "f32", Shape(out));
  d.Set("scale", static_cast<double>(scale));
}

template <>
std::span<const Kernel<GatedAddOp>> Kernels<GatedAddOp>() {
  static constexpr Kernel<GatedAddOp> kKernels[] = {
      {"hwy", Always, Plan, RunGatedAddHwy,
       [](const GatedAddOp& op, const CostAmounts& n, size_t part) {
         return GatedAddCost(op, n[Amount::kRows], HwyPadded(op.out.cols), part);
       }},
      {"ref", Always, Plan,
       [](const GatedAddOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { GatedAddRef<float, float>(op, begin, end); },
       [](const GatedAddOp& op, const CostAmounts& n, size_t part) { return op.Useful(n, part); }}};
  return kKernels;
}

}  // namespace tally
