// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/rope/rope.h"

#include "engine/kernels/describe.h"
#include "engine/kernels/rope/rope_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `half`: angles of a row that the kernel processes, padding included.
Cost TableCost(const RopeTableOp& op, const CostAmounts& n, uint64_t half) {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], cols = op.inv_freq.size(), places = op.axes.empty() ? 1 : 3;
  cost.AddFlops(WorkClass::kRope, rows * half * 3);  // the angle, two multiplies by the magnitude
  cost.AddSpecial(WorkClass::kRope, rows * half * 2);
  cost.AddBytes(ByteKind::kActivationsRead, (rows * places + n[Amount::kCalls] * cols) * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, 2 * rows * cols * 4);
  return cost;
}

// `pairs`: pairs of a head that the kernel processes, padding included.
Cost RopeCost(const RopeOp& op, const CostAmounts& n, uint64_t pairs) {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], heads = static_cast<uint64_t>(op.heads);
  const uint64_t dim = static_cast<uint64_t>(op.dim), turns = static_cast<uint64_t>(op.cos.cols + op.sin.cols);
  if (op.style != RopeStyle::kNone)
    cost.AddFlops(WorkClass::kRope, rows * heads * pairs * 6);  // two multiplies and two multiply-adds
  cost.AddBytes(ByteKind::kActivationsRead, rows * (heads * dim + turns) * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, rows * heads * dim * 4);
  return cost;
}

const char* TableAlways(const RopeTableOp&) { return nullptr; }
const char* RopeAlways(const RopeOp&) { return nullptr; }
TaskPlan PlanTable(const RopeTableOp& op, int) { return {op.cos.rows, 0, 0}; }
TaskPlan PlanRope(const RopeOp& op, int) { return {op.x.rows * op.heads, 0, 0}; }

}  // namespace

Status RopeTableOp::Validate() const {
  const int64_t n = static_cast<int64_t>(positions.size()), half = static_cast<int64_t>(inv_freq.size());
  TALLY_RETURN_IF_ERROR(CheckShape("rope cosines", cos, n, half));
  TALLY_RETURN_IF_ERROR(CheckShape("rope sines", sin, n, half));
  if (!axes.empty() &&
      (axes.size() != inv_freq.size() || heights.size() != positions.size() || widths.size() != positions.size())) {
    return InternalError("rope needs a height and a width of each row, and an axis of each frequency");
  }
  for (const uint8_t axis : axes) {
    if (axis > 2) return InternalError("rope has three axes");
  }
  for (const std::span<const int32_t> all : {positions, heights, widths}) {
    for (const int32_t p : all) {
      if (p < 0) return InternalError("rope position " + std::to_string(p) + " is negative");
    }
  }
  return {};
}

Cost RopeTableOp::Useful(const CostAmounts& n) const { return TableCost(*this, n, inv_freq.size()); }

Status RopeOp::Validate() const {
  if (style != RopeStyle::kRotateHalf && style != RopeStyle::kAdjacentPair && (style != RopeStyle::kNone || out.empty())) {
    return InternalError("rope without a style");
  }
  if (heads <= 0 || head_dim <= 0) return InternalError("rope needs heads");
  if (dim <= 0 || dim % 2 != 0 || dim > head_dim) {
    return InternalError("rope turns " + std::to_string(dim) + " dimensions of a head of " + std::to_string(head_dim) +
                         ", expected an even number up to it");
  }
  const auto fits = [&](const Mat<float>& m, int64_t stride) { return dim <= stride && m.cols >= (heads - 1) * stride + dim; };
  if (!fits(x, head_dim) || !fits(to(), to_head_dim())) return InternalError("rope needs room for its heads");
  TALLY_RETURN_IF_ERROR(CheckShape("rope input", x, x.rows, x.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("rope output", to(), x.rows, to().cols));
  if (style == RopeStyle::kNone) return {};
  TALLY_RETURN_IF_ERROR(CheckShape("rope cosines", cos, x.rows, dim / 2));
  return CheckShape("rope sines", sin, x.rows, dim / 2);
}

Cost RopeOp::Useful(const CostAmounts& n) const { return RopeCost(*this, n, static_cast<uint64_t>(dim / 2)); }

void RopeTableOp::Describe(OpDescription& d) const {
  d.Add("positions", kIn, "i32", {Size(positions)});
  d.Add("inv_freq", kIn, "f32", {Size(inv_freq)});
  d.Add("cos", kOut, "f32", Shape(cos));
  d.Add("sin", kOut, "f32", Shape(sin));
  d.Set("magnitude", static_cast<double>(magnitude));
  d.Set("positions", List(positions));
  if (axes.empty()) return;
  d.Add("heights", kIn, "i32", {Size(heights)});
  d.Add("widths", kIn, "i32", {Size(widths)});
  d.Set("heights", List(heights));
  d.Set("widths", List(widths));
  d.Set("axes", std::vector<int64_t>(axes.begin(), axes.end()));
}

void RopeOp::Describe(OpDescription& d) const {
  d.Add("x", out.empty() ? kInOut : kIn, "f32", Shape(x));
  if (!out.empty()) d.Add("out", kOut, "f32", Shape(out));
  if (style != RopeStyle::kNone) {
    d.Add("cos", kIn, "f32", Shape(cos));
    d.Add("sin", kIn, "f32", Shape(sin));
  }
  d.Set("style", NameOf(kRopeStyleNames, style));
  d.Set("heads", heads);
  d.Set("head_dim", head_dim);
  d.Set("dim", dim);
}

template <>
std::span<const Kernel<RopeTableOp>> Kernels<RopeTableOp>() {
  static constexpr Kernel<RopeTableOp> kKernels[] = {
      {"hwy", TableAlways, PlanTable, RunRopeTableHwy,
       [](const RopeTableOp& op, const CostAmounts& n) { return TableCost(op, n, HwyPadded(op.cos.cols)); }},
      {"ref", TableAlways, PlanTable,
       [](const RopeTableOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { RopeTableRef<float>(op, begin, end); },
       [](const RopeTableOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

template <>
std::span<const Kernel<RopeOp>> Kernels<RopeOp>() {
  static constexpr Kernel<RopeOp> kKernels[] = {
      {"hwy", RopeAlways, PlanRope, RunRopeHwy,
       [](const RopeOp& op, const CostAmounts& n) { return RopeCost(op, n, HwyPadded(op.dim / 2)); }},
      {"ref", RopeAlways, PlanRope,
       [](const RopeOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { RopeRef<float>(op, begin, end); },
       [](const RopeOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
