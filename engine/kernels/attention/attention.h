// SPDX-License-Identifier: Apache-2.0
// Attention over a paged KV cache.
//
// Keys and values lie in blocks of C = kKvBlock positions (kv_layout.h). Masked positions do not enter the arithmetic.
//
// A query processes the blocks in order of position. In each block, over the visible positions:
//   s = q.k * scale
//   with softcap c: s = c tanh(s / c), as c tanh(s (1 / c)) (Gemma 2)
//   with slopes: s = fma(slope, j - i, s) for position j seen from i (ALiBi, Press et al. 2022)
//   m = max s; p = exp(s - m); l = sum p; o = sum p v in order of position
// The cache's type decides the arithmetic of q.k and p.v, for one row and for many alike:
//   f32, f16  f32: acc = fma(x, y, acc), in order of d and of position
//   bf16      q and p are rounded to bf16; pairs of neighbours (d; positions at even and odd) in order: the target's bf16 dot
//             product if it has one (own order within a pair, subnormals flushed), else acc = fma(x1, y1, fma(x0, y0, acc))
//   q8_0      q.k: every 32 elements of q are rounded to int8, scale = max |q| / 127; over blocks of 32 d in order,
//             acc = fma(float(sum_32 q k), k_scale * q_scale, acc). p.v as with bf16, of v rounded to bf16.
// On matrix tiles (OnTiles in attention_internal.h) products are of bf16, summed in f32 in the order of amx_products-inl.h: f16 as sums
// of two bf16, q and p of 16 bits, in three products; bf16, and q8_0 with q, p, k and v rounded to bf16, in one.
//
// Blocks form ranges of kRangeBlocks. A block is merged into its range's (M, L, O):
//   (a, b) = (exp(M - m), 1) if m > M, else (1, exp(m - M));  L = L a + l b, O = O a + o b, M = max(M, m)
// and the ranges likewise, in order, into those of the row. The first block or range initialises (M, L, O); those without visible
// positions are skipped. The result is O / L. It does not depend on how the prompt was cut, on other rows of the batch or on the
// threads.
// Sinks (gpt-oss), one more logit without a value: the row's M starts as the sink, L as exp(sink - M) = 1, O as 0.
#pragma once

#include <array>

#include "engine/base/rows.h"
#include "engine/kernels/kv_store/kv_store.h"
#include "engine/kernels/op.h"

namespace tally {

inline constexpr int64_t kRangeBlocks = 8;

// Memory for the (M, L, O) of ranges, with which few rows are split over positions: [queries][ranges][PartialFloats]. `queries`: the
// most rows times heads. Empty: nothing is split.
struct AttentionPartials {
  float* data = nullptr;
  int64_t queries = 0, ranges = 0;
  static constexpr int64_t PartialFloats(int64_t v_dim) { return KvPadded(v_dim) + 16; }
};

struct AttentionOp {
  static constexpr std::string_view kName = "attention";
  Mat<const float> q;  // [n, heads * k_dim]
  Mat<float> out;      // [n, heads * v_dim]
  int64_t heads = 0;   // query head h reads KV head h / (heads / kv_heads)
  KvLayout layout;
  float scale = 1;
  int64_t window = 0;                     // position j visible to i iff 0 <= i - j < window; 0: all j <= i
  int64_t chunk = 0;                      // position j visible to i iff j <= i and both are in one chunk of so many; 0: no chunks
  BothWays both_ways = BothWays::kWhole;  // what of its KvRow's span a row sees besides
  float softcap = 0;                      // 0: none
  WeightView sinks;                       // [heads] or empty
  std::span<const float> slopes = {};     // [heads] or empty; a constant of the model, not a parameter
  std::span<const KvRow> rows;  // [n]; consecutive rows of one sequence share a tile, fastest if their positions are consecutive
  std::span<const KvTable> tables;
  // Unless it is empty, positions are below partials.ranges * kRangeBlocks * kKvBlock: the pool refuses more than its context.
  AttentionPartials partials = {};
  Status Validate() const;
  // Plain softmax attention, without merging of blocks (which is in Executed). With v visible keys,
  // per row and query head:
  //   attention  2 v (k_dim + v_dim) FLOPs: q.k and p.v, a fused multiply-add for each element, of the types of the layout
  //   softmax    v multiplies by the scale, v max, v subtracts, v adds; special: v exps, v_dim divides by the sum;
  //              with sinks one more max, subtract, add and exp; with a softcap 2 v multiplies and v tanh; with slopes 2 v
  // Bytes: v layout.PositionBytes() of KV read per row, even if a tile of rows reads a block once; q read, out written, the sinks
  // read once.
  Cost Useful(const CostAmounts& n) const;
  CostAmounts Amounts() const;
  void AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<AttentionOp>> Kernels<AttentionOp>();

// Useful FLOPs of class attention by the type in which the kernels that executed them multiply: those of an f16 cache on matrix tiles
// are bf16's, three times.
std::array<double, kAriths> AttentionByType(const Cost& useful, const Cost& executed);

}  // namespace tally
