// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/embed/embed.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/kernels/describe.h"
#include "engine/kernels/embed/embed_ref.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// The ids sorted, without duplicates.
std::vector<int32_t> Distinct(std::span<const int32_t> ids) {
  std::vector<int32_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

// FLOPs of the reference to widen 32 columns of a row.
uint64_t RefWideningFlops(const WeightView& w) {
  const WideningFlops& flops = FormatOf(w.dtype).widening;
  return w.layout == WeightLayout::kPanel16 ? flops.panels : flops.rows;
}

// `cols`: columns the kernel processes, padding included. `widening_flops`: of 32 columns.
Cost EmbedCost(const EmbedOp& op, const CostAmounts& n, uint64_t cols, uint64_t widening_flops) {
  Cost cost = op.Useful(n);
  const uint64_t rows = n[Amount::kRows], padding = cols - static_cast<uint64_t>(op.table.cols);
  cost.AddFlops(WorkClass::kResidualBias, ((op.add_to_out ? 1 : 0) + (op.scale != 1 ? 1 : 0)) * rows * padding);
  cost.AddFlops(WorkClass::kQuantize, rows * (cols * widening_flops / 32));
  return cost;
}

Cost ExecutedRef(const EmbedOp& op, const CostAmounts& n) {
  return EmbedCost(op, n, static_cast<uint64_t>(op.table.cols), RefWideningFlops(op.table));
}
Cost ExecutedHwy(const EmbedOp& op, const CostAmounts& n) {
  return EmbedCost(op, n, HwyPadded(op.table.cols), FormatOf(op.table.dtype).widening.vectors);
}

void RunHwy(const EmbedOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  FormatOf(op.table.dtype).kernels().embed(op, begin, end);
}

const char* Always(const EmbedOp&) { return nullptr; }
TaskPlan PlanHwy(const EmbedOp& op, int) { return {op.out.rows, 0, 0}; }
TaskPlan PlanRef(const EmbedOp& op, int) {
  return {op.out.rows, 0, op.add_to_out || op.scale != 1 ? static_cast<size_t>(op.table.cols) * sizeof(float) : 0};
}

}  // namespace

Status EmbedOp::Validate() const {
  if (table.empty() || table.rows <= 0 || table.cols <= 0 || table.slices != 1) return InternalError("embedding without a table");
  if (table.layout != WeightLayout::kRowMajor && table.layout != WeightLayout::kPanel16) {
    return InternalError("an embedding table is stored by rows or in panels");
  }
  if (!IsWeightType(table.dtype) || table.cols % GetDTypeInfo(table.dtype).block_size != 0) {
    return InternalError("an embedding table of " + std::to_string(table.cols) + " columns of " +
                         std::string(DTypeName(table.dtype)) + " cannot be read");
  }
  if (!std::isfinite(scale)) return InternalError("an embedding is scaled by a finite number");
  if (first_row < 0) return InternalError("the first row of an embedding table is negative");
  const size_t needed = table.layout == WeightLayout::kPanel16 ? PanelBytes(table.dtype, table.cols)
                                                               : *StoredBytes(table.dtype, static_cast<uint64_t>(table.cols));
  if (table.panel_stride < needed) return InternalError("embedding rows overlap");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= table.rows - first_row) {
      return BadInput("id " + std::to_string(ids[i]) + " at row " + std::to_string(i) + " is outside the table, expected 0 to " +
                      std::to_string(table.rows - first_row - 1));
    }
  }
  return CheckShape("embedding output", out, static_cast<int64_t>(ids.size()), table.cols);
}

CostAmounts EmbedOp::Amounts() const {
  CostAmounts n = RowAmounts(static_cast<int64_t>(ids.size()));
  if (ids.size() <= 1) {
    n[Amount::kSlices] = n[Amount::kPanels] = n[Amount::kRows];
    return n;
  }
  int64_t last_panel = -1;
  for (const int32_t id : Distinct(ids)) {
    const int64_t row = int64_t{id} + first_row, panel = table.layout == WeightLayout::kPanel16 ? row / kPanelRows : row;
    ++n[Amount::kSlices];
    n[Amount::kPanels] += panel != last_panel ? 1 : 0;
    last_panel = panel;
  }
  return n;
}

Cost EmbedOp::Useful(const CostAmounts& n) const {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], elements = rows * static_cast<uint64_t>(table.cols);
  // Reading one row touches every cache line of its panel, so the whole panel is charged.
  cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kSlices] * (table.stored_row_bytes + table.row_scale_bytes));
  cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kPanels] * table.panel_stride);
  cost.AddBytes(ByteKind::kActivationsRead, rows * 4);
  cost.AddBytes(ByteKind::kActivationsWritten, elements * 4);
  if (scale != 1) cost.AddFlops(WorkClass::kResidualBias, elements);
  if (add_to_out) {
    cost.AddFlops(WorkClass::kResidualBias, elements);
    cost.AddBytes(ByteKind::kActivationsRead, elements * 4);
  }
  return cost;
}

void EmbedOp::AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const {
  for (size_t i = 0; i < ids.size(); ++i) ++amounts[groups[StepRow(i)]][Amount::kRows];
}

void EmbedOp::Touches(WeightTouches& touches) const {
  if (ids.size() == 1) return touches.push_back(RowTouch(0));
  for (int32_t id : Distinct(ids)) {
    const uint32_t row = static_cast<uint32_t>(id + first_row);
    touches.push_back({table.id, 0, row, row + 1});
  }
}

void EmbedOp::Describe(OpDescription& d) const {
  d.Add("ids", kIn, "i32", {Size(ids)});
  DescribeWeight("table", table, d);
  d.Add("out", add_to_out ? kInOut : kOut, "f32", Shape(out));
  d.Set("first_row", first_row);
  d.Set("scale", static_cast<double>(scale));
  d.Set("layout", table.layout == WeightLayout::kPanel16 ? "panel16" : "row_major");
  d.Set("ids", List(ids));
}

template <>
std::span<const Kernel<EmbedOp>> Kernels<EmbedOp>() {
  static constexpr Kernel<EmbedOp> kKernels[] = {{"hwy", Always, PlanHwy, RunHwy, ExecutedHwy},
                                                 {"ref", Always, PlanRef, EmbedRef<float>, ExecutedRef}};
  return kKernels;
}

}  // namespace tally
