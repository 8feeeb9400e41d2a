// SPDX-License-Identifier: Apache-2.0
// Gathers rows of a table: token embeddings and learned positions.
#pragma once

#include "engine/kernels/op.h"

namespace tally {

struct EmbedOp {
  static constexpr std::string_view kName = "embed";
  std::span<const int32_t> ids;             // [n]
  WeightView table;                         // [V, d]: kRowMajor, or kPanel16 if the head is tied to it; any weight type
  bool add_to_out = false;                  // out += instead of out = (learned positions)
  Mat<float> out;                           // [n, d]
  float scale = 1;                          // multiplies the rows
  int32_t first_row = 0;                    // id i is row first_row + i of the table (OPT's positions begin at 2)
  std::span<const int32_t> step_rows = {};  // the step's row of each id; empty: row i
  Status Validate() const;
  // Class residual/bias: n * d adds with add_to_out, n * d multiplies if scale is not 1. Weight bytes: stored, one row for each
  // distinct id; packed, one row (kPanel16: one panel) for each distinct one.
  CostAmounts Amounts() const;
  Cost Useful(const CostAmounts& n) const;
  void AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const;
  void Touches(WeightTouches&) const;  // one row for each distinct id
  size_t StepRow(size_t i) const { return step_rows.empty() ? i : static_cast<size_t>(step_rows[i]); }
  WeightTouch RowTouch(size_t i) const {
    const uint32_t row = static_cast<uint32_t>(ids[i] + first_row);
    return {.id = table.id, .slice = 0, .row_begin = row, .row_end = row + 1};
  }
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<EmbedOp>> Kernels<EmbedOp>();

}  // namespace tally
