// SPDX-License-Identifier: Apache-2.0
// The blocks of a sequence store: taking, clearing and copying them, and the check of their counts.
#include <algorithm>
#include <cstring>
#include <string>

#include "engine/base/checked.h"
#include "engine/graph/sequence_store.h"

namespace tally {
namespace {

constexpr size_t kPieceBytes = size_t{128} << 10;  // worth a task of its own

}  // namespace

// Calls f(block, offset, bytes) for pieces that cover `bytes` of each of `blocks` blocks, on the team if there are several.
template <class F>
void SequenceStore::InPieces(size_t blocks, size_t bytes, const F& f) {
  const size_t of_block = DivCeil(bytes, kPieceBytes);
  const int64_t pieces = static_cast<int64_t>(blocks * of_block);
  auto run = [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t offset = static_cast<size_t>(i) % of_block * kPieceBytes;
      f(static_cast<size_t>(i) / of_block, offset, std::min(kPieceBytes, bytes - offset));
    }
  };
  if (team_ != nullptr && pieces > 1) return team_->Run(pieces, 1, run);
  run(0, 0, pieces);
}

// Clears the layer's part of the blocks that are new to it.
void SequenceStore::ClearNew(Layer& layer) {
  if (layer.dirty.empty()) return;
  InPieces(layer.dirty.size(), layer.bytes, [&](size_t i, size_t offset, size_t bytes) {
    std::memset(Block(layer.group, layer.dirty[i]) + layer.offset + offset, 0, bytes);
  });
  layer.dirty.clear();
}

void SequenceStore::ClearAllNew() {
  for (Layer& layer : layers_) ClearNew(layer);
}

std::span<const KvTable> SequenceStore::Tables(int32_t layer) {
  ClearNew(layers_[static_cast<size_t>(layer)]);
  return layers_[static_cast<size_t>(layer)].tables;
}

// A block with one reference and any contents. There must be room for it.
BlockPool::Taken SequenceStore::Take(size_t group) {
  while (pool_->MustRelease(group)) Forget(pool_->Oldest().group, pool_->Oldest().id);
  return pool_->Take(group);
}

// A block of zeros. A layer's part is cleared when the layer's tables are asked for.
int32_t SequenceStore::TakeEmpty(size_t group) {
  const BlockPool::Taken taken = Take(group);
  if (!taken.zero) {
    for (const size_t l : groups_[group].layers) layers_[l].dirty.push_back(taken.id);
  }
  return taken.id;
}

// A block with the contents of another.
int32_t SequenceStore::TakeCopy(size_t group, int32_t id) {
  ClearAllNew();
  const int32_t copy = Take(group).id;
  const uint8_t* const from = Block(group, id);
  uint8_t* const to = Block(group, copy);
  InPieces(1, group == state_group() ? state_bytes_ : groups_[group].bytes,
           [&](size_t, size_t offset, size_t bytes) { std::memcpy(to + offset, from + offset, bytes); });
  return copy;
}

void SequenceStore::Drop(size_t group, int32_t id) {
  if (!pool_->Drop(group, id) || group == state_group()) return;
  for (const size_t l : groups_[group].layers) {  // after a step that failed before this layer
    if (!layers_[l].dirty.empty()) std::erase(layers_[l].dirty, id);
  }
}

Status SequenceStore::Verify() const {
  uint64_t in_use = 0;
  if (recurrent()) {
    std::vector<int32_t> found(static_cast<size_t>(pool_->blocks(state_group())));
    for (const Sequence& s : sequences_) {
      if (s.live && (StatesAt(s, s.length) != s.states.size() || s.states.empty())) {
        return InternalError("a sequence of " + std::to_string(s.length) + " positions has no state to go on from");
      }
      for (const State& state : s.states) {
        if (state.id >= 0) ++found[static_cast<size_t>(state.id)];
      }
    }
    for (size_t id = 0; id < found.size(); ++id) {
      in_use += found[id] > 0 ? state_stride_ : 0;
      if (pool_->references(state_group(), static_cast<int32_t>(id)) == found[id]) continue;
      return InternalError("state " + std::to_string(id) + ": references do not add up");
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int32_t> found(static_cast<size_t>(pool_->blocks(g)));  // references, by block
    for (const Sequence& s : sequences_) {
      if (!s.live) continue;
      for (size_t b = s.held[g].first; b < s.held[g].ids.size(); ++b) {
        if (s.held[g].ids[b] >= 0) ++found[static_cast<size_t>(s.held[g].ids[b])];
        if (s.held[g].ids[b] < 0 && !groups_[g].rows) return InternalError("a sequence lacks a block");
      }
    }
    for (size_t id = 0; id < found.size(); ++id) {
      in_use += found[id] > 0 ? groups_[g].stride : 0;
      const int32_t counted = pool_->references(g, static_cast<int32_t>(id));
      if (counted == found[id]) continue;
      return InternalError("group " + std::to_string(g) + ", block " + std::to_string(id) + ": " + std::to_string(counted) +
                           " references counted, " + std::to_string(found[id]) + " held");
    }
  }
  if (in_use != pool_->in_use()) {
    return InternalError(std::to_string(pool_->in_use()) + " bytes counted in use, " + std::to_string(in_use) + " held");
  }
  if (in_use > pool_->committed() || pool_->committed() > pool_->budget()) {
    return InternalError(std::to_string(in_use) + " bytes in use, " + std::to_string(pool_->committed()) +
                         " with pages, budget " + std::to_string(pool_->budget()));
  }
  return VerifyIndex();
}

}  // namespace tally
