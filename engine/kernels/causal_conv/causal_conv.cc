// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/causal_conv/causal_conv.h"

#include <string>

#include "engine/kernels/causal_conv/causal_conv_ref.h"
#include "engine/kernels/describe.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `d`: channels the kernel processes, padding included.
Cost CausalConvCost(const CausalConvOp& op, const CostAmounts& n, uint64_t d) {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], taps = static_cast<uint64_t>(op.layout.taps), row_bytes = 4 * op.x.cols;
  const uint64_t tails = n[Amount::kRuns] * static_cast<uint64_t>(op.layout.tail()) * row_bytes;
  const ElementCost activation = ActivateCost(op.activation);
  cost.AddFlops(WorkClass::kLinear, 2 * rows * taps * d);
  cost.AddFlops(WorkClass::kActivation, rows * d * (activation.flops + (op.gate.empty() ? 0 : 1)));
  cost.AddSpecial(WorkClass::kActivation, rows * d * activation.special);
  cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * taps * op.taps.stored_row_bytes);
  cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * taps * row_bytes);
  if (!op.bias.empty()) {
    cost.AddFlops(WorkClass::kResidualBias, rows * d);
    cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * op.bias.stored_row_bytes);
    cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * row_bytes);
  }
  cost.AddBytes(ByteKind::kStateRead, tails);
  cost.AddBytes(ByteKind::kStateWritten, tails);
  cost.AddBytes(ByteKind::kActivationsRead, rows * row_bytes * (op.gate.empty() ? 1 : 2));
  cost.AddBytes(ByteKind::kActivationsWritten, rows * row_bytes);
  return cost;
}

// Adds the bytes of kept rows, as if all rows were kept.
Cost WithRows(const CausalConvOp& op, const CostAmounts& n, Cost cost) {
  cost.AddBytes(ByteKind::kStateWritten, n[Amount::kRows] * 4 * static_cast<uint64_t>(op.x.cols));
  return cost;
}

const char* Always(const CausalConvOp&) { return nullptr; }
TaskPlan Plan(const CausalConvOp& op, int) {
  const int64_t tasks = op.x.rows > 0 ? (op.x.cols + kConvTask - 1) / kConvTask : 0;
  return {tasks, 0, static_cast<size_t>(ConvInputs::kScratch) * sizeof(float)};
}

Status CheckVectors(const char* name, const WeightView& w, int64_t slices, int64_t cols) {
  if (w.layout == WeightLayout::kVector && w.dtype == DType::kF32 && w.slices == slices && w.cols == cols) return {};
  return InternalError(std::string("a convolution needs ") + name + " of " + std::to_string(slices) + " vectors of " +
                       std::to_string(cols) + " F32");
}

}  // namespace

Status CausalConvOp::Validate() const {
  if (first_channel < 0 || first_channel + x.cols > layout.channels) {
    return InternalError("a convolution of " + std::to_string(x.cols) + " channels from " + std::to_string(first_channel) +
                         " has states of " + std::to_string(layout.channels));
  }
  if (layout.taps < 1 || layout.taps > kMostTaps) {
    return InternalError("a convolution needs 1 to " + std::to_string(kMostTaps) + " taps");
  }
  TALLY_RETURN_IF_ERROR(CheckVectors("taps", taps, layout.taps, x.cols));
  if (!bias.empty()) TALLY_RETURN_IF_ERROR(CheckVectors("a bias", bias, 1, x.cols));
  if (activation != ActivationKind::kNone && activation != ActivationKind::kSilu) {
    return InternalError("a convolution is followed by SiLU or nothing");
  }
  TALLY_RETURN_IF_ERROR(CheckShape("convolution's input", x, x.rows, x.cols));
  if (!gate.empty()) TALLY_RETURN_IF_ERROR(CheckShape("convolution's gate", gate, x.rows, x.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("convolution's output", out, x.rows, x.cols));
  if (out.data == x.data) return InternalError("a convolution does not run in place");
  return CheckRuns(layout, runs, states, x.rows, EarlierRows::kTail);
}

CostAmounts CausalConvOp::Amounts() const { return StateAmounts(runs, states, false); }

void CausalConvOp::AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const {
  AddStateRowAmounts(runs, states, false, groups, amounts);
}

Cost CausalConvOp::Useful(const CostAmounts& n) const { return CausalConvCost(*this, n, static_cast<uint64_t>(x.cols)); }

void CausalConvOp::Touches(WeightTouches& touches) const {
  if (x.rows == 0) return;
  for (uint32_t k = 0; k < static_cast<uint32_t>(taps.slices); ++k) touches.push_back({taps.id, k, 0, 1});
  if (!bias.empty()) touches.push_back({bias.id, 0, 0, 1});
}

void CausalConvOp::Describe(OpDescription& d) const {
  d.Add("x", kIn, "f32", Shape(x));
  DescribeWeight("taps", taps, d);
  DescribeWeight("bias", bias, d);
  if (!gate.empty()) d.Add("gate", kIn, "f32", Shape(gate));
  d.Add("state", OperandRole::kCache, "f32", {layout.tail(), x.cols});
  d.Add("out", kOut, "f32", Shape(out));
  d.Set("activation", NameOf(kActivationKindNames, activation));
  d.Set("first_channel", first_channel);
  DescribeRuns(runs, states, d);
}

template <>
std::span<const Kernel<CausalConvOp>> Kernels<CausalConvOp>() {
  static constexpr Kernel<CausalConvOp> kKernels[] = {
      {"hwy", Always, Plan, RunCausalConvHwy,
       [](const CausalConvOp& op, const CostAmounts& n) { return WithRows(op, n, CausalConvCost(op, n, HwyPadded(op.x.cols))); }},
      {"ref", Always, Plan,
       [](const CausalConvOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
         CausalConvRef<float, float, float>(op, begin, end, scratch);
       },
       [](const CausalConvOp& op, const CostAmounts& n) { return WithRows(op, n, op.Useful(n)); }}};
  return kKernels;
}

}  // namespace tally
