// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/norm/norm.h"

#include <cmath>

#include "engine/kernels/describe.h"
#include "engine/kernels/norm/norm_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `k`: elements of a vector that the kernel processes, padding included.
Cost NormCost(const NormOp& op, const CostAmounts& n, uint64_t k) {
  Cost cost;
  const uint64_t vectors = n[Amount::kRows] * static_cast<uint64_t>(op.groups), cols = static_cast<uint64_t>(op.vector_size());
  if (op.kind == NormKind::kRms) {
    cost.AddFlops(WorkClass::kNorm, vectors * ((op.weight.empty() ? 3 : 4) * k + 1));  // sum of squares 2, scaling 2; eps
    cost.AddSpecial(WorkClass::kNorm, vectors * 2);                                    // divide, rsqrt
  } else if (op.kind == NormKind::kL2) {
    cost.AddFlops(WorkClass::kNorm, vectors * (3 * k + 1));  // sum of squares 2, scaling 1; eps
    cost.AddSpecial(WorkClass::kNorm, vectors);              // rsqrt
  } else {
    // sum 1, centring 1, sum of squares 2, scaling 2, bias 1; eps
    cost.AddFlops(WorkClass::kNorm, vectors * ((op.bias.empty() ? 6 : 7) * k + 1));
    cost.AddSpecial(WorkClass::kNorm, vectors * 3);  // two divides, rsqrt
  }
  if (op.add_to_out) cost.AddFlops(WorkClass::kResidualBias, vectors * k);
  cost.AddBytes(ByteKind::kActivationsRead, vectors * cols * (op.add_to_out ? 8 : 4));
  cost.AddBytes(ByteKind::kActivationsWritten, vectors * cols * 4);
  for (const WeightView* w : {&op.weight, &op.bias}) {
    if (w->empty()) continue;
    cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * w->stored_row_bytes);
    cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * static_cast<uint64_t>(w->cols) * 4);
  }
  return cost;
}

Status CheckVector(const char* name, const WeightView& w, int64_t cols) {
  if (w.layout != WeightLayout::kVector || w.slices != 1 || w.cols != cols) {
    return InternalError(std::string(name) + " is not a vector of " + std::to_string(cols));
  }
  return {};
}

const char* Always(const NormOp&) { return nullptr; }
TaskPlan Plan(const NormOp& op, int) { return {op.x.rows * op.groups, 0, 0}; }

}  // namespace

Status NormOp::Validate() const {
  if (groups <= 0 || x.cols <= 0 || x.cols % groups != 0) return InternalError("norm needs vectors");
  if (weight.empty() && kind == NormKind::kLayer) return InternalError("a LayerNorm needs a weight");
  if (!weight.empty() && kind == NormKind::kL2) return InternalError("an L2 norm has no weight");
  const int64_t k = vector_size();
  if (!weight.empty()) TALLY_RETURN_IF_ERROR(CheckVector("norm weight", weight, weight.cols == groups * k ? groups * k : k));
  if (!bias.empty()) {
    if (kind != NormKind::kLayer) return InternalError("only a LayerNorm has a bias");
    TALLY_RETURN_IF_ERROR(CheckVector("norm bias", bias, k));
  }
  if (add_to_out && (kind != NormKind::kRms || out.data == x.data))
    return InternalError("this norm cannot be added to its output");
  if (!std::isfinite(eps) || eps < 0) return InternalError("norm eps is not a number >= 0");
  TALLY_RETURN_IF_ERROR(CheckShape("norm input", x, x.rows, groups * k));
  return CheckShape("norm output", out, x.rows, groups * k);
}

Cost NormOp::Useful(const CostAmounts& n) const { return NormCost(*this, n, static_cast<uint64_t>(vector_size())); }

void NormOp::Touches(WeightTouches& touches) const {
  if (x.rows == 0) return;
  if (!weight.empty()) touches.push_back({weight.id, 0, 0, 1});
  if (!bias.empty()) touches.push_back({bias.id, 0, 0, 1});
}

void NormOp::Describe(OpDescription& d) const {
  d.Add("x", kIn, "f32", Shape(x));
  DescribeWeight("weight", weight, d);
  DescribeWeight("bias", bias, d);
  d.Add("out", add_to_out ? kInOut : kOut, "f32", Shape(out));
  d.Set("kind", NameOf(kNormKindNames, kind));
  d.Set("groups", groups);
  d.Set("eps", static_cast<double>(eps));
}

template <>
std::span<const Kernel<NormOp>> Kernels<NormOp>() {
  static constexpr Kernel<NormOp> kKernels[] = {
      {"hwy", Always, Plan, RunNormHwy,
       [](const NormOp& op, const CostAmounts& n) { return NormCost(op, n, HwyPadded(op.vector_size())); }},
      {"ref", Always, Plan,
       [](const NormOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { NormRef<float>(op, begin, end); },
       [](const NormOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
