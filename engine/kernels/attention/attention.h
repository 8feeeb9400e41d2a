// Attention over a paged KV cache, and the op that fills the cache.
//
// A KV block holds C = kKvBlock absolute positions of every KV head of one layer. Per KV head h of a block, one after the
// other:  K: [C/16][Dp][16] (lane = position), then V: [C][Dp], elements f32 or f16; Dp = head_dim rounded up to 16, the
// padding zero. Blocks are zero-filled when allocated; the kernels here never let a masked position into the arithmetic.
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

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"

namespace tally {

inline constexpr int64_t kKvBlock = 128;

constexpr int64_t KvHeadDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
constexpr size_t KvElementBytes(KvType t) { return t == KvType::kF32 ? 4 : 2; }
// Bytes of one KV head's share of a block, and of a block.
constexpr size_t KvHeadBytes(KvType t, int64_t head_dim) { return 2 * kKvBlock * KvHeadDim(head_dim) * KvElementBytes(t); }
constexpr size_t KvBlockBytes(KvType t, int64_t kv_heads, int64_t head_dim) { return kv_heads * KvHeadBytes(t, head_dim); }

// One sequence's blocks of one layer: blocks[p / C] holds position p; entries below the window may be null.
struct KvTable {
  uint8_t* const* blocks = nullptr;
  int64_t count = 0;
};

// One row of a batch.
struct KvRow {
  int32_t table = 0;  // index into `tables`
  int32_t position = 0;
};

// Writes the rows' keys and values (after rope) into their blocks; f16 rounds to nearest even. No two rows may share a
// table and position.
struct KvStoreOp {
  static constexpr std::string_view kName = "kv_store";
  Mat<const float> k, v;  // [n, kv_heads * head_dim]
  int64_t kv_heads = 0, head_dim = 0;
  KvType type = KvType::kF32;
  std::span<const KvRow> rows;  // [n]
  std::span<const KvTable> tables;
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(static_cast<int64_t>(rows.size())); }
  Cost Useful(const CostAmounts& n) const;  // 0 FLOPs; bytes: KV written = 2 n kv_heads head_dim element_bytes
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return {}; }
  void Describe(OpDescription& d) const;
};

struct AttentionOp {
  static constexpr std::string_view kName = "attention";
  Mat<const float> q;                             // [n, heads * head_dim]
  Mat<float> out;                                 // [n, heads * head_dim]
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // query head h reads KV head h / (heads / kv_heads)
  float scale = 1;
  int64_t window = 0;  // position j visible to i iff 0 <= i - j < window; 0: all j <= i
  WeightView sinks;    // [heads] or empty
  KvType type = KvType::kF32;
  std::span<const KvRow> rows;  // [n]; a run of rows of one table is handled together, fastest if positions rise by 1
  std::span<const KvTable> tables;
  Status Validate() const;
  // Plain softmax attention, a sum over rows of a function of the position alone: blocks and their joining are not in it
  // (they are in Executed). With v = min(position + 1, window) visible keys, per row and query head:
  //   attention  4 v head_dim FLOPs: q.k and p.v, each v head_dim fused multiply-adds from 0
  //   softmax    v multiplies by the scale, v max, v subtracts, v adds; special: v exps, head_dim divides by the sum;
  //              with sinks one more max, subtract, add and exp
  // Bytes: KV read = 2 v kv_heads head_dim element_bytes per row (each row is charged its own reading, also where a tile of
  // rows shares a block in cache), q read, out written, the sinks read once.
  Cost Useful(const CostAmounts& n) const;
  CostAmounts Amounts() const { return Amounts({}, {}); }
  // Of the rows of that phase; of all where `phases` is empty. phases[i]: row i's.
  CostAmounts Amounts(std::span<const Phase> phases, Phase phase) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<KvStoreOp>> Kernels<KvStoreOp>();
template <>
std::span<const Kernel<AttentionOp>> Kernels<AttentionOp>();

}  // namespace tally
