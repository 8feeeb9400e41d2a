// SPDX-License-Identifier: Apache-2.0
// Checks and descriptions of rows, shared by the ops on the KV cache.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/kv_store/kv_store.h"

namespace tally {

inline Status CheckRow(const KvRow& row, size_t index, std::span<const KvTable> tables) {
  if (row.table < 0 || static_cast<size_t>(row.table) >= tables.size()) {
    return InternalError("row " + std::to_string(index) + " names table " + std::to_string(row.table) + " of " +
                         std::to_string(tables.size()));
  }
  if (row.position < 0 || row.position / kKvBlock >= tables[row.table].count) {
    return InternalError("row " + std::to_string(index) + " has position " + std::to_string(row.position) +
                         ", its sequence's table holds " + std::to_string(tables[row.table].count * kKvBlock));
  }
  return {};
}

inline Status MissingBlock(size_t row, int64_t block) {
  return InternalError("row " + std::to_string(row) + " needs KV block " + std::to_string(block) + ", which is not allocated");
}

// [table, position] of each row, one after another; if some rows see one another, also [from, until) of each, 0 where it does not.
inline void DescribeRows(std::span<const KvRow> rows, OpDescription& d) {
  std::vector<int64_t> list, spans;
  bool any = false;
  for (const KvRow& r : rows) {
    const bool both_ways = r.until > r.from;
    list.insert(list.end(), {r.table, r.position});
    spans.insert(spans.end(), {both_ways ? r.from : 0, both_ways ? r.until : 0});
    any = any || both_ways;
  }
  d.Set("rows", std::move(list));
  if (any) d.Set("both_ways", std::move(spans));
}

}  // namespace tally
