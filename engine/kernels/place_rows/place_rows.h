// SPDX-License-Identifier: Apache-2.0
// Rows of a step whose embedding is given: copies it to its place, among the rows that were looked up.
#pragma once

#include "engine/kernels/op.h"

namespace tally {

// A row of the step, and its values, [d].
struct GivenRow {
  int32_t row = 0;
  const float* values = nullptr;
};

struct PlaceRowsOp {
  static constexpr std::string_view kName = "place_rows";
  std::span<const GivenRow> given;
  // Row i of `x` moves to row to_rows[i] first; ascending, so that to_rows[i] >= i. Empty: no row moves.
  std::span<const int32_t> to_rows = {};
  Mat<float> x;  // [rows of the step, d]
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(static_cast<int64_t>(given.size() + to_rows.size())); }
  Cost Useful(const CostAmounts& n) const;  // a row is read and written
  void AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const;
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return x; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<PlaceRowsOp>> Kernels<PlaceRowsOp>();

}  // namespace tally
