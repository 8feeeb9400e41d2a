// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/fetch/fetch.h"

#include <utility>
#include <vector>

namespace tally {
namespace {

const char* Always(const FetchOp&) { return nullptr; }
TaskPlan NoTasks(const FetchOp&, int) { return {}; }

}  // namespace

Status FetchOp::Validate() const {
  if ((!whole && weight.slots == nullptr) || record_bytes == 0)
    return InternalError("weights are read that are always in memory");
  for (const RowGroup& g : missed) {
    if (g.slice < 0 || g.slice >= weight.slices) return InternalError("a row group names slice " + std::to_string(g.slice));
  }
  return {};
}

CostAmounts FetchOp::Amounts() const {
  CostAmounts n;
  n[Amount::kCalls] = missed.empty() && !whole ? 0 : 1;
  n[Amount::kSlices] = whole ? 1 : missed.size();
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
  d.Set("record_bytes", static_cast<int64_t>(record_bytes));
  if (whole) return;
  std::vector<int64_t> experts, last_rows, read;
  for (const RowGroup& g : chosen) {
    experts.push_back(g.slice);
    last_rows.push_back(g.step_rows[g.rows - 1]);
  }
  for (const RowGroup& g : missed) read.push_back(g.slice);
  d.Set("slots", slots);
  d.Set("experts", std::move(experts));
  d.Set("last_rows", std::move(last_rows));
  d.Set("missed", std::move(read));
  d.Set("first_uses", static_cast<int64_t>(first_uses));
}

template <>
std::span<const Kernel<FetchOp>> Kernels<FetchOp>() {
  static constexpr Kernel<FetchOp> kKernels[] = {{"ref", Always, NoTasks,
                                                  [](const FetchOp&, int64_t, int64_t, std::span<uint8_t>) {},
                                                  [](const FetchOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
