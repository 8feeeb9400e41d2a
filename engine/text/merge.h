// Merging neighbours best first, O(n log n): the common engine of byte-pair encoding by ranks and by scores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "engine/text/model.h"

namespace tally {

inline constexpr uint32_t kNoMerge = 0xFFFFFFFF;

// `scratch.symbols` is the piece, in order. find(left, right) says what two neighbours give: {key, id}, the lowest key first
// and, among equals, the leftmost; key kNoMerge for nothing. What is left begins at symbol 0 and is linked by `next`.
template <class Find>
void MergeSymbols(ModelScratch& scratch, const Find& find) {
  std::vector<MergeSymbol>& symbols = scratch.symbols;
  std::vector<uint32_t>& keys = scratch.keys;  // of the pair that begins at a symbol, now
  std::vector<uint64_t>& heap = scratch.heap;  // key << 32 | symbol
  const auto pair = [&](int32_t left) -> std::pair<uint32_t, int32_t> {
    const int32_t right = symbols[static_cast<size_t>(left)].next;
    if (right < 0) return {kNoMerge, -1};
    return find(symbols[static_cast<size_t>(left)], symbols[static_cast<size_t>(right)]);
  };
  keys.assign(symbols.size(), kNoMerge);
  heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    keys[i] = pair(static_cast<int32_t>(i)).first;
    if (keys[i] != kNoMerge) heap.push_back(uint64_t{keys[i]} << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](int32_t left) {
    const uint32_t key = pair(left).first;
    keys[static_cast<size_t>(left)] = key;
    if (key == kNoMerge) return;
    heap.push_back(uint64_t{key} << 32 | static_cast<uint32_t>(left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto left = static_cast<int32_t>(top & 0xFFFFFFFF);
    if (keys[static_cast<size_t>(left)] != top >> 32) continue;  // the pair has changed since
    const int32_t merged = pair(left).second;
    MergeSymbol& a = symbols[static_cast<size_t>(left)];
    const int32_t right = a.next;
    a.id = merged;
    a.next = symbols[static_cast<size_t>(right)].next;
    if (a.next >= 0) symbols[static_cast<size_t>(a.next)].prev = left;
    keys[static_cast<size_t>(right)] = kNoMerge;
    refresh(left);
    if (a.prev >= 0) refresh(a.prev);
  }
}

}  // namespace tally
