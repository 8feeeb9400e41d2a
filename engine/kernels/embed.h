// Gathers rows of a table: token embeddings and learned positions.
#pragma once

#include "engine/kernels/op.h"

namespace tally {

struct EmbedOp {
  static constexpr std::string_view kName = "embed";
  static constexpr bool kTouchesRows = true;
  std::span<const int32_t> ids;  // [n] rows of the table
  WeightView table;         // [V, d]: kRowMajor, or kPanel16 when the head is tied to it; any storable float or quantised type
  bool add_to_out = false;  // learned positions are added to the token's row
  Mat<float> out;           // [n, d]
  Status Validate() const;
  // 0 FLOPs, or n * d adds of class residual/bias. Bytes stored: one row per distinct id; packed: one row, or
  // one panel, per distinct row or panel.
  Cost Useful() const;
  void Touches(WeightTouches&) const;  // one row per distinct id
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
  bool CostKey(OpKey& key) const;
};

template <>
std::span<const Kernel<EmbedOp>> Kernels<EmbedOp>();

}  // namespace tally
