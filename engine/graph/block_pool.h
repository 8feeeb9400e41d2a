// SPDX-License-Identifier: Apache-2.0
// The memory of blocks: groups of blocks of one size each, within one budget of bytes, counted by references.
//
// Each group has addresses for the whole budget. A block is whole pages, which it takes from the system when it is first written. A block
// without references keeps its pages for the next block of its group; they go back to the system before another group takes their bytes. So
// the memory that is resident stays within the budget.
//
// A block with a holder keeps its contents after its last reference is dropped; it is then cached. The holder must release it when others
// need the bytes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/machine/machine.h"

namespace tally {

class BlockPool {
 public:
  // Bytes of a block in whole pages.
  static uint64_t Stride(uint64_t bytes);
  // `strides`: of each group's blocks. kNoRoom: no addresses for them.
  static Result<std::unique_ptr<BlockPool>> Create(std::span<const uint64_t> strides, uint64_t budget);

  uint64_t budget() const { return budget_; }
  uint64_t in_use() const { return in_use_; }  // bytes of blocks with references
  uint64_t available() const { return budget_ - in_use_; }
  uint64_t cached() const { return cached_bytes_; }
  // Bytes of blocks that may have pages: in use, cached, or kept for the next block of their group.
  uint64_t committed() const { return committed_; }
  uint64_t stride(size_t group) const { return groups_[group].stride; }

  uint8_t* data(size_t group, int32_t id) const {
    return groups_[group].memory.data() + static_cast<size_t>(id) * groups_[group].stride;
  }
  int32_t blocks(size_t group) const { return static_cast<int32_t>(groups_[group].blocks.size()); }  // ever used: ids are below
  int32_t references(size_t group, int32_t id) const { return At(group, id).references; }
  int32_t holder(size_t group, int32_t id) const { return At(group, id).holder; }  // -1: none

  struct Name {
    size_t group;
    int32_t id;
  };
  // True if a cached block must be released before Take. Oldest() is the one whose last reference was dropped first.
  bool MustRelease(size_t group) const {
    return groups_[group].free.empty() && in_use_ + cached_bytes_ + groups_[group].stride > budget_;
  }
  Name Oldest() const { return cached_.front(); }

  // A block with one reference. stride(group) bytes must be available, and MustRelease false.
  struct Taken {
    int32_t id;
    bool zero;  // its bytes are zero; false: they are unspecified
  };
  Taken Take(size_t group);
  void Share(size_t group, int32_t id);
  // True if that was the last reference.
  bool Drop(size_t group, int32_t id);
  // Hold: the block has references and no holder. Release: it has a holder.
  void Hold(size_t group, int32_t id, int32_t holder) { At(group, id).holder = holder; }
  void Release(size_t group, int32_t id);

 private:
  struct Block {
    int32_t references = 0, holder = -1;
    std::list<Name>::iterator cached = {};  // its place in cached_, if it is cached
  };
  struct Group {
    uint64_t stride = 0;
    AnonymousMemory memory;
    std::vector<Block> blocks;            // all that have ever been used
    std::vector<int32_t> free, returned;  // without references and holder: with pages, without
  };
  Block& At(size_t group, int32_t id) { return groups_[group].blocks[static_cast<size_t>(id)]; }
  const Block& At(size_t group, int32_t id) const { return groups_[group].blocks[static_cast<size_t>(id)]; }
  void ReturnPages(Group& group);

  uint64_t budget_ = 0, in_use_ = 0, cached_bytes_ = 0, committed_ = 0;
  std::vector<Group> groups_;
  std::list<Name> cached_;  // least recently used first
};

}  // namespace tally
