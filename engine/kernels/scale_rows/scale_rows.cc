// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/scale_rows/scale_rows.h"

#include <cmath>

#include "engine/kernels/describe.h"
#include "engine/kernels/scale_rows/scale_rows_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `d`: columns the kernel processes, padding included.
Cost ScaleRowsCost(const ScaleRowsOp& op, uint64_t n, uint64_t d) {
  Cost cost;
  const uint64_t k = static_cast<uint64_t>(op.factors()), cols = static_cast<uint64_t>(op.x.cols);
  cost.AddFlops(WorkClass::kResidualBias, n * k * d);
  if (op.softplus) {
    cost.AddFlops(WorkClass::kActivation, n * static_cast<uint64_t>(op.weights.cols));
    cost.AddSpecial(WorkClass::kActivation, 2 * n * static_cast<uint64_t>(op.weights.cols));
  }
  cost.AddBytes(ByteKind::kActivationsRead, n * (cols + static_cast<uint64_t>(op.weights.cols)) * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, n * k * cols * 4);
  return cost;
}

const char* Always(const ScaleRowsOp&) { return nullptr; }
const char* TemperatureAlways(const TemperatureOp&) { return nullptr; }
TaskPlan Plan(const ScaleRowsOp& op, int) { return {op.out.rows, 0, 0}; }
TaskPlan PlanTemperature(const TemperatureOp& op, int) { return {op.out.rows, 0, 0}; }

}  // namespace

Status ScaleRowsOp::Validate() const {
  if (weights.cols < 1) return InternalError("rows need a factor");
  if (groups < 1 || weights.cols % groups != 0 || x.cols % groups != 0 || (groups > 1 && factors() != 1)) {
    return InternalError("the groups of a row have no factor each");
  }
  if (out.data == x.data && factors() != 1) return InternalError("rows with several factors are not scaled in place");
  TALLY_RETURN_IF_ERROR(CheckShape("factors", weights, x.rows, weights.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("scaled input", x, x.rows, x.cols));
  return CheckShape("scaled output", out, x.rows * factors(), x.cols);
}

Cost ScaleRowsOp::Useful(const CostAmounts& n) const {
  return ScaleRowsCost(*this, n[Amount::kRows], static_cast<uint64_t>(x.cols));
}

void ScaleRowsOp::Describe(OpDescription& d) const {
  d.Add("x", out.data == x.data ? kInOut : kIn, "f32", Shape(x));
  d.Add("weights", kIn, "f32", Shape(weights));
  if (softplus) d.Set("softplus", int64_t{1});
  if (out.data != x.data) d.Add("out", kOut, "f32", Shape(out));
}

Status TemperatureOp::Validate() const {
  if (!std::isfinite(scale) || !std::isfinite(offset) || !(floor > 0))
    return InternalError("attention temperature with a bad scale or floor");
  return CheckShape("temperatures", out, static_cast<int64_t>(positions.size()), 1);
}

Cost TemperatureOp::Useful(const CostAmounts& n) const {
  Cost cost;
  const uint64_t rows = n[Amount::kRows];
  cost.AddFlops(WorkClass::kSoftmax, 4 * rows);
  cost.AddSpecial(WorkClass::kSoftmax, 2 * rows);
  cost.AddBytes(ByteKind::kActivationsRead, 4 * rows);
  cost.AddBytes(ByteKind::kActivationsWritten, 4 * rows);
  return cost;
}

void TemperatureOp::Describe(OpDescription& d) const {
  d.Add("positions", kIn, "i32", {Size(positions)});
  d.Add("out", kOut, "f32", Shape(out));
  d.Set("scale", static_cast<double>(scale));
  d.Set("offset", static_cast<double>(offset));
  d.Set("floor", static_cast<double>(floor));
}

template <>
std::span<const Kernel<ScaleRowsOp>> Kernels<ScaleRowsOp>() {
  static constexpr Kernel<ScaleRowsOp> kKernels[] = {
      {"hwy", Always, Plan, RunScaleRowsHwy,
       [](const ScaleRowsOp& op, const CostAmounts& n) {
         const uint64_t groups = static_cast<uint64_t>(op.groups);
         return ScaleRowsCost(op, n[Amount::kRows], groups * HwyPadded(op.x.cols / op.groups));
       }},
      {"ref", Always, Plan,
       [](const ScaleRowsOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { ScaleRowsRef<float>(op, begin, end); },
       [](const ScaleRowsOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

template <>
std::span<const Kernel<TemperatureOp>> Kernels<TemperatureOp>() {
  static constexpr Kernel<TemperatureOp> kKernels[] = {
      {"ref", TemperatureAlways, PlanTemperature,
       [](const TemperatureOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { TemperatureRef<float>(op, begin, end); },
       [](const TemperatureOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
