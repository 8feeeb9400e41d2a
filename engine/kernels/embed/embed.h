// Gathers rows of a table: token embeddings and learned positions.
#pragma once

#include "engine/kernels/op.h"

namespace tally {

struct EmbedOp {
  static constexpr std::string_view kName = "embed";
  std::span<const int32_t> ids;  // [n] rows of the table
  WeightView table;              // [V, d]: kRowMajor, or kPanel16 when the head is tied to it; any type of weights
  bool add_to_out = false;       // learned positions are added to the token's row
  Mat<float> out;                // [n, d]
  float scale = 1;               // multiplies the rows
  Status Validate() const;
  // Class residual/bias: n * d adds where rows are added to out, n * d multiplies by a scale other than 1. Bytes stored: one row per
  // distinct id; packed: one row, or one panel, per distinct row or panel.
  CostAmounts Amounts() const;
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;  // one row per distinct id
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<EmbedOp>> Kernels<EmbedOp>();

}  // namespace tally
