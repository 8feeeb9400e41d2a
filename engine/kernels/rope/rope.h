// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021): pair i = (a, b) of a head at position p is rotated by the angle p * inv_freq[i]:
//   a' = a cos - b sin, b' = b cos + a sin
// kRotateHalf pairs (i, i + dim/2); kAdjacentPair pairs (2i, 2i + 1). Dimensions from `dim` on are unchanged.
// M-RoPE (Qwen2-VL, Wang et al. 2024): a row has a time, a height and a width, and each frequency turns by one of them.
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"

namespace tally {

// Computes cos and sin of every row's angles, times `magnitude`, once per step. Angles are f32 products, as in published code.
struct RopeTableOp {
  static constexpr std::string_view kName = "rope_table";
  std::span<const int32_t> positions;  // [n]
  std::span<const float> inv_freq;     // [dim/2], scaling applied (rope_freqs.h); a buffer, not a parameter
  float magnitude = 1;                 // YaRN's attention factor
  Mat<float> cos, sin;                 // [n, dim/2]
  // M-RoPE: the heights and widths of the rows, [n], whose times are `positions`; and what a frequency turns by, [dim/2]: 0 time, 1 height,
  // 2 width. Otherwise empty.
  std::span<const int32_t> heights = {}, widths = {};
  std::span<const uint8_t> axes = {};
  int32_t Position(size_t row, size_t axis) const { return axis == 0 ? positions[row] : axis == 1 ? heights[row] : widths[row]; }
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(static_cast<int64_t>(positions.size())); }
  Cost Useful(const CostAmounts& n) const;  // per angle: one multiply for the angle, two for the magnitude; special: sin and cos
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return cos; }
  void Describe(OpDescription& d) const;
};

struct RopeOp {
  static constexpr std::string_view kName = "rope";
  RopeStyle style = RopeStyle::kRotateHalf;  // kNone: what would rotate is copied to `out`, without cos and sin
  Mat<float> x;  // [n, (heads - 1) * head_dim + dim or more columns]: head h begins at column h * head_dim
  int64_t heads = 0, head_dim = 0, dim = 0;
  Mat<const float> cos, sin;  // [n, dim/2]
  Mat<float> out = {};        // empty: x; else only what rotates is written
  int64_t out_head_dim = 0;   // columns from a head of `out` to the next; unused without `out`
  Mat<float> to() const { return out.empty() ? x : out; }
  int64_t to_head_dim() const { return out.empty() ? head_dim : out_head_dim; }
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(x.rows); }
  Cost Useful(const CostAmounts& n) const;  // 6 FLOPs per pair: 3 dim per row and head; none without a style
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return to(); }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<RopeTableOp>> Kernels<RopeTableOp>();
template <>
std::span<const Kernel<RopeOp>> Kernels<RopeOp>();

void RunRopeTableHwy(const RopeTableOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);
void RunRopeHwy(const RopeOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
