// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/sequence_store.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "engine/base/checked.h"

namespace tally {
namespace {

std::string Unknown(int32_t sequence) { return "no sequence " + std::to_string(sequence); }

}  // namespace

StoreLayer KvStoreLayer(int32_t window, const KvLayout& layout) {
  StoreLayer layer{.window = window, .positions = kKvBlock, .bytes = layout.BlockBytes(), .clear = {}};
  layer.clear = [layout](uint8_t* block, int64_t from) {
    const std::vector<float> zeros(static_cast<size_t>(std::max(layout.k_dim, layout.v_dim)));
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      for (int64_t lane = from; lane < kKvBlock; ++lane) layout.Store(block, head, lane, zeros.data(), zeros.data());
    }
  };
  return layer;
}

StoreLayer StateStoreLayer(const StateLayout& layout) {
  StoreLayer layer{.positions = kStateRows, .bytes = layout.rows_bytes(), .state_bytes = layout.state_bytes(), .clear = {}};
  layer.clear = [layout](uint8_t* block, int64_t from) {
    const size_t row = static_cast<size_t>(layout.row_floats()) * sizeof(float);
    std::memset(block + static_cast<size_t>(from) * row, 0, static_cast<size_t>(kStateRows - from) * row);
  };
  return layer;
}

// The first block that the next position of a sequence of `length` sees; it sees positions from length - window + 1 on.
int64_t SequenceStore::Group::FirstNeeded(int64_t length) const {
  return window > 0 ? std::max<int64_t>(0, length - window + 1) / positions : 0;
}

// The first block that is kept: one more than is needed, for rolling back.
int64_t SequenceStore::Group::FirstKept(int64_t length) const { return std::max<int64_t>(0, FirstNeeded(length) - 1); }

// The most blocks that a sequence of `length` holds: its window, the block kept for rolling back and the positions of a batch, wherever
// they begin in a block.
int64_t SequenceStore::Group::Needs(int64_t length, int64_t max_batch) const {
  const int64_t whole = BlocksFor(length);
  if (rows) return std::min<int64_t>(whole, 3);  // those of the last states, wherever the first is in a block
  return window > 0 ? std::min(whole, BlocksFor(int64_t{window} + positions + max_batch) + 1) : whole;
}

SequenceStore::Groups SequenceStore::MakeGroups(std::span<const StoreLayer> layers) {
  Groups all;
  std::vector<Group>& groups = all.groups;
  for (size_t l = 0; l < layers.size(); ++l) {
    const StoreLayer& layer = layers[l];
    if (layer.bytes == 0) continue;
    const bool rows = layer.state_bytes > 0;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.window == layer.window && g.positions == layer.positions && g.rows == rows;
    });
    if (group == groups.end()) {
      group = groups.insert(group, {.window = layer.window, .positions = layer.positions, .rows = rows, .layers = {}});
    }
    group->layers.push_back(l);
    all.state_bytes = SaturatingAdd(all.state_bytes, layer.state_bytes);
    group->bytes = SaturatingAdd(group->bytes, layer.bytes);
  }
  for (Group& g : groups) g.stride = BlockPool::Stride(g.bytes);
  if (all.state_bytes > 0) all.state_stride = BlockPool::Stride(all.state_bytes);
  return all;
}

uint64_t SequenceStore::BytesFor(const Groups& all, int64_t positions, int64_t max_batch) {
  // The running state and two to come back to.
  const uint64_t states = static_cast<uint64_t>(positions <= 1 ? positions : std::min<int64_t>(3, 2 + positions / kStateRows));
  uint64_t bytes = SaturatingMul(states, all.state_stride);
  for (const Group& g : all.groups) {
    bytes = SaturatingAdd(bytes, SaturatingMul(static_cast<uint64_t>(g.Needs(positions, max_batch)), g.stride));
  }
  return bytes;
}

uint64_t SequenceStore::BudgetOf(const Groups& all, const StoreSize& size) {
  const uint64_t page = SystemPageBytes();
  if (size.bytes != 0) return size.bytes / page * page;
  return SaturatingMul(BytesFor(all, size.context, size.max_batch), static_cast<uint64_t>(size.sequences));
}

Status SequenceStore::CheckGroups(const Groups& all, const StoreSize& size) {
  const uint64_t budget = BudgetOf(all, size);
  for (const Group& g : all.groups) {
    if (g.positions < 1 || (g.window > 0 || g.rows ? kKvBlock % g.positions != 0 : g.positions != kKvBlock)) {
      return InternalError("a layer with blocks of " + std::to_string(g.positions) + " positions");
    }
    const uint64_t least_stride = all.state_stride > 0 ? std::min(g.stride, all.state_stride) : g.stride;
    if (budget == UINT64_MAX || budget / least_stride > std::numeric_limits<int32_t>::max()) {
      return BadInput("a KV cache of " + std::to_string(size.sequences) + " sequences of " + std::to_string(size.context) +
                      " positions" + (size.bytes > 0 ? " in " + std::to_string(size.bytes) + " bytes" : "") +
                      " is more than any machine has room for");
    }
  }
  const int64_t batch = std::min(size.max_batch, size.context);
  const uint64_t least = BytesFor(all, batch, batch);
  if (budget >= least) return {};
  return BadInput("a KV cache of " + std::to_string(size.bytes) + " bytes has no room for one batch of " + std::to_string(batch) +
                  " positions: expected at least " + std::to_string(least) + " bytes");
}

Status SequenceStore::Check(std::span<const StoreLayer> layers, const StoreSize& size) {
  return CheckGroups(MakeGroups(layers), size);
}

uint64_t SequenceStore::PlanBytes(std::span<const StoreLayer> layers, const StoreSize& size) {
  return BudgetOf(MakeGroups(layers), size);
}

uint64_t SequenceStore::BytesFor(int64_t positions) const {
  return BytesFor({groups_, state_bytes_, state_stride_}, positions, size_.max_batch);
}

Result<std::unique_ptr<SequenceStore>> SequenceStore::Create(std::span<const StoreLayer> layers, const StoreSize& size,
                                                             Team* team) {
  auto store = std::make_unique<SequenceStore>();
  store->size_ = size;
  store->team_ = team;
  const Groups all = MakeGroups(layers);
  TALLY_RETURN_IF_ERROR(CheckGroups(all, size));
  store->groups_ = all.groups;
  store->state_bytes_ = all.state_bytes;
  store->state_stride_ = all.state_stride;
  store->layers_.resize(layers.size());
  std::vector<uint64_t> strides;
  for (size_t g = 0; g < store->groups_.size(); ++g) {
    strides.push_back(store->groups_[g].stride);
    store->groups_[g].slot = store->slot_groups_.size();
    if (!store->groups_[g].rows) {
      store->slot_groups_.insert(store->slot_groups_.end(),
                                 static_cast<size_t>(PrefixIndex::kTokens / store->groups_[g].positions), g);
    }
    size_t offset = 0, state_offset = 0;
    for (const size_t l : store->groups_[g].layers) {
      Layer& layer = store->layers_[l];
      layer.group = g;
      layer.bytes = layers[l].bytes;
      layer.offset = offset;
      layer.clear = layers[l].clear;
      offset += layer.bytes;
      layer.state_offset = state_offset;
      state_offset += layers[l].state_bytes;
    }
  }
  if (store->recurrent()) strides.push_back(store->state_stride_);
  store->index_ = PrefixIndex(store->slot_groups_.size());
  TALLY_ASSIGN_OR_RETURN(store->pool_, BlockPool::Create(strides, BudgetOf(all, size)));
  return store;
}

Result<int32_t> SequenceStore::NewSequence() {
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
      layer.states.emplace_back();
    }
  }
  sequences_[id] = {.live = true, .length = 0, .held = std::vector<Held>(groups_.size()), .states = {}};
  if (recurrent()) sequences_[id].states.push_back({});
  return static_cast<int32_t>(id);
}

bool SequenceStore::IsLive(int32_t sequence) const {
  return sequence >= 0 && static_cast<size_t>(sequence) < sequences_.size() && sequences_[static_cast<size_t>(sequence)].live;
}

int64_t SequenceStore::Length(int32_t sequence) const {
  return IsLive(sequence) ? sequences_[static_cast<size_t>(sequence)].length : 0;
}

// Appends a block to a sequence's group, and takes over the caller's reference. Updates the tables for this block only.
void SequenceStore::Append(size_t group, int32_t sequence, int32_t id) {
  const size_t q = static_cast<size_t>(sequence);
  sequences_[q].held[group].ids.push_back(id);
  for (const size_t l : groups_[group].layers) {
    Layer& layer = layers_[l];
    std::vector<uint8_t*>& pointers = layer.pointers[q];
    pointers.push_back(id < 0 ? nullptr : Block(group, id) + layer.offset);
    layer.tables[q] = {.blocks = pointers.data(), .count = static_cast<int64_t>(pointers.size())};
  }
}

// Blocks [first, below) are not needed any more.
void SequenceStore::DropBelow(size_t group, int32_t sequence, size_t below) {
  const size_t q = static_cast<size_t>(sequence);
  Held& held = sequences_[q].held[group];
  for (; held.first < below; ++held.first) {
    int32_t& id = held.ids[held.first];
    if (id >= 0) Drop(group, id);
    id = -1;
    for (const size_t l : groups_[group].layers) layers_[l].pointers[q][held.first] = nullptr;
  }
}

// Keeps the first `blocks` blocks.
void SequenceStore::Shorten(size_t group, int32_t sequence, size_t blocks) {
  const size_t q = static_cast<size_t>(sequence);
  Held& held = sequences_[q].held[group];
  if (blocks >= held.ids.size()) return;
  for (size_t b = held.ids.size(); b > std::max(held.first, blocks); --b) {
    if (held.ids[b - 1] >= 0) Drop(group, held.ids[b - 1]);
  }
  held.ids.resize(blocks);
  held.first = std::min(held.first, blocks);
  for (const size_t l : groups_[group].layers) {
    layers_[l].pointers[q].resize(blocks);
    layers_[l].tables[q].count = static_cast<int64_t>(blocks);
  }
}

// Blocks of a group that Extend drops first: those below this one.
size_t SequenceStore::DroppedBelow(const Sequence& s, size_t group, const StatePlan& plan) const {
  const Group& g = groups_[group];
  const int64_t kept = g.rows ? plan.rows_from / g.positions : g.FirstKept(s.length);
  return static_cast<size_t>(std::min(kept, static_cast<int64_t>(s.held[group].ids.size())));
}

// Whether the next position would be written into a block that others hold too: one left partial by Truncate.
bool SequenceStore::Owns(int32_t sequence, int64_t position) const {
  if (!IsLive(sequence) || position < 0) return false;
  const size_t g = layers_.back().group, at = static_cast<size_t>(position / groups_[g].positions);
  const Held& held = sequences_[static_cast<size_t>(sequence)].held[g];
  return at >= held.first && at < held.ids.size() && held.ids[at] >= 0 && pool_->references(g, held.ids[at]) == 1;
}

bool SequenceStore::WritesShared(const Sequence& s, size_t group) const {
  if (s.length % groups_[group].positions == 0) return false;
  const int32_t id = s.held[group].ids.back();
  return id >= 0 && pool_->references(group, id) > 1;
}

// Bytes that Extend takes, and bytes that it frees first.
uint64_t SequenceStore::BytesToExtend(const Sequence& s, int64_t n, const StatePlan& plan) const {
  uint64_t bytes = recurrent() ? ((plan.in_place ? 0u : 1u) + (plan.mid_at > 0 ? 1u : 0u)) * state_stride_ : 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].rows) {
      bytes += RowBlocksToTake(s, g, n, plan) * groups_[g].stride;
      continue;
    }
    const int64_t more = groups_[g].BlocksFor(s.length + n) - static_cast<int64_t>(s.held[g].ids.size());
    bytes += static_cast<uint64_t>(more + (WritesShared(s, g) ? 1 : 0)) * groups_[g].stride;
  }
  return bytes;
}

uint64_t SequenceStore::BytesToDrop(const Sequence& s, const StatePlan& plan) const {
  uint64_t bytes = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t b = s.held[g].first; b < DroppedBelow(s, g, plan); ++b) {
      const int32_t id = s.held[g].ids[b];
      bytes += id >= 0 && pool_->references(g, id) == 1 ? groups_[g].stride : 0;
    }
  }
  for (const State& state : s.states) {
    const bool kept = std::ranges::any_of(plan.kept, [&](const State& k) { return k.at == state.at; });
    bytes += !kept && state.id >= 0 && pool_->references(state_group(), state.id) == 1 ? state_stride_ : 0;
  }
  return bytes;
}

bool SequenceStore::FitsToExtend(const Sequence& s, int64_t n, bool keep_first) const {
  const StatePlan plan = PlanStates(s, n, keep_first);
  return BytesToExtend(s, n, plan) <= pool_->available() + BytesToDrop(s, plan);
}

uint64_t SequenceStore::BytesHeld(int32_t sequence) const {
  if (!IsLive(sequence)) return 0;
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  uint64_t bytes = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t b = s.held[g].first; b < s.held[g].ids.size(); ++b) bytes += s.held[g].ids[b] >= 0 ? groups_[g].stride : 0;
  }
  for (const State& state : s.states) bytes += state.id >= 0 ? state_stride_ : 0;
  return bytes;
}

Status SequenceStore::NoRoomFor(const std::string& what, uint64_t bytes) const {
  return NoRoom("the KV cache is full: " + what + " needs " + std::to_string(bytes) + " bytes, and " +
                std::to_string(pool_->available()) + " of " + std::to_string(pool_->budget()) + " are free");
}

// Makes the last block one that can be written from the next position on: it is the sequence's alone, and the index names it for no
// position beyond.
void SequenceStore::OwnLast(size_t group, int32_t sequence) {
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (s.length % groups_[group].positions == 0) return;
  if (WritesShared(s, group)) return CopyLast(group, sequence);
  const int32_t id = s.held[group].ids.back(), node = id < 0 ? -1 : pool_->holder(group, id);
  if (node >= 0 && index_.end(node) > s.length) Forget(group, id);
}

void SequenceStore::CopyLast(size_t group, int32_t sequence) {
  const std::vector<int32_t>& ids = sequences_[static_cast<size_t>(sequence)].held[group].ids;
  Put(group, sequence, ids.size() - 1, TakeCopy(group, ids.back()));
}

// Replaces block `at`, or fills its place if none is held. Takes over the caller's reference.
void SequenceStore::Put(size_t group, int32_t sequence, size_t at, int32_t id) {
  const size_t q = static_cast<size_t>(sequence);
  int32_t& held = sequences_[q].held[group].ids[at];
  if (held >= 0) Drop(group, held);
  held = id;
  for (const size_t l : groups_[group].layers) layers_[l].pointers[q][at] = Block(group, id) + layers_[l].offset;
}

Status SequenceStore::Extend(int32_t sequence, int64_t n, bool keep_first) {
  if (!IsLive(sequence)) return BadInput(Unknown(sequence));
  if (n < 0) return BadInput("cannot extend a sequence by " + std::to_string(n) + " positions");
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (n > size_.context - s.length) {
    return NoRoom("the context is full: " + std::to_string(s.length + n) + " positions, room for " +
                  std::to_string(size_.context));
  }
  if (n == 0) return {};
  if (!FitsToExtend(s, n, keep_first)) {
    int64_t fit = 0;
    for (int64_t too_many = n; too_many - fit > 1;) {
      const int64_t middle = fit + (too_many - fit) / 2;
      (FitsToExtend(s, middle, keep_first) ? fit : too_many) = middle;
    }
    return NoRoom("the KV cache is full: room for " + std::to_string(fit) + " more positions of this sequence");
  }
  const StatePlan plan = PlanStates(s, n, keep_first);
  for (size_t g = 0; g < groups_.size(); ++g) DropBelow(g, sequence, DroppedBelow(s, g, plan));
  if (recurrent()) ExtendStates(sequence, n, plan);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].rows) {
      ExtendRows(g, sequence, n, plan);
      continue;
    }
    OwnLast(g, sequence);
    const size_t blocks = static_cast<size_t>(groups_[g].BlocksFor(s.length + n));
    while (s.held[g].ids.size() < blocks) Append(g, sequence, TakeEmpty(g));
  }
  s.length += n;
  return {};
}

void SequenceStore::AddRows(int32_t sequence, std::span<const int32_t> tokens, std::span<const PrefixRow> rows) {
  for (size_t i = 0; i < rows.size(); ++i) AddRow(rows[i], tokens[i], sequences_[static_cast<size_t>(sequence)].rows);
}

int64_t SequenceStore::NextPosition(int32_t sequence) const {
  if (!IsLive(sequence)) return 0;
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  return tally::NextPosition(s.rows, s.length);
}

Status SequenceStore::CheckCut(const Sequence& s, int64_t length, const char* what) const {
  const RowSpan span = SpanAround(s.rows, length);
  if (span.empty()) return {};
  return BadInput(std::string("cannot ") + what + " " + std::to_string(length) + " positions: those from " +
                  std::to_string(span.begin) + " to " + std::to_string(span.end - 1) + " see one another, and stay together");
}

// The sequence is cut to `length`.
void SequenceStore::DropRows(Sequence& s, int64_t length) {
  while (!s.rows.empty() && s.rows.back().row.index >= length) s.rows.pop_back();
}

// Checks that after cutting to `length` no window layer lacks a block, and that a step could start from some state of the recurrent layers.
Status SequenceStore::CheckHeld(const Sequence& s, int64_t length, const char* what) const {
  if (recurrent() && StatesAt(s, length) == 0) {
    return BadInput(std::string("cannot ") + what + " " + std::to_string(length) +
                    " positions: the recurrent layers have given up what they need");
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].rows) continue;
    const int64_t needed = groups_[g].FirstNeeded(length);
    if (needed >= groups_[g].BlocksFor(length) || static_cast<int64_t>(s.held[g].first) <= needed) continue;
    return BadInput(std::string("cannot ") + what + " " + std::to_string(length) + " positions: a layer with a window of " +
                    std::to_string(groups_[g].window) + " has given up what it needs");
  }
  return {};
}

Status SequenceStore::Truncate(int32_t sequence, int64_t length) {
  if (!IsLive(sequence)) return BadInput(Unknown(sequence));
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (length < 0 || length > s.length) {
    return BadInput("cannot keep " + std::to_string(length) + " of " + std::to_string(s.length) + " positions");
  }
  TALLY_RETURN_IF_ERROR(CheckCut(s, length, "roll back to"));
  TALLY_RETURN_IF_ERROR(CheckHeld(s, length, "roll back to"));
  DropRows(s, length);
  for (size_t g = 0; g < groups_.size(); ++g) Shorten(g, sequence, static_cast<size_t>(groups_[g].BlocksFor(length)));
  s.length = length;
  if (recurrent()) {
    DropStates(s, StatesAt(s, length));
    s.rows_from = std::min(s.RowsFrom(length), length);
    s.before = length;
    s.rows_from_before = s.rows_from;
  }
  if (index_.Exists(s.node, s.generation) && index_.end(s.node) > length) s.node = PrefixIndex::kNone;
  return {};
}

Result<int32_t> SequenceStore::Fork(int32_t sequence, int64_t length) {
  if (!IsLive(sequence)) return BadInput(Unknown(sequence));
  const int64_t had = Length(sequence);
  if (length < 0 || length > had) {
    return BadInput("cannot fork " + std::to_string(length) + " of " + std::to_string(had) + " positions");
  }
  TALLY_RETURN_IF_ERROR(CheckCut(sequences_[static_cast<size_t>(sequence)], length, "fork the first"));
  TALLY_RETURN_IF_ERROR(CheckHeld(sequences_[static_cast<size_t>(sequence)], length, "fork the first"));
  uint64_t copied = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (length % groups_[g].positions == 0) continue;
    const std::vector<int32_t>& ids = sequences_[static_cast<size_t>(sequence)].held[g].ids;
    copied += ids[static_cast<size_t>(length / groups_[g].positions)] >= 0 ? groups_[g].stride : 0;
  }
  if (copied > pool_->available()) return NoRoomFor("a fork at " + std::to_string(length) + " positions", copied);
  TALLY_ASSIGN_OR_RETURN(const int32_t fork, NewSequence());
  const Sequence& from = sequences_[static_cast<size_t>(sequence)];  // not before NewSequence, which moves them
  Sequence& to = sequences_[static_cast<size_t>(fork)];
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<int32_t>& ids = from.held[g].ids;
    const size_t whole = static_cast<size_t>(length / groups_[g].positions);
    for (size_t b = 0; b < whole; ++b) {
      if (ids[b] >= 0) pool_->Share(g, ids[b]);
      Append(g, fork, ids[b]);
    }
    to.held[g].first = std::min(from.held[g].first, whole);
    if (length % groups_[g].positions != 0) Append(g, fork, ids[whole] < 0 ? -1 : TakeCopy(g, ids[whole]));
  }
  to.length = length;
  to.rows = from.rows;
  DropRows(to, length);
  to.states = {from.states.begin(), from.states.begin() + static_cast<std::ptrdiff_t>(StatesAt(from, length))};
  to.rows_from = to.rows_from_before = std::min(from.RowsFrom(length), length);
  to.before = length;
  for (const State& state : to.states) {
    if (state.id >= 0) pool_->Share(state_group(), state.id);
  }
  return fork;
}

Result<int32_t> SequenceStore::Copy(int32_t sequence) {
  if (!IsLive(sequence)) return BadInput(Unknown(sequence));
  const int64_t length = Length(sequence);
  uint64_t copied = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Held& held = sequences_[static_cast<size_t>(sequence)].held[g];
    for (size_t b = held.first; b < held.ids.size(); ++b) copied += held.ids[b] >= 0 ? groups_[g].stride : 0;
  }
  for (const State& state : sequences_[static_cast<size_t>(sequence)].states) copied += state.id >= 0 ? state_stride_ : 0;
  if (copied > pool_->available()) return NoRoomFor("a copy of " + std::to_string(length) + " positions", copied);
  TALLY_ASSIGN_OR_RETURN(const int32_t copy, NewSequence());
  const Sequence& from = sequences_[static_cast<size_t>(sequence)];  // not before NewSequence, which moves them
  Sequence& to = sequences_[static_cast<size_t>(copy)];
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const int32_t id : from.held[g].ids) Append(g, copy, id < 0 ? id : TakeCopy(g, id));
    to.held[g].first = from.held[g].first;
  }
  to.length = length;
  to.rows = from.rows;
  to.states = from.states;
  to.rows_from = to.rows_from_before = from.rows_from;
  to.before = length;
  for (State& state : to.states) state.id = state.id < 0 ? -1 : TakeCopy(state_group(), state.id);
  return copy;
}

void SequenceStore::Free(int32_t sequence) {
  if (!IsLive(sequence)) return;
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (size_t g = 0; g < groups_.size(); ++g) Shorten(g, sequence, 0);
  DropStates(s, 0);
  s.live = false;
  s.length = 0;
  s.rows.clear();
}

}  // namespace tally
