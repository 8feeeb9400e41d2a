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

// Of a free block.
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
    g.references[static_cast<size_t>(id)] = 1;
    return {id, false};
  }
  for (Group& other : groups_) {
    while (committed_ + g.stride > budget_ && !other.free.empty()) ReturnPages(other);
  }
  committed_ += g.stride;
  int32_t id = static_cast<int32_t>(g.references.size());
  if (g.returned.empty()) {
    g.references.push_back(1);
  } else {
    id = g.returned.back();
    g.returned.pop_back();
    g.references[static_cast<size_t>(id)] = 1;
  }
  // A huge page may not reach beyond the blocks in use. Blocks smaller than one do without.
  if (g.stride >= kHugePageBytes) g.memory.AllowHugePages(static_cast<size_t>(id) * g.stride, g.stride);
  return {id, true};
}

void BlockPool::Share(size_t group, int32_t id) { ++groups_[group].references[static_cast<size_t>(id)]; }

bool BlockPool::Drop(size_t group, int32_t id) {
  Group& g = groups_[group];
  if (--g.references[static_cast<size_t>(id)] > 0) return false;
  in_use_ -= g.stride;
  g.free.push_back(id);
  return true;
}

}  // namespace tally
