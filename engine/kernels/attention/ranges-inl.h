// SPDX-License-Identifier: Apache-2.0
// The blocks and ranges of positions of a tile of queries: what every way of multiplying shares.
#if defined(TALLY_ATTENTION_RANGES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_ATTENTION_RANGES_INL_H
#undef TALLY_ATTENTION_RANGES_INL_H
#else
#define TALLY_ATTENTION_RANGES_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "engine/kernels/attention/attention_scratch.h"
#include "engine/kernels/attention/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// Query heads [first, first + count) of one KV head, and slice `slice` of `slices` of the positions.
struct TaskShare {
  int64_t kv_head, first, count;
  int64_t slice, slices;
};

// M and L before the first range.
HWY_INLINE void StartSums(const AttentionOp& op, int64_t head, float& max, float& sum) {
  max = op.sinks.empty() ? kNoMaximum : op.sinks.Vector()[head];
  sum = op.sinks.empty() ? 0.0f : 1.0f;  // exp(M - M)
}

// out = O / L; changes `total`.
HWY_INLINE void FinishOutput(const AttentionOp& op, int64_t row, int64_t head, float sum, float* total) {
  const VF divisor = hn::Set(kF32, sum);
  for (int64_t d = 0; d < KvPadded(op.layout.v_dim); d += kLanes) {
    hn::StoreU(hn::Div(hn::LoadU(kF32, total + d), divisor), kF32, total + d);
  }
  std::memcpy(op.out.Row(row) + head * op.layout.v_dim, total, static_cast<size_t>(op.layout.v_dim) * sizeof(float));
}

// Rows [row, row + rows), all of one table. Who derives from it multiplies a block and merges it into the range's sums.
class RangeRun {
 protected:
  RangeRun(const AttentionOp& op, int64_t row, int64_t rows, const TaskShare& share, int64_t share_bytes,
           const AttentionScratch& work)
      : op_(op),
        row_(row),
        rows_(rows),
        first_head_(share.first),
        slice_(share.slice),
        slices_(share.slices),
        w_(work),
        layout_(op.layout),
        share_bytes_(share_bytes),
        share_offset_(share.kv_head * share_bytes),
        k_dim_(op.layout.k_dim),
        v_padded_(KvPadded(op.layout.v_dim)),
        group_(share.count),
        queries_(rows * group_) {
    for (int64_t r = 0; r < rows_; ++r) {
      const PositionRange v = Visible(r);
      any_ = {std::min(any_.begin, v.begin), std::max(any_.end, v.end)};
      every_ = {std::max(every_.begin, v.begin), std::min(every_.end, v.end)};
    }
  }

  // store_query(q, i): keeps the k_dim elements of query i. block(): base_, share_ and next_ are of the block.
  template <class StoreQuery, class B>
  HWY_INLINE void RunRanges(const StoreQuery& store_query, const B& block) {
    const int64_t from = any_.begin / kRangePositions, ranges = PiecesTouched(any_, kRangePositions);
    const int64_t first = from + ranges * slice_ / slices_, end = from + ranges * (slice_ + 1) / slices_;
    if (slices_ > 1 && first == end) return;
    Start(store_query);
    for (int64_t range = first; range < end; ++range) {
      Range(range, block);
      slices_ > 1 ? Leave(range) : Merge(range);
    }
    if (slices_ > 1) return;
    for (int64_t i = 0; i < queries_; ++i)
      FinishOutput(op_, row_ + i / group_, first_head_ + i % group_, w_.all_sum[i], At(w_.all_o, i));
  }

  // A share that is read after the current block; null: not known.
  struct Following {
    const uint8_t* share = nullptr;
    int64_t block = 0;
  };

  float* At(float* outputs, int64_t query) const { return outputs + query * v_padded_; }
  PositionRange Visible(int64_t r) const { return VisiblePositions(op_, op_.rows[row_ + r]); }
  // Lanes of the current block that row r sees.
  PositionRange Lanes(int64_t r) const { return Within(Visible(r), base_, kKvBlock); }

  // The bytes `distance` after offset `at` of the share, which the next block's share follows.
  HWY_INLINE Ahead AheadOf(size_t at, int64_t distance) const {
    const int64_t to = static_cast<int64_t>(at) + distance;
    if (to >= share_bytes_) return {next_ + (to - share_bytes_), next_, INT64_MAX};
    return {share_ + to, next_, share_bytes_ - to};
  }

  const AttentionOp& op_;
  const int64_t row_, rows_, first_head_, slice_, slices_;
  const AttentionScratch& w_;
  const KvLayout layout_;
  const int64_t share_bytes_, share_offset_;  // of the KV head's share in a block
  const int64_t k_dim_, v_padded_;
  const int64_t group_, queries_;                     // query heads; rows * group
  PositionRange any_{INT64_MAX, 0};                   // positions that some row sees
  PositionRange every_{0, INT64_MAX};                 // positions that every row sees
  int64_t base_ = 0;                                  // first position of the current block
  const uint8_t *share_ = nullptr, *next_ = nullptr;  // of the current block, and of the next one
  Following following_{};

 private:
  bool InRange(int64_t range, int64_t query) const {
    return !Within(Visible(query / group_), range * kRangePositions, kRangePositions).empty();
  }
  template <class StoreQuery>
  HWY_INLINE void Start(const StoreQuery& store_query) {
    for (int64_t i = 0; i < queries_; ++i) {
      const int64_t head = first_head_ + i % group_;
      store_query(op_.q.Row(row_ + i / group_) + head * k_dim_, i);
      StartSums(op_, head, w_.all_max[i], w_.all_sum[i]);
    }
    std::memset(w_.all_o, 0, static_cast<size_t>(queries_ * v_padded_) * sizeof(float));
  }

  template <class B>
  HWY_INLINE void Range(int64_t range, const B& block_of) {
    std::fill_n(w_.range_max, queries_, kNoMaximum);
    std::fill_n(w_.range_sum, queries_, 0.0f);
    std::memset(w_.range_o, 0, static_cast<size_t>(queries_ * v_padded_) * sizeof(float));
    const KvTable& table = op_.tables[op_.rows[row_].table];
    const int64_t end = std::min((range + 1) * kRangeBlocks, (any_.end + kKvBlock - 1) / kKvBlock);
    for (int64_t block = std::max(range * kRangeBlocks, any_.begin / kKvBlock); block < end; ++block) {
      base_ = block * kKvBlock;
      if (!AnyRowSees()) continue;  // between the ranges of two rows; the block may have been freed
      share_ = table.blocks[block] + share_offset_;
      const uint8_t* next = (block + 1) * kKvBlock < any_.end ? table.blocks[block + 1] : nullptr;
      next_ = next != nullptr ? next + share_offset_ : share_;
      following_ = next != nullptr ? Following{next_, block + 1} : NextHead(table);
      block_of();
    }
  }
  void Merge(int64_t range) {
    MergeSums(queries_, w_.range_max, w_.range_sum, w_.all_max, w_.all_sum, w_.a, w_.b);
    for (int64_t i = 0; i < queries_; ++i) {
      if (InRange(range, i)) MergeOutputs(v_padded_, At(w_.range_o, i), w_.a[i], w_.b[i], At(w_.all_o, i));
    }
  }
  void Leave(int64_t range) {
    for (int64_t i = 0; i < queries_; ++i) {
      if (!InRange(range, i)) continue;
      float* partial = PartialOf(op_, row_ + i / group_, first_head_ + i % group_, range);
      partial[0] = w_.range_max[i];
      partial[1] = w_.range_sum[i];
      std::memcpy(partial + 16, At(w_.range_o, i), static_cast<size_t>(v_padded_) * sizeof(float));
    }
  }
  // The first block of the next KV head, which the thread's next task reads.
  Following NextHead(const KvTable& table) const {
    const int64_t block = any_.begin / kKvBlock;
    const uint8_t* const first = table.blocks[block];
    if (share_offset_ / share_bytes_ + 1 == layout_.kv_heads || group_ < HeadsPerKvHead(op_) || slices_ > 1) return {};
    return first != nullptr ? Following{first + share_offset_ + share_bytes_, block} : Following();
  }
  bool AnyRowSees() const {
    for (int64_t r = 0; r < rows_; ++r) {
      if (!Lanes(r).empty()) return true;
    }
    return false;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
