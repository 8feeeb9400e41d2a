// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/kv_pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "engine/base/checked.h"

namespace tally {
namespace {

__extension__ typedef unsigned __int128 Wide;

// a * b / c without overflow on the way; UINT64_MAX where the result overflows.
uint64_t Scaled(uint64_t a, uint64_t b, uint64_t c, bool up) {
  return static_cast<uint64_t>(std::min<Wide>((Wide{a} * b + (up ? c - 1 : 0)) / c, UINT64_MAX));
}

}  // namespace

uint64_t KvPool::Group::bytes() const { return SaturatingMul(static_cast<uint64_t>(blocks), stride); }

// The first block that the next position of a sequence of `length` sees; it sees positions from length - window + 1 on.
int64_t KvPool::Group::FirstNeeded(int64_t length) const {
  return window > 0 ? std::max<int64_t>(0, length - window + 1) / kKvBlock : 0;
}

// The first block that is kept: one more than is needed, for rolling back.
int64_t KvPool::Group::FirstKept(int64_t length) const { return std::max<int64_t>(0, FirstNeeded(length) - 1); }

// A block with one reference: zero, or with the bytes of another. There must be one available.
int32_t KvPool::Group::Take(const uint8_t* copy_of) {
  int32_t id = static_cast<int32_t>(references.size());
  const bool fresh = id < blocks;  // memory that has never been written is zero
  if (fresh) {
    references.push_back(1);
  } else {
    id = free.back();
    free.pop_back();
    references[static_cast<size_t>(id)] = 1;
  }
  if (copy_of != nullptr) {
    std::memcpy(Block(id), copy_of, stride);
  } else if (!fresh) {
    std::memset(Block(id), 0, stride);
  }
  return id;
}

void KvPool::Group::Drop(int32_t id) {
  if (--references[static_cast<size_t>(id)] == 0) free.push_back(id);
}

std::vector<KvPool::Group> KvPool::MakeGroups(std::span<const KvLayerSpec> layers, const KvPoolSize& size) {
  std::vector<Group> groups;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const int32_t window = layers[layer].window;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.window == window; });
    if (group == groups.end()) {
      group = groups.emplace(group);
      group->window = window;
    }
    group->layers.push_back(layer);
    group->stride += layers[layer].layout.BlockBytes();
  }
  uint64_t sequence_bytes = 0;  // of full context
  for (Group& g : groups) {
    // A sequence holds its window, the block kept for rolling back and the rows of a batch, wherever they begin in a block.
    const int64_t whole = BlocksFor(size.context), windowed = BlocksFor(int64_t{g.window} + kKvBlock + size.max_batch) + 1;
    g.needs = g.window > 0 ? std::min(whole, windowed) : whole;
    sequence_bytes = SaturatingAdd(sequence_bytes, SaturatingMul(static_cast<uint64_t>(g.needs), g.stride));
  }
  for (Group& g : groups) {
    const uint64_t needs = static_cast<uint64_t>(g.needs);
    const uint64_t blocks = size.bytes == 0 ? needs * static_cast<uint64_t>(size.sequences)
                                            : Scaled(size.bytes, needs, std::max<uint64_t>(1, sequence_bytes), false);
    g.blocks = static_cast<int64_t>(std::min<uint64_t>(blocks, std::numeric_limits<int64_t>::max()));
  }
  return groups;
}

Status KvPool::CheckGroups(std::span<const Group> groups, const KvPoolSize& size) {
  uint64_t sequence_bytes = 0, least = 0;
  for (const Group& g : groups) {
    if (g.bytes() == UINT64_MAX || g.blocks > std::numeric_limits<int32_t>::max()) {
      return BadInput("a KV cache of " + std::to_string(size.sequences) + " sequences of " + std::to_string(size.context) +
                      " positions" + (size.bytes > 0 ? " in " + std::to_string(size.bytes) + " bytes" : "") +
                      " is more than any machine has room for");
    }
    sequence_bytes = SaturatingAdd(sequence_bytes, SaturatingMul(static_cast<uint64_t>(g.needs), g.stride));
  }
  // A group's share is whole blocks of bytes * needs / sequence_bytes; each must hold the first positions of a sequence.
  const int64_t first = BlocksFor(std::min(size.max_batch, size.context));
  bool fits = true;
  for (const Group& g : groups) {
    fits = fits && g.blocks >= first;
    if (g.needs > 0) {
      least = std::max(least, Scaled(static_cast<uint64_t>(first), sequence_bytes, static_cast<uint64_t>(g.needs), true));
    }
  }
  if (fits) return {};
  return BadInput("a KV cache of " + std::to_string(size.bytes) + " bytes has no room for one batch of " +
                  std::to_string(std::min(size.max_batch, size.context)) + " positions: expected at least " +
                  std::to_string(least) + " bytes");
}

Status KvPool::Check(std::span<const KvLayerSpec> layers, const KvPoolSize& size) {
  return CheckGroups(MakeGroups(layers, size), size);
}

uint64_t KvPool::PlanBytes(std::span<const KvLayerSpec> layers, const KvPoolSize& size) {
  uint64_t bytes = 0;
  for (const Group& g : MakeGroups(layers, size)) bytes = SaturatingAdd(bytes, g.bytes());
  return bytes;
}

Result<std::unique_ptr<KvPool>> KvPool::Create(std::span<const KvLayerSpec> layers, const KvPoolSize& size) {
  auto pool = std::make_unique<KvPool>();
  pool->size_ = size;
  pool->groups_ = MakeGroups(layers, size);
  pool->layers_.resize(layers.size());
  TALLY_RETURN_IF_ERROR(CheckGroups(pool->groups_, size));
  for (Group& group : pool->groups_) {
    TALLY_ASSIGN_OR_RETURN(group.pool, AnonymousMemory::Allocate(group.bytes(), true));
    size_t offset = 0;
    for (const size_t layer : group.layers) {
      pool->layers_[layer].layout = layers[layer].layout;
      pool->layers_[layer].offset = offset;
      offset += layers[layer].layout.BlockBytes();
    }
  }
  return pool;
}

Result<int32_t> KvPool::NewSequence() {
  size_t id = 0;
  while (id < sequences_.size() && sequences_[id].live) ++id;
  if (id >= static_cast<size_t>(size_.sequences)) {
    return NoRoom("all " + std::to_string(size_.sequences) + " sequences that the KV cache has room for are in use");
  }
  if (id == sequences_.size()) {
    sequences_.emplace_back();
    for (Layer& layer : layers_) {
      layer.pointers.emplace_back();
      layer.tables.emplace_back();
    }
  }
  sequences_[id] = {.live = true, .length = 0, .held = std::vector<Held>(groups_.size())};
  return static_cast<int32_t>(id);
}

bool KvPool::IsLive(int32_t sequence) const {
  return sequence >= 0 && static_cast<size_t>(sequence) < sequences_.size() && sequences_[static_cast<size_t>(sequence)].live;
}

int64_t KvPool::Length(int32_t sequence) const { return IsLive(sequence) ? sequences_[static_cast<size_t>(sequence)].length : 0; }

// The next block of a sequence's group; the reference is the caller's. Tables follow, of this block only.
void KvPool::Append(Group& group, int32_t sequence, Held& held, int32_t id) {
  const size_t q = static_cast<size_t>(sequence);
  held.ids.push_back(id);
  for (const size_t l : group.layers) {
    Layer& layer = layers_[l];
    std::vector<uint8_t*>& pointers = layer.pointers[q];
    pointers.push_back(id < 0 ? nullptr : group.Block(id) + layer.offset);
    layer.tables[q] = {.blocks = pointers.data(), .count = static_cast<int64_t>(pointers.size())};
  }
}

// Blocks [first, below) are not needed any more.
void KvPool::GiveBack(Group& group, int32_t sequence, Held& held, size_t below) {
  for (; held.first < below; ++held.first) {
    int32_t& id = held.ids[held.first];
    group.Drop(id);
    id = -1;
    for (const size_t l : group.layers) layers_[l].pointers[static_cast<size_t>(sequence)][held.first] = nullptr;
  }
}

// Keeps the first `blocks` blocks.
void KvPool::Shorten(Group& group, int32_t sequence, Held& held, size_t blocks) {
  if (blocks >= held.ids.size()) return;
  for (size_t b = std::max(held.first, blocks); b < held.ids.size(); ++b) group.Drop(held.ids[b]);
  held.ids.resize(blocks);
  held.first = std::min(held.first, blocks);
  for (const size_t l : group.layers) {
    std::vector<uint8_t*>& pointers = layers_[l].pointers[static_cast<size_t>(sequence)];
    pointers.resize(blocks);
    layers_[l].tables[static_cast<size_t>(sequence)].count = static_cast<int64_t>(blocks);
  }
}

// Whether position `length` would be written into a block that others hold too: one left partial by Truncate.
bool KvPool::WritesShared(const Group& group, const Held& held, int64_t length) const {
  return length % kKvBlock != 0 && group.Shared(held.ids[static_cast<size_t>(length / kKvBlock)]);
}

Status KvPool::Extend(int32_t sequence, int64_t n) {
  if (!IsLive(sequence)) return InternalError("no sequence " + std::to_string(sequence));
  if (n < 0) return InternalError("cannot extend a sequence by " + std::to_string(n) + " positions");
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (n > size_.context - s.length) {
    return NoRoom("the context is full: " + std::to_string(s.length + n) + " positions, room for " +
                  std::to_string(size_.context));
  }
  if (n == 0) return {};
  // Every group is asked before anything is given back or taken, so that a refusal leaves all as it was.
  const auto below = [&](size_t g) {  // what GiveBack is to be told
    return static_cast<size_t>(std::min(groups_[g].FirstKept(s.length), static_cast<int64_t>(s.held[g].ids.size())));
  };
  int64_t fit = INT64_MAX;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const Held& held = s.held[g];
    int64_t blocks = group.available();
    for (size_t b = held.first; b < below(g); ++b) blocks += group.Shared(held.ids[b]) ? 0 : 1;
    if (WritesShared(group, held, s.length)) --blocks;
    fit = std::min(fit, std::max<int64_t>(0, (static_cast<int64_t>(held.ids.size()) + blocks) * kKvBlock - s.length));
  }
  if (n > fit) {
    return NoRoom("the KV cache is full: room for " + std::to_string(fit) + " more positions of this sequence");
  }
  const size_t blocks = static_cast<size_t>(BlocksFor(s.length + n));
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    Held& held = s.held[g];
    GiveBack(group, sequence, held, below(g));
    if (WritesShared(group, held, s.length)) {
      const int32_t copy = group.Take(group.Block(held.ids.back()));
      Shorten(group, sequence, held, held.ids.size() - 1);
      Append(group, sequence, held, copy);
    }
    while (held.ids.size() < blocks) Append(group, sequence, held, group.Take(nullptr));
  }
  s.length += n;
  return {};
}

// Checks that after cutting to `length` no window layer lacks a block.
Status KvPool::CheckHeld(const Sequence& s, int64_t length, const char* what) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t needed = groups_[g].FirstNeeded(length);
    if (needed >= BlocksFor(length) || static_cast<int64_t>(s.held[g].first) <= needed) continue;
    return BadInput(std::string("cannot ") + what + " " + std::to_string(length) + " positions: a layer with a window of " +
                    std::to_string(groups_[g].window) + " has given up what it needs");
  }
  return {};
}

Status KvPool::Truncate(int32_t sequence, int64_t length) {
  if (!IsLive(sequence)) return BadInput("no sequence " + std::to_string(sequence));
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (length < 0 || length > s.length) {
    return BadInput("cannot keep " + std::to_string(length) + " of " + std::to_string(s.length) + " positions");
  }
  TALLY_RETURN_IF_ERROR(CheckHeld(s, length, "roll back to"));
  for (size_t g = 0; g < groups_.size(); ++g) {
    Shorten(groups_[g], sequence, s.held[g], static_cast<size_t>(BlocksFor(length)));
  }
  s.length = length;
  return {};
}

Result<int32_t> KvPool::Fork(int32_t sequence, int64_t length) {
  if (!IsLive(sequence)) return BadInput("no sequence " + std::to_string(sequence));
  const int64_t had = Length(sequence);
  if (length < 0 || length > had) {
    return BadInput("cannot fork " + std::to_string(length) + " of " + std::to_string(had) + " positions");
  }
  TALLY_RETURN_IF_ERROR(CheckHeld(sequences_[static_cast<size_t>(sequence)], length, "fork the first"));
  const bool partial = length % kKvBlock != 0;
  if (partial && std::any_of(groups_.begin(), groups_.end(), [](const Group& g) { return g.available() < 1; })) {
    return NoRoom("the KV cache is full: a fork at " + std::to_string(length) +
                  " positions needs a block for its copy of the last " + std::to_string(length % kKvBlock));
  }
  TALLY_ASSIGN_OR_RETURN(const int32_t fork, NewSequence());
  const Sequence& from = sequences_[static_cast<size_t>(sequence)];  // not before NewSequence, which moves them
  Sequence& to = sequences_[static_cast<size_t>(fork)];
  const size_t whole = static_cast<size_t>(length / kKvBlock);
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const std::vector<int32_t>& ids = from.held[g].ids;
    Held& held = to.held[g];
    for (size_t b = 0; b < whole; ++b) {
      if (ids[b] >= 0) ++group.references[static_cast<size_t>(ids[b])];
      Append(group, fork, held, ids[b]);
    }
    held.first = std::min(from.held[g].first, whole);
    if (partial) Append(group, fork, held, group.Take(group.Block(ids[whole])));
  }
  to.length = length;
  return fork;
}

Result<int32_t> KvPool::Copy(int32_t sequence) {
  if (!IsLive(sequence)) return BadInput("no sequence " + std::to_string(sequence));
  const int64_t length = Length(sequence);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Held& held = sequences_[static_cast<size_t>(sequence)].held[g];
    const int64_t needed = static_cast<int64_t>(held.ids.size() - held.first);
    if (groups_[g].available() >= needed) continue;
    return NoRoom("the KV cache is full: a copy of " + std::to_string(length) + " positions needs " + std::to_string(needed) +
                  " blocks, and " + std::to_string(groups_[g].available()) + " are free");
  }
  TALLY_ASSIGN_OR_RETURN(const int32_t copy, NewSequence());
  const Sequence& from = sequences_[static_cast<size_t>(sequence)];  // not before NewSequence, which moves them
  Sequence& to = sequences_[static_cast<size_t>(copy)];
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    for (const int32_t id : from.held[g].ids) Append(group, copy, to.held[g], id < 0 ? id : group.Take(group.Block(id)));
    to.held[g].first = from.held[g].first;
  }
  to.length = length;
  return copy;
}

void KvPool::Free(int32_t sequence) {
  if (!IsLive(sequence)) return;
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (size_t g = 0; g < groups_.size(); ++g) Shorten(groups_[g], sequence, s.held[g], 0);
  s.live = false;
  s.length = 0;
}

uint64_t KvPool::BytesAllocated() const {
  uint64_t bytes = 0;
  for (const Group& g : groups_) bytes += static_cast<uint64_t>(g.blocks - g.available()) * g.stride;
  return bytes;
}

}  // namespace tally
