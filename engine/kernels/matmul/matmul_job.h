// What MatMulOp and GatedMatMulOp ask of a matrix kernel, in one form: tiles of two panels.
//
// A task is one pair of panels of one row group. Plain: panels 2p and 2p + 1 of one weight. Gated: panel p of the gate and
// panel p of the up weight, so that both halves of a gated unit meet in one tile.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/matmul/matmul.h"

namespace tally {

struct MatJob {
  ActPack x;
  WeightView w, up;  // `up` only when gated
  WeightView bias, up_bias;
  bool gated = false, add_to_out = false;
  ActivationKind activation = ActivationKind::kNone;
  float swiglu_alpha = 0, swiglu_limit = 0;
  Mat<float> out;
  std::span<const int32_t> out_row;

  explicit MatJob(const MatMulOp& op);
  explicit MatJob(const GatedMatMulOp& op);

  int64_t pairs() const { return gated ? w.panels() : (w.panels() + 1) / 2; }
  int64_t tasks() const { return pairs() * static_cast<int64_t>(x.groups.size()); }
  int64_t max_group_rows() const;
};

// Rows that a group may have for its weights to be decoded on the fly, once per tile, instead of into scratch first.
constexpr int64_t StreamRows(ActKind k) { return ActTile(k); }

// f32 kernels take K in pieces of this many, so that a decoded pair of panels stays in the first- and second-level cache.
inline constexpr int64_t kF32KBlock = 512;

// Targets without an int8 dot product take K in pieces whose decoded panel has this many bytes.
inline constexpr int64_t kInt8PieceBytes = 16384;

size_t MatJobScratchBytes(const MatJob& job);

}  // namespace tally
