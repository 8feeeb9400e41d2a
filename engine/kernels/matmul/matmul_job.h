// SPDX-License-Identifier: Apache-2.0
// MatJob: the common form of MatMulOp and GatedMatMulOp for matrix kernels.
//
// A task is one pair of panels of one row group. Plain: panels 2p and 2p + 1 of one weight. Gated: panel p of the gate and panel
// p of the up weight, so that one tile has both values of a gated output.
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

// Largest group that decodes weights on the fly, once for each tile. Larger groups decode into scratch first, as do all groups of
// quantised weights with f32 activations.
constexpr int64_t StreamRows(ActKind k) { return k == ActKind::kInt8 ? 2 * ActTile(k) : ActTile(k); }

// f32 kernels cut K into pieces of this many, so that a widened pair of panels stays in the second-level cache.
inline constexpr int64_t kF32KBlock = 512;

// AMX: pairs of panels of a group that pass strips of activations together, and bytes of a pair's piece of weights.
inline constexpr int64_t kAmxGroupPairs = 8;
inline constexpr size_t kAmxPieceBytes = 16384;

// The same for int8: the most pairs whose decoded panels stay in the second-level cache, and the pairs of a job.
inline constexpr int64_t kAmxInt8GroupPairs = 4;
int64_t AmxInt8Pairs(const MatJob& job);

// BFMMLA: bytes of a piece of two panels that is laid out for it (bf16_arm-inl.h).
inline constexpr int64_t kArmBf16PieceBytes = 32768;

// Targets without an int8 dot product cut K into pieces whose decoded panel has this many bytes.
inline constexpr int64_t kInt8PieceBytes = 16384;

size_t MatJobScratchBytes(const MatJob& job);

}  // namespace tally
