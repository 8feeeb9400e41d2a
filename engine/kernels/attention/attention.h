// Attention over a paged KV cache.
//
// Keys and values lie in blocks of C = kKvBlock positions (kv_layout.h). Blocks are zero-filled when allocated; the kernels here
// never let a masked position into the arithmetic.
//
// Each query handles the blocks in order of position, over the lanes of the block that it sees (the others count as p = 0;
// a block without visible lanes changes nothing):
//   s = (q.k, summed over d in order by fma) * scale; m = max s; p = exp(s - m); l = sum p; o = sum p v in order of position
// and joins the block to the running (M, L, O):
//   (a, b) = (exp(M - m), 1) if m > M, else (1, exp(m - M));  L = L a + l b, O = O a + o b, M = max(M, m)
// the first block being taken as it is. Finally out = O / L. So results do not depend on how the prompt was cut, on the
// other rows of the batch or on the threads, and blocks could be computed apart and joined later. Sinks (gpt-oss): M starts
// as the sink and L as exp(sink - M) = 1, with O = 0: one more logit whose column is dropped.
#pragma once

#include "engine/kernels/kv_store/kv_store.h"
#include "engine/kernels/op.h"

namespace tally {

struct AttentionOp {
  static constexpr std::string_view kName = "attention";
  Mat<const float> q;  // [n, heads * k_dim]
  Mat<float> out;      // [n, heads * v_dim]
  int64_t heads = 0;   // query head h reads KV head h / (heads / kv_heads)
  KvLayout layout;
  float scale = 1;
  int64_t window = 0;           // position j visible to i iff 0 <= i - j < window; 0: all j <= i
  WeightView sinks;             // [heads] or empty
  std::span<const KvRow> rows;  // [n]; a run of rows of one table is handled together, fastest if positions rise by 1
  std::span<const KvTable> tables;
  Status Validate() const;
  // Plain softmax attention, a sum over rows of a function of the position alone: blocks and their joining are not in it
  // (they are in Executed). With v = min(position + 1, window) visible keys, per row and query head:
  //   attention  2 v (k_dim + v_dim) FLOPs: q.k and p.v, a fused multiply-add from 0 for each element
  //   softmax    v multiplies by the scale, v max, v subtracts, v adds; special: v exps, v_dim divides by the sum;
  //              with sinks one more max, subtract, add and exp
  // Bytes: KV read = v layout.PositionBytes() per row (each row is charged its own reading, also where a tile of rows shares a
  // block in cache), q read, out written, the sinks read once.
  Cost Useful(const CostAmounts& n) const;
  CostAmounts Amounts() const { return Amounts({}, {}); }
  // Of the rows of that phase; of all where `phases` is empty. phases[i]: row i's.
  CostAmounts Amounts(std::span<const Phase> phases, Phase phase) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<AttentionOp>> Kernels<AttentionOp>();

}  // namespace tally
