// SPDX-License-Identifier: Apache-2.0
// Merging neighbours best first, O(n log n): the common engine of byte-pair encoding by ranks and by scores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "engine/text/model.h"

namespace tally {

// `scratch.symbols` is the piece, in order. find(left, right) returns the merge of two neighbours, with key kNoMerge for none. The merge
// of the lowest key is done first, the leftmost among equals. The result is the list from symbol 0 along `next`.
template <class Find>
void MergeSymbols(ModelScratch& scratch, const Find& find) {
  std::vector<MergeSymbol>& symbols = scratch.symbols;
  std::vector<MergePair>& pairs = scratch.pairs;  // the pair that begins at each symbol
  std::vector<uint64_t>& heap = scratch.heap;     // key << 32 | symbol
  const auto refresh = [&](size_t left) {
    const int32_t right = symbols[left].next;
    pairs[left] = right < 0 ? MergePair{} : find(symbols[left], symbols[static_cast<size_t>(right)]);
    if (pairs[left].key != kNoMerge) heap.push_back(uint64_t{pairs[left].key} << 32 | left);
    return pairs[left].key != kNoMerge;
  };
  const auto refresh_heap = [&](size_t left) {
    if (refresh(left)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  pairs.resize(symbols.size());
  heap.clear();
  for (size_t i = 0; i < symbols.size(); ++i) refresh(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const size_t left = top & 0xFFFFFFFF;
    if (pairs[left].key != top >> 32) continue;  // the pair has changed since
    MergeSymbol& a = symbols[left];
    const auto right = static_cast<size_t>(a.next);
    a.id = pairs[left].id;
    a.next = symbols[right].next;
    if (a.next >= 0) symbols[static_cast<size_t>(a.next)].prev = static_cast<int32_t>(left);
    pairs[right] = {};
    refresh_heap(left);
    if (a.prev >= 0) refresh_heap(static_cast<size_t>(a.prev));
  }
}

}  // namespace tally
