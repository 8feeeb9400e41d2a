// Attention over a paged KV cache, and the op that fills the cache.
//
// A KV block holds C = kKvBlock absolute positions of every KV head of one layer. Per KV head h of a block, one after the
// other:  K: [C/16][Dp][16] (lane = position), then V: [C][Dp], elements f32 or f16; Dp = head_dim rounded up to 16, the
// padding zero. Blocks are zero-filled when allocated, so masked lanes multiply finite numbers.
//
// Each query handles the blocks in order of position. Per block, over all its C lanes (masked ones give exact zeros):
//   s = (q.k, summed over d in order by fma) * scale; m = max over visible lanes; p = exp(s - m); l = sum p; o = sum p v
// and the running (M, L, O) is rescaled when m exceeds M. So results do not depend on how the prompt was cut, on the other
// rows of the batch or on the threads. Sinks (gpt-oss): L starts as exp(sink - M) with M = sink, O = 0: one more logit whose
// column is dropped.
#pragma once

#include "engine/kernels/op.h"

namespace tally {

inline constexpr int64_t kKvBlock = 128;
enum class KvType : uint8_t { kF32, kF16 };

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
  int32_t table = 0;     // index into `tables`
  int32_t position = 0;
};

// Writes the rows' keys and values (after rope) into their blocks.
struct KvStoreOp {
  static constexpr std::string_view kName = "kv_store";
  Mat<const float> k, v;               // [n, kv_heads * head_dim]
  int64_t kv_heads = 0, head_dim = 0;
  KvType type = KvType::kF32;
  std::span<const KvRow> rows;         // [n]
  std::span<const KvTable> tables;
  Status Validate() const;
  Cost Useful() const;                 // 0 FLOPs; bytes: KV written = 2 n kv_heads head_dim element_bytes
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return {}; }
};

struct AttentionOp {
  static constexpr std::string_view kName = "attention";
  Mat<const float> q;                  // [n, heads * head_dim]
  Mat<float> out;                      // [n, heads * head_dim]
  int64_t heads = 0, kv_heads = 0, head_dim = 0;   // query head h reads KV head h / (heads / kv_heads)
  float scale = 1;
  int64_t window = 0;                  // position j visible to i iff 0 <= i - j < window; 0: all j <= i
  WeightView sinks;                    // [heads] or empty
  KvType type = KvType::kF32;
  std::span<const KvRow> rows;         // [n]; a run of rows of one table with rising positions is handled together
  std::span<const KvTable> tables;
  Status Validate() const;
  // Visible keys v = min(position + 1, window) per row: 4 v head_dim FLOPs a head (attention) with one multiply by the scale
  // per score; softmax: per head v max, v subtracts, v exps, v adds, head_dim divides (sinks: one more exp, max, add, subtract).
  Cost Useful() const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
};

template <> std::span<const Kernel<KvStoreOp>> Kernels<KvStoreOp>();
template <> std::span<const Kernel<AttentionOp>> Kernels<AttentionOp>();

}  // namespace tally
