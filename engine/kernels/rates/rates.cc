// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/rates/rates.h"

#include <cmath>

#include "engine/kernels/describe.h"
#include "engine/kernels/rates/rates_ref.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// `elements`, `betas`: of a row that the kernel processes, padding included.
Cost RatesCost(const RatesOp& op, const CostAmounts& n, uint64_t elements, uint64_t betas) {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], bytes = static_cast<uint64_t>(op.x.cols) * 4,
                 of_beta = static_cast<uint64_t>(op.beta.cols) * 4;
  const uint64_t compares = (op.least > 0 ? 1 : 0) + (std::isfinite(op.most) ? 1 : 0);
  cost.AddFlops(WorkClass::kResidualBias, rows * elements);
  // 1 + exp, A s; with a bound A y, 1 + exp, bound s. Special: exp, log or divide, exp. Beta: 1 + exp; exp, divide.
  cost.AddFlops(WorkClass::kActivation, rows * (elements * (op.bound != 0 ? 3 : 2 + compares) + betas));
  cost.AddSpecial(WorkClass::kActivation, rows * (elements * 3 + 2 * betas));
  cost.AddBytes(ByteKind::kActivationsRead, rows * (bytes + of_beta));
  cost.AddBytes(ByteKind::kActivationsWritten, rows * (2 * bytes + of_beta));
  for (const WeightView* w : {&op.bias, &op.a}) {
    cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * w->stored_row_bytes);
    cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * static_cast<uint64_t>(w->cols) * 4);
  }
  return cost;
}

Status CheckRates(const char* name, const WeightView& w, int64_t n) {
  if (w.layout == WeightLayout::kVector && w.dtype == DType::kF32 && w.slices == 1 && w.cols == n) return {};
  return InternalError(std::string(name) + " is not a vector of " + std::to_string(n) + " F32");
}

Cost ExecutedHwy(const RatesOp& op, const CostAmounts& n) {
  const uint64_t elements = op.dim() > 1 ? static_cast<uint64_t>(op.heads()) * HwyPadded(op.dim()) : HwyPadded(op.x.cols);
  return RatesCost(op, n, elements, HwyPadded(op.beta.cols));
}

const char* Always(const RatesOp&) { return nullptr; }
TaskPlan Plan(const RatesOp& op, int) { return {op.x.rows, 0, 0}; }

}  // namespace

Status RatesOp::Validate() const {
  TALLY_RETURN_IF_ERROR(CheckRates("the rates' bias", bias, x.cols));
  if (a.cols < 1 || x.cols % a.cols != 0) return InternalError("rates need whole heads");
  TALLY_RETURN_IF_ERROR(CheckRates("A", a, heads()));
  const bool limited = least != 0 || std::isfinite(most);
  if (!(bound <= 0) || !std::isfinite(bound) || (bound != 0 && limited)) {
    return InternalError("rates have a negative bound, or limits, or neither");
  }
  if (!(least >= 0) || !std::isfinite(least) || !(most >= least)) return InternalError("rates need 0 <= least <= most");
  TALLY_RETURN_IF_ERROR(CheckShape("rates", x, x.rows, x.cols));
  if (!beta.empty()) TALLY_RETURN_IF_ERROR(CheckShape("beta", beta, x.rows, heads()));
  return CheckShape("decay", decay, x.rows, x.cols);
}

Cost RatesOp::Useful(const CostAmounts& n) const {
  return RatesCost(*this, n, static_cast<uint64_t>(x.cols), static_cast<uint64_t>(beta.cols));
}

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
  d.Set("bound", static_cast<double>(bound));
}

template <>
std::span<const Kernel<RatesOp>> Kernels<RatesOp>() {
  static constexpr Kernel<RatesOp> kKernels[] = {
      {"hwy", Always, Plan, RunRatesHwy, ExecutedHwy},
      {"ref", Always, Plan,
       [](const RatesOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { RatesRef<float, float>(op, begin, end); },
       [](const RatesOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
