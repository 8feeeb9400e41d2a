// SPDX-License-Identifier: Apache-2.0
// What of a layer is read from disk for a step, some experts or all matrices, and what that costs. The reading is the store's
// (engine/weights/expert_store.h, layer_store.h).
#pragma once

#include "engine/kernels/op.h"
#include "engine/kernels/pack_act/pack_act.h"

namespace tally {

struct FetchOp {
  static constexpr std::string_view kName = "fetch";
  static constexpr bool kTouchesNothing = true;
  int64_t layer = 0;                      // of the store
  WeightView weight;                      // the first one of the records; of whole layers none
  uint64_t record_bytes = 0;              // gate, up and down of an expert; or the layer's matrices
  bool whole = false;                     // the layer is read, for all rows
  std::span<const RowGroup> chosen = {};  // the rows that chose each expert, ascending by expert
  std::span<const RowGroup> missed = {};  // of these, experts that are read
  int64_t slots = 0;                      // experts of the layer that may be in memory
  uint64_t first_uses = 0;                // of the missed: never read before
  Status Validate() const;
  // kCalls: 1 if any is read; kSlices: experts that are read; or 1 layer.
  CostAmounts Amounts() const;
  // Bytes from disk: a record for each.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches& touches) const;
  Mat<const float> Output() const { return {}; }
  // What the store decided, to be replayed (engine/studies/expert_replay.h): the chosen experts and the last row of each, those
  // that were read. Of a whole layer its bytes alone.
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<FetchOp>> Kernels<FetchOp>();

}  // namespace tally
