// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/block_pool.h"

#include "engine/base/checked.h"

namespace tally {

uint64_t BlockPool::Stride(uint64_t bytes) {
  const uint64_t page = SystemPageBytes();
  return bytes > UINT64_MAX - page ? UINT64_MAX : RoundUp(bytes, page);
}

Result<std::unique_ptr<BlockPool>> BlockPool::Create(std::span<const uint64_t> strides, uint64_t budget) {
  auto pool = std::make_unique<BlockPool>();
  pool->budget_ = budget;
  pool->groups_.resize(strides.size());
  for (size_t g = 0; g < strides.size(); ++g) {
    Group& group = pool->groups_[g];
    group.stride = strides[g];
    TALLY_ASSIGN_OR_RETURN(group.memory, AnonymousMemory::Reserve(budget / group.stride * group.stride));
  }
  return pool;
}

// Returns the pages of one of the group's free blocks to the system.
void BlockPool::ReturnPages(Group& group) {
  const int32_t id = group.free.back();
  group.free.pop_back();
  group.returned.push_back(id);
  group.memory.Return(static_cast<size_t>(id) * group.stride, group.stride);
  committed_ -= group.stride;
}

BlockPool::Taken BlockPool::Take(size_t group) {
  Group& g = groups_[group];
  in_use_ += g.stride;
  if (!g.free.empty()) {
    const int32_t id = g.free.back();
    g.free.pop_back();
    At(group, id).references = 1;
    return {id, false};
  }
  for (Group& other : groups_) {
    while (committed_ + g.stride > budget_ && !other.free.empty()) ReturnPages(other);
  }
  committed_ += g.stride;
  int32_t id = static_cast<int32_t>(g.blocks.size());
  if (g.returned.empty()) {
    g.blocks.emplace_back();
  } else {
    id = g.returned.back();
    g.returned.pop_back();
  }
  At(group, id).references = 1;
  // A huge page may not reach beyond the blocks in use. Blocks smaller than one do without.
  if (g.stride >= kHugePageBytes) g.memory.AllowHugePages(static_cast<size_t>(id) * g.stride, g.stride);
  return {id, true};
}

void BlockPool::Share(size_t group, int32_t id) {
  Block& block = At(group, id);
  if (++block.references > 1) return;
  in_use_ += groups_[group].stride;
  cached_bytes_ -= groups_[group].stride;
  cached_.erase(block.cached);
}

bool BlockPool::Drop(size_t group, int32_t id) {
  Group& g = groups_[group];
  Block& block = At(group, id);
  if (--block.references > 0) return false;
  in_use_ -= g.stride;
  if (block.holder < 0) {
    g.free.push_back(id);
    return true;
  }
  cached_bytes_ += g.stride;
  block.cached = cached_.insert(cached_.end(), {group, id});
  return true;
}

void BlockPool::Release(size_t group, int32_t id) {
  Group& g = groups_[group];
  Block& block = At(group, id);
  block.holder = -1;
  if (block.references > 0) return;
  cached_bytes_ -= g.stride;
  cached_.erase(block.cached);
  g.free.push_back(id);
}

}  // namespace tally
