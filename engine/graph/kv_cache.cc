#include "engine/graph/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "engine/base/checked.h"

namespace tally {
namespace {

int64_t BlocksFor(int64_t positions) { return (positions + kKvBlock - 1) / kKvBlock; }

}  // namespace

uint64_t KvCache::Group::bytes() const { return SaturatingMul(static_cast<uint64_t>(blocks), stride()); }

std::vector<KvCache::Group> KvCache::MakeGroups(const Recipe& recipe, KvType type, int64_t context, int32_t sequences,
                                                int64_t max_batch) {
  std::vector<Group> groups;
  for (int32_t layer = 0; layer < recipe.n_layers; ++layer) {
    const int32_t window = recipe.layers[static_cast<size_t>(layer)].window;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.window == window; });
    if (group == groups.end()) {
      group = groups.emplace(group);
      group->window = window;
    }
    group->layers.push_back(layer);
  }
  for (Group& g : groups) {
    // A sequence holds its window, the block kept for rolling back and the rows of a batch, wherever they begin in a block.
    const int64_t whole = BlocksFor(context), windowed = BlocksFor(int64_t{g.window} + kKvBlock + max_batch) + 1;
    g.blocks = sequences * (g.window > 0 ? std::min(whole, windowed) : whole);
    g.block_bytes = KvBlockBytes(type, recipe.n_kv_heads, recipe.head_dim);
  }
  return groups;
}

uint64_t KvCache::PlanBytes(const Recipe& recipe, KvType type, int64_t context, int32_t sequences, int64_t max_batch) {
  uint64_t bytes = 0;
  for (const Group& g : MakeGroups(recipe, type, context, sequences, max_batch)) bytes = SaturatingAdd(bytes, g.bytes());
  return bytes;
}

Result<std::unique_ptr<KvCache>> KvCache::Create(const Recipe& recipe, KvType type, int64_t context, int32_t sequences,
                                                 int64_t max_batch) {
  auto cache = std::make_unique<KvCache>();
  cache->context_ = context;
  cache->groups_ = MakeGroups(recipe, type, context, sequences, max_batch);
  const size_t layers = static_cast<size_t>(recipe.n_layers), n = static_cast<size_t>(sequences);
  cache->group_of_layer_.resize(layers);
  cache->index_in_group_.resize(layers);
  for (size_t g = 0; g < cache->groups_.size(); ++g) {
    Group& group = cache->groups_[g];
    if (group.bytes() == UINT64_MAX || group.blocks > std::numeric_limits<int32_t>::max()) {
      return BadInput("a KV cache of " + std::to_string(sequences) + " sequences of " + std::to_string(context) +
                      " positions is more than any machine has room for");
    }
    TALLY_ASSIGN_OR_RETURN(group.pool, AnonymousMemory::Allocate(group.bytes(), true));
    for (size_t i = 0; i < group.layers.size(); ++i) {
      cache->group_of_layer_[static_cast<size_t>(group.layers[i])] = g;
      cache->index_in_group_[static_cast<size_t>(group.layers[i])] = i;
    }
  }
  cache->sequences_.resize(n);
  cache->pointers_.assign(layers, std::vector<std::vector<uint8_t*>>(n));
  cache->tables_.assign(layers, std::vector<KvTable>(n));
  return cache;
}

Result<int32_t> KvCache::NewSequence() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].live) continue;
    sequences_[i] = {.live = true, .length = 0, .ids = std::vector<std::vector<int32_t>>(groups_.size())};
    return static_cast<int32_t>(i);
  }
  return BadInput("all " + std::to_string(sequences_.size()) + " sequences that the KV cache has room for are in use");
}

bool KvCache::IsLive(int32_t sequence) const {
  return sequence >= 0 && static_cast<size_t>(sequence) < sequences_.size() && sequences_[static_cast<size_t>(sequence)].live;
}

int64_t KvCache::Length(int32_t sequence) const {
  return IsLive(sequence) ? sequences_[static_cast<size_t>(sequence)].length : 0;
}

int32_t KvCache::Allocate(Group& group) {
  if (group.fresh < group.blocks) return group.fresh++;
  const int32_t id = group.free.back();
  group.free.pop_back();
  std::memset(group.Block(id, 0), 0, group.stride());
  return id;
}

void KvCache::Release(size_t group, Sequence& s, size_t block) {
  int32_t& id = s.ids[group][block];
  if (id >= 0) groups_[group].free.push_back(id);
  id = -1;
}

// The first block that the next position of a sequence of `length` sees: it looks back to length - window + 1.
int64_t KvCache::FirstNeeded(const Group& group, int64_t length) {
  return group.window > 0 ? std::max<int64_t>(0, length - group.window + 1) / kKvBlock : 0;
}

// The first block that stays: one more than is needed, for rolling back.
int64_t KvCache::FirstKept(const Group& group, int64_t length) { return std::max<int64_t>(0, FirstNeeded(group, length) - 1); }

void KvCache::Publish(int32_t sequence) {
  const size_t q = static_cast<size_t>(sequence);
  const Sequence& s = sequences_[q];
  for (size_t layer = 0; layer < tables_.size(); ++layer) {
    const size_t g = group_of_layer_[layer];
    const std::vector<int32_t>& ids = s.ids[g];
    std::vector<uint8_t*>& pointers = pointers_[layer][q];
    pointers.resize(ids.size());
    for (size_t b = 0; b < ids.size(); ++b) {
      pointers[b] = ids[b] < 0 ? nullptr : groups_[g].Block(ids[b], index_in_group_[layer]);
    }
    tables_[layer][q] = {.blocks = pointers.data(), .count = static_cast<int64_t>(pointers.size())};
  }
}

Status KvCache::Extend(int32_t sequence, int64_t n) {
  if (!IsLive(sequence)) return InternalError("no sequence " + std::to_string(sequence));
  if (n < 0) return InternalError("cannot extend a sequence by " + std::to_string(n) + " positions");
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (n > context_ - s.length) {
    return BadInput("the context is full: " + std::to_string(s.length + n) + " positions, room for " + std::to_string(context_));
  }
  if (n == 0) return {};
  const size_t blocks = static_cast<size_t>(BlocksFor(s.length + n));
  // Every group is asked before anything is given back or taken, so that a refusal leaves all as it was.
  int64_t fit = INT64_MAX;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<int32_t>& ids = s.ids[g];
    const int64_t had = static_cast<int64_t>(ids.size());
    const int64_t below = std::min(FirstKept(groups_[g], s.length), had);
    const int64_t given_back = std::count_if(ids.begin(), ids.begin() + below, [](int32_t id) { return id >= 0; });
    fit = std::min(fit, (had + given_back + groups_[g].available()) * kKvBlock - s.length);
  }
  if (n > fit) {
    return BadInput("the KV cache is full: room for " + std::to_string(fit) + " more positions of this sequence");
  }
  bool changed = false;
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int32_t>& ids = s.ids[g];
    const int64_t below = std::min<int64_t>(FirstKept(groups_[g], s.length), static_cast<int64_t>(ids.size()));
    for (int64_t b = 0; b < below; ++b) {
      changed |= ids[static_cast<size_t>(b)] >= 0;
      Release(g, s, static_cast<size_t>(b));
    }
    for (; ids.size() < blocks; changed = true) ids.push_back(Allocate(groups_[g]));
  }
  if (changed) Publish(sequence);
  s.length += n;
  return {};
}

Status KvCache::Truncate(int32_t sequence, int64_t length) {
  if (!IsLive(sequence)) return BadInput("no sequence " + std::to_string(sequence));
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (length < 0 || length > s.length) {
    return BadInput("cannot keep " + std::to_string(length) + " of " + std::to_string(s.length) + " positions");
  }
  const size_t blocks = static_cast<size_t>(BlocksFor(length));
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t b = static_cast<size_t>(FirstNeeded(groups_[g], length)); b < blocks; ++b) {
      if (s.ids[g][b] >= 0) continue;
      return BadInput("cannot roll back to " + std::to_string(length) + " positions: a layer with a window of " +
                      std::to_string(groups_[g].window) + " has given up what it needs");
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t b = blocks; b < s.ids[g].size(); ++b) Release(g, s, b);
    s.ids[g].resize(std::min(blocks, s.ids[g].size()));
  }
  s.length = length;
  Publish(sequence);
  return {};
}

void KvCache::Free(int32_t sequence) {
  if (!IsLive(sequence)) return;
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t b = 0; b < s.ids[g].size(); ++b) Release(g, s, b);
    s.ids[g].clear();
  }
  Publish(sequence);
  s.live = false;
  s.length = 0;
}

std::span<const KvTable> KvCache::Tables(int32_t layer) const { return tables_[static_cast<size_t>(layer)]; }

uint64_t KvCache::BytesAllocated() const {
  uint64_t bytes = 0;
  for (const Group& g : groups_) bytes += static_cast<uint64_t>(g.blocks - g.available()) * g.stride();
  return bytes;
}

}  // namespace tally
