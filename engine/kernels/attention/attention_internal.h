// SPDX-License-Identifier: Apache-2.0
// Shared by the reference and the Highway kernels of attention: visible positions of a row, and tasks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/kernels/attention/attention.h"

namespace tally {

// Positions of a sequence, or lanes of a block: [begin, end).
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return begin >= end; }
  int64_t size() const { return end - begin; }
};

// One range: a row is in its own span.
inline PositionRange VisiblePositions(const AttentionOp& op, const KvRow& row) {
  const int64_t position = row.position;
  int64_t begin = op.window > 0 ? std::max<int64_t>(0, position - op.window + 1) : 0;
  if (op.chunk > 0) begin = std::max(begin, position / op.chunk * op.chunk);
  if (row.until <= row.from || op.both_ways == BothWays::kNot) return {begin, position + 1};
  if (op.both_ways == BothWays::kWhole) begin = std::min<int64_t>(begin, row.from);
  return {begin, std::max<int64_t>(position + 1, row.until)};
}

// The part of `r` in [begin, begin + count), relative to `begin`.
inline PositionRange Within(PositionRange r, int64_t begin, int64_t count) {
  return {std::max<int64_t>(r.begin - begin, 0), std::min(r.end - begin, count)};
}

inline constexpr int64_t kRangePositions = kRangeBlocks * kKvBlock;
// Pieces of `size` positions that a range touches.
inline int64_t PiecesTouched(PositionRange r, int64_t size) { return (r.end - 1) / size - r.begin / size + 1; }

// A task of the Highway kernel is a tile of up to TileRows rows, and up to kMostTaskHeads query heads
// of one KV head. Task t is tile t / HeadTasks and head task t % HeadTasks. Only the first and last row of a tile are compared, so
// that a tile may contain rows of other sequences; AttendRows splits it.
inline constexpr int64_t kTileQueries = 64, kMostTaskHeads = 8;
// On matrix tiles (attention_amx-inl.h) there are kAmxTileQueries, or twice as many where kFewTasks tasks remain, since each tile splits
// the keys and values that it reads. They are multiplied kAmxChunk at a time.
inline constexpr int64_t kAmxTileQueries = 128, kAmxChunk = 32, kFewTasks = 64;
// Positions, or elements of d, of a product of tiles, and products for one of an f16 cache's.
inline constexpr int64_t kTileStep = 32, kSplitProducts = 3;
// Whether keys and values are multiplied by matrix tiles, for one row as for many.
inline bool OnTiles(const KvLayout& l) {
  return l.type != KvType::kF32 && !l.shared && l.k_dim % 32 == 0 && l.v_dim % 16 == 0 && HwyTargetHasAmx();
}

inline int64_t HeadsPerKvHead(const AttentionOp& op) { return op.heads / op.layout.kv_heads; }
// Tasks that share the query heads of a KV head, as evenly as possible.
inline int64_t TasksPerKvHead(const AttentionOp& op) { return (HeadsPerKvHead(op) + kMostTaskHeads - 1) / kMostTaskHeads; }
inline int64_t HeadTasks(const AttentionOp& op) { return op.layout.kv_heads * TasksPerKvHead(op); }
inline int64_t MostTaskHeads(const AttentionOp& op) { return (HeadsPerKvHead(op) + TasksPerKvHead(op) - 1) / TasksPerKvHead(op); }
inline int64_t TileRows(const AttentionOp& op) {
  int64_t queries = kTileQueries;
  if (OnTiles(op.layout)) {
    queries = kAmxTileQueries;
    if (static_cast<int64_t>(op.rows.size()) * op.heads >= kFewTasks * 2 * queries) queries *= 2;
  }
  return std::max<int64_t>(1, queries / MostTaskHeads(op));
}

// The end of the tile that starts at row `begin`.
inline int64_t TileEnd(std::span<const KvRow> rows, int64_t begin, int64_t tile_rows) {
  const int64_t end = std::min(begin + tile_rows, static_cast<int64_t>(rows.size()));
  if (rows[end - 1].table == rows[begin].table) return end;
  int64_t e = begin + 1;
  while (rows[e].table == rows[begin].table) ++e;
  return e;
}

// Few tasks are split into slices over ranges of positions, so that there are at least so many. It does not change results, as ranges
// are merged one by one in any case.
inline int64_t SlicesOf(const AttentionOp& op, int64_t tiles) {
  for (const int64_t seen : {op.window, op.chunk}) {
    if (seen > 0 && seen <= kRangePositions) return 1;  // a row sees two ranges at most
  }
  const int64_t tasks = tiles * HeadTasks(op), queries = static_cast<int64_t>(op.rows.size()) * op.heads;
  if (op.partials.data == nullptr || tasks == 0 || tasks >= kFewTasks || queries > op.partials.queries) return 1;
  return std::min((kFewTasks + tasks - 1) / tasks, op.partials.ranges);
}
// The maximum, the sum and, from element 16 on, O of a range.
inline float* PartialOf(const AttentionOp& op, int64_t row, int64_t head, int64_t range) {
  return op.partials.data +
         ((row * op.heads + head) * op.partials.ranges + range) * AttentionPartials::PartialFloats(op.layout.v_dim);
}

TaskPlan PlanAttentionHwy(const AttentionOp& op, int threads);
void RunAttentionHwy(const AttentionOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);
Cost ExecutedAttentionHwy(const AttentionOp& op, const CostAmounts& n);

}  // namespace tally
