// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/rates/rates.h"

#include <cmath>

#include "engine/kernels/describe.h"
#include "engine/kernels/rates/rates_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `heads`: of a row that the kernel processes, padding included.
Cost RatesCost(const RatesOp& op, const CostAmounts& n, uint64_t heads) {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], row_bytes = static_cast<uint64_t>(op.x.cols) * 4;
  const uint64_t compares = (op.least > 0 ? 1 : 0) + (std::isfinite(op.most) ? 1 : 0), betas = op.beta.empty() ? 0 : 1;
  cost.AddFlops(WorkClass::kResidualBias, rows * heads);
  cost.AddFlops(WorkClass::kActivation, rows * heads * (2 + compares + betas));  // 1 + exp, A s; 1 + exp
  cost.AddSpecial(WorkClass::kActivation, rows * heads * (3 + 2 * betas));       // exp, log, exp; exp, divide
  cost.AddBytes(ByteKind::kActivationsRead, rows * row_bytes * (1 + betas));
  cost.AddBytes(ByteKind::kActivationsWritten, rows * row_bytes * (2 + betas));
  for (const WeightView* w : {&op.bias, &op.a}) {
    cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * w->stored_row_bytes);
    cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * row_bytes);
  }
  return cost;
}

Status CheckVector(const char* name, const WeightView& w, int64_t heads) {
  if (w.layout == WeightLayout::kVector && w.dtype == DType::kF32 && w.slices == 1 && w.cols == heads) return {};
  return InternalError(std::string(name) + " is not a vector of " + std::to_string(heads) + " F32");
}

const char* Always(const RatesOp&) { return nullptr; }
TaskPlan Plan(const RatesOp& op, int) { return {op.x.rows, 0, 0}; }

}  // namespace

Status RatesOp::Validate() const {
  TALLY_RETURN_IF_ERROR(CheckVector("the rates' bias", bias, x.cols));
  TALLY_RETURN_IF_ERROR(CheckVector("A", a, x.cols));
  if (!(least >= 0) || !std::isfinite(least) || !(most >= least)) return InternalError("rates need 0 <= least <= most");
  TALLY_RETURN_IF_ERROR(CheckShape("rates", x, x.rows, x.cols));
  if (!beta.empty()) TALLY_RETURN_IF_ERROR(CheckShape("beta", beta, x.rows, x.cols));
  return CheckShape("decay", decay, x.rows, x.cols);
}

Cost RatesOp::Useful(const CostAmounts& n) const { return RatesCost(*this, n, static_cast<uint64_t>(x.cols)); }

void RatesOp::Touches(WeightTouches& touches) const {
  if (x.rows == 0) return;
  touches.push_back({bias.id, 0, 0, 1});
  touches.push_back({a.id, 0, 0, 1});
}

void RatesOp::Describe(OpDescription& d) const {
  d.Add("x", kInOut, "f32", Shape(x));
  DescribeWeight("bias", bias, d);
  DescribeWeight("a", a, d);
  if (!beta.empty()) d.Add("beta", kInOut, "f32", Shape(beta));
  d.Add("decay", kOut, "f32", Shape(decay));
  d.Set("least", static_cast<double>(least));
  d.Set("most", static_cast<double>(most));
}

template <>
std::span<const Kernel<RatesOp>> Kernels<RatesOp>() {
  static constexpr Kernel<RatesOp> kKernels[] = {
      {"hwy", Always, Plan, RunRatesHwy,
       [](const RatesOp& op, const CostAmounts& n) { return RatesCost(op, n, HwyPadded(op.x.cols)); }},
      {"ref", Always, Plan,
       [](const RatesOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { RatesRef<float, float>(op, begin, end); },
       [](const RatesOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
