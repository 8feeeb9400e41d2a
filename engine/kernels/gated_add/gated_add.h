// SPDX-License-Identifier: Apache-2.0
// Adds weighted rows: out[t] += sigmoid(gate[t]) * y[t] (the shared expert of Qwen2-MoE), or out[t] += scale * y[t] (the residual
// multiplier of Granite).
#pragma once

#include "engine/kernels/op.h"

namespace tally {

struct GatedAddOp {
  static constexpr std::string_view kName = "gated_add";
  static constexpr size_t kParts = 2;  // weighting, then adding
  Mat<const float> y;                  // [n, d]
  Mat<const float> gate = {};          // [n, 1], before the sigmoid; or empty
  float scale = 1;                     // without a gate
  Mat<float> out;                      // [n, d]
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(out.rows); }
  // Per row. Part 0: with a gate, class activation, 1 + d FLOPs and 2 special (1 + exp(-g), the divide, d multiplies); without one,
  // class residual/bias, d multiplies. Part 1, class residual/bias: d adds.
  Cost Useful(const CostAmounts& n, size_t part) const;
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<GatedAddOp>> Kernels<GatedAddOp>();

void RunGatedAddHwy(const GatedAddOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
