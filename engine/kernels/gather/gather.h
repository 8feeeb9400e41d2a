// SPDX-License-Identifier: Apache-2.0
// Gathers between processes that run one model: the parts of a matrix become the whole.
#pragma once

#include "engine/base/communicator.h"
#include "engine/kernels/op.h"
#include "engine/kernels/pack_act/act_pack.h"

namespace tally {

// Columns [begin, begin + count) of the whole.
struct ColumnRun {
  int64_t begin = 0, count = 0;
};
// The part of one process: rows of some columns.
struct GatherPart {
  int64_t rows = 0;
  std::span<const ColumnRun> columns;  // those of `own`, one run after another
  int64_t width = 0;                   // columns of all runs
};

// Makes rows and columns of `all` from the parts of all processes, in the order of the ranks.
struct GatherOp {
  static constexpr std::string_view kName = "gather";
  Communicator* group = nullptr;
  std::span<GatherPart> parts;       // [ranks]
  Mat<const float> own;              // [rows of this part, width]; may be its columns of `all`
  std::span<const int32_t> to_rows;  // the row of `all` of each row of the parts, one part after another; empty: row i
  Mat<float> all;
  bool to_first = false;            // only rank 0 gets the whole
  std::span<float> sent, received;  // room for this part, and for all parts
  std::span<uint64_t> part_bytes;   // [ranks]
  Status Validate() const;
  int64_t rank() const { return group->rank(); }
  // Parts by columns: rows. Parts by rows: kPanels rows of this part, kSlices rows of others.
  CostAmounts Amounts() const;
  Cost Useful(const CostAmounts& n) const;  // bytes: its part once for each that receives it, and what it receives
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return to_first && rank() > 0 ? Mat<const float>() : Mat<const float>(all); }
  void Describe(OpDescription& d) const;
};

// The same for packs of columns, which are cut at whole blocks: fewer bytes than the activations have.
struct GatherPackOp {
  static constexpr std::string_view kName = "gather_pack";
  Communicator* group = nullptr;
  std::span<GatherPart> parts;  // [ranks]; columns of the activations
  ActPack own, all;             // of one format, with the same groups
  std::span<float> received;    // room for all
  std::span<uint64_t> part_bytes;
  Status Validate() const;
  int64_t rank() const { return group->rank(); }
  CostAmounts Amounts() const { return RowAmounts(all.rows); }
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return {}; }
  void Describe(OpDescription& d) const;
};
// Columns of such packs are cut at multiples of this.
constexpr int64_t PackedPiece(const ActFormat& f) {
  return f.amx || f.kind == ActKind::kInt8 ? kInt8Block : f.kind == ActKind::kBF16 ? 2 : 1;
}

template <>
std::span<const Kernel<GatherOp>> Kernels<GatherOp>();
template <>
std::span<const Kernel<GatherPackOp>> Kernels<GatherPackOp>();

}  // namespace tally
