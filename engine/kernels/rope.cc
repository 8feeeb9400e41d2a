#include "engine/kernels/rope.h"

#include "engine/kernels/rope_ref.h"
#include "engine/kernels/small_hwy.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `half` angles of each row, as the kernel at hand counts them.
Cost TableCost(const RopeTableOp& op, uint64_t half) {
  Cost cost;
  const uint64_t n = op.positions.size(), cols = op.inv_freq.size();
  cost.AddFlops(WorkClass::kRope, n * half * 3);  // the angle, and two multiplies by the magnitude
  cost.AddSpecial(WorkClass::kRope, n * half * 2);
  cost.AddBytes(ByteKind::kActivationsRead, (n + cols) * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, 2 * n * cols * 4);
  return cost;
}

// `pairs` of each head, as the kernel at hand counts them.
Cost RopeCost(const RopeOp& op, uint64_t pairs) {
  Cost cost;
  const uint64_t rows = static_cast<uint64_t>(op.x.rows), heads = static_cast<uint64_t>(op.heads);
  const uint64_t dim = static_cast<uint64_t>(op.dim);
  cost.AddFlops(WorkClass::kRope, rows * heads * pairs * 6);  // twice a multiply and a multiply-add
  cost.AddBytes(ByteKind::kActivationsRead, rows * (heads * dim + dim) * 4);
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
  for (int32_t p : positions) {
    if (p < 0) return InternalError("rope position " + std::to_string(p) + " is negative");
  }
  return {};
}

Cost RopeTableOp::Useful() const { return TableCost(*this, inv_freq.size()); }

Status RopeOp::Validate() const {
  if (style != RopeStyle::kRotateHalf && style != RopeStyle::kAdjacentPair) return InternalError("rope without a style");
  if (heads <= 0 || head_dim <= 0) return InternalError("rope needs heads");
  if (dim <= 0 || dim % 2 != 0 || dim > head_dim) {
    return InternalError("rope turns " + std::to_string(dim) + " dimensions of a head of " + std::to_string(head_dim) +
                         ", expected an even number up to it");
  }
  TALLY_RETURN_IF_ERROR(CheckShape("rope input", x, x.rows, heads * head_dim));
  TALLY_RETURN_IF_ERROR(CheckShape("rope cosines", cos, x.rows, dim / 2));
  return CheckShape("rope sines", sin, x.rows, dim / 2);
}

Cost RopeOp::Useful() const { return RopeCost(*this, static_cast<uint64_t>(dim / 2)); }

template <>
std::span<const Kernel<RopeTableOp>> Kernels<RopeTableOp>() {
  static constexpr Kernel<RopeTableOp> kKernels[] = {
      {"hwy", TableAlways, PlanTable, RunRopeTableHwy,
       [](const RopeTableOp& op) { return TableCost(op, HwyPadded(op.cos.cols)); }},
      {"ref", TableAlways, PlanTable,
       [](const RopeTableOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { RopeTableRef<float>(op, begin, end); },
       [](const RopeTableOp& op) { return op.Useful(); }}};
  return kKernels;
}

template <>
std::span<const Kernel<RopeOp>> Kernels<RopeOp>() {
  static constexpr Kernel<RopeOp> kKernels[] = {
      {"hwy", RopeAlways, PlanRope, RunRopeHwy, [](const RopeOp& op) { return RopeCost(op, HwyPadded(op.dim / 2)); }},
      {"ref", RopeAlways, PlanRope,
       [](const RopeOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { RopeRef<float>(op, begin, end); },
       [](const RopeOp& op) { return op.Useful(); }}};
  return kKernels;
}

}  // namespace tally
