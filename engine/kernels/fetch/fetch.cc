// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/fetch/fetch.h"

namespace tally {
namespace {

const char* Always(const FetchOp&) { return nullptr; }
TaskPlan NoTasks(const FetchOp&, int) { return {}; }

}  // namespace

Status FetchOp::Validate() const {
  if (weight.slots == nullptr || record_bytes == 0) return InternalError("experts are read that are always in memory");
  for (const RowGroup& g : missed) {
    if (g.slice < 0 || g.slice >= weight.slices) return InternalError("a row group names slice " + std::to_string(g.slice));
  }
  return {};
}

CostAmounts FetchOp::Amounts() const {
  CostAmounts n;
  n[Amount::kCalls] = missed.empty() ? 0 : 1;
  n[Amount::kSlices] = missed.size();
  return n;
}

Cost FetchOp::Useful(const CostAmounts& n) const {
  Cost cost;
  cost.AddBytes(ByteKind::kWeightsDisk, n[Amount::kSlices] * record_bytes);
  return cost;
}

void FetchOp::Touches(WeightTouches& touches) const {
  for (const RowGroup& g : missed) {
    touches.push_back({weight.id, static_cast<uint32_t>(g.slice), 0, static_cast<uint32_t>(weight.rows),
                       static_cast<uint32_t>(g.rows), g.step_rows});
  }
}

void FetchOp::Describe(OpDescription& d) const {
  d.Set("experts", static_cast<int64_t>(missed.size()));
  d.Set("record_bytes", static_cast<int64_t>(record_bytes));
}

template <>
std::span<const Kernel<FetchOp>> Kernels<FetchOp>() {
  static constexpr Kernel<FetchOp> kKernels[] = {{"ref", Always, NoTasks,
                                                  [](const FetchOp&, int64_t, int64_t, std::span<uint8_t>) {},
                                                  [](const FetchOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
