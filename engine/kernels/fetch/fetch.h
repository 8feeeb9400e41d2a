// SPDX-License-Identifier: Apache-2.0
// The experts of a layer that are read from disk for a step: what they cost. The reading is the store's (engine/weights/expert_store.h).
#pragma once

#include "engine/kernels/op.h"
#include "engine/kernels/pack_act/pack_act.h"

namespace tally {

struct FetchOp {
  static constexpr std::string_view kName = "fetch";
  static constexpr bool kTouchesNothing = true;
  int64_t layer = 0;                 // of the store
  WeightView weight;                 // the first one of the records
  uint64_t record_bytes = 0;         // gate, up and down of an expert
  std::span<const RowGroup> missed;  // the rows that chose each expert that is read
  Status Validate() const;
  // kCalls: 1 if any is read; kSlices: experts that are read.
  CostAmounts Amounts() const;
  // Bytes from disk: a record for each.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches& touches) const;
  Mat<const float> Output() const { return {}; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<FetchOp>> Kernels<FetchOp>();

}  // namespace tally
