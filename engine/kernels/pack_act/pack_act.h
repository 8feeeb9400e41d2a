// SPDX-License-Identifier: Apache-2.0
// Activations made ready for the matrix kernels.
#pragma once

#include "engine/kernels/op.h"
#include "engine/kernels/pack_act/act_pack.h"

namespace tally {

// Packs rows of x: quantises, converts or interleaves them. Row i of the pack is row `row_index[i]` of x (i when empty).
struct PackActOp {
  static constexpr std::string_view kName = "pack_act";
  Mat<const float> x;                  // [n, K]
  std::span<const int32_t> row_index;  // [pack.rows] or empty
  ActPack pack;
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(pack.rows); }
  Cost Useful(const CostAmounts& n) const;  // bytes only: quantising is how a kernel does it, so it is in Executed
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return {}; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<PackActOp>> Kernels<PackActOp>();

}  // namespace tally
