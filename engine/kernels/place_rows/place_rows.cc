// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/place_rows/place_rows.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/kernels/describe.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

const char* Always(const PlaceRowsOp&) { return nullptr; }
// One task: rows move within `x`.
TaskPlan Plan(const PlaceRowsOp& op, int) { return {op.given.empty() && op.to_rows.empty() ? 0 : 1, 0, 0}; }

void Run(const PlaceRowsOp& op, int64_t, int64_t, std::span<uint8_t>) {
  const size_t bytes = static_cast<size_t>(op.x.cols) * sizeof(float);
  for (size_t i = op.to_rows.size(); i > 0; --i) {  // from the last one on: no row is overwritten before it has moved
    const int64_t from = static_cast<int64_t>(i) - 1, to = op.to_rows[i - 1];
    if (to != from) std::memcpy(op.x.Row(to), op.x.Row(from), bytes);
  }
  for (const GivenRow& g : op.given) std::memcpy(op.x.Row(g.row), g.values, bytes);
}

}  // namespace

Status PlaceRowsOp::Validate() const {
  TALLY_RETURN_IF_ERROR(CheckShape("placed rows", x, x.rows, x.cols));
  if (static_cast<int64_t>(to_rows.size()) > x.rows) return InternalError("more rows to place than there are");
  for (size_t i = 0; i < to_rows.size(); ++i) {
    if (to_rows[i] >= x.rows || to_rows[i] < static_cast<int32_t>(i) || (i > 0 && to_rows[i] <= to_rows[i - 1])) {
      return InternalError("row " + std::to_string(i) + " cannot be placed at row " + std::to_string(to_rows[i]));
    }
  }
  for (const GivenRow& g : given) {
    if (g.values == nullptr || g.row < 0 || g.row >= x.rows) {
      return InternalError("a given row " + std::to_string(g.row) + " of " + std::to_string(x.rows));
    }
  }
  return {};
}

Cost PlaceRowsOp::Useful(const CostAmounts& n) const {
  Cost cost;
  const uint64_t bytes = n[Amount::kRows] * static_cast<uint64_t>(x.cols) * sizeof(float);
  cost.AddBytes(ByteKind::kActivationsRead, bytes);
  cost.AddBytes(ByteKind::kActivationsWritten, bytes);
  return cost;
}

void PlaceRowsOp::AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const {
  for (const GivenRow& g : given) ++amounts[groups[static_cast<size_t>(g.row)]][Amount::kRows];
  for (const int32_t row : to_rows) ++amounts[groups[static_cast<size_t>(row)]][Amount::kRows];
}

void PlaceRowsOp::Describe(OpDescription& d) const {
  std::vector<int64_t> rows;
  for (const GivenRow& g : given) rows.push_back(g.row);
  d.Add("given", kIn, "f32", {Size(given), x.cols});
  d.Add("moved", kIn, "f32", {Size(to_rows), x.cols});
  d.Add("x", kOut, "f32", {Size(given) + Size(to_rows), x.cols});
  d.Set("given_rows", std::move(rows));
  d.Set("to_rows", List(to_rows));
}

template <>
std::span<const Kernel<PlaceRowsOp>> Kernels<PlaceRowsOp>() {
  static constexpr Kernel<PlaceRowsOp> kKernels[] = {
      {"ref", Always, Plan, Run, [](const PlaceRowsOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
