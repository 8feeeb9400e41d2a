// SPDX-License-Identifier: Apache-2.0
// The memory of blocks: groups of blocks of one size each, within one budget of bytes, counted by references.
//
// Each group has addresses for the whole budget. A block is whole pages, which it takes from the system when it is first written. A
// block without references keeps its pages for the next block of its group; they go back to the system before another group takes
// their bytes. So the memory that is resident stays within the budget.
#pragma once

#include <cstdint>
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
  // `strides`: of each group's blocks. kBadInput: no addresses for them.
  static Result<std::unique_ptr<BlockPool>> Create(std::span<const uint64_t> strides, uint64_t budget);

  uint64_t budget() const { return budget_; }
  uint64_t in_use() const { return in_use_; }  // bytes of blocks with references
  uint64_t available() const { return budget_ - in_use_; }
  uint64_t committed() const { return committed_; }  // bytes of blocks that may have pages: in use, or kept for their group
  uint64_t stride(size_t group) const { return groups_[group].stride; }

  uint8_t* data(size_t group, int32_t id) const {
    return groups_[group].memory.data() + static_cast<size_t>(id) * groups_[group].stride;
  }
  int32_t references(size_t group, int32_t id) const { return groups_[group].references[static_cast<size_t>(id)]; }

  // A block with one reference. stride(group) bytes must be available.
  struct Taken {
    int32_t id;
    bool zero;  // its memory is; else it is what it was
  };
  Taken Take(size_t group);
  void Share(size_t group, int32_t id);
  // True: that was the last reference.
  bool Drop(size_t group, int32_t id);

 private:
  struct Group {
    uint64_t stride = 0;
    AnonymousMemory memory;
    std::vector<int32_t> references;      // of each block that has ever been used
    std::vector<int32_t> free, returned;  // blocks without references: with pages, without
  };
  void ReturnPages(Group& group);

  uint64_t budget_ = 0, in_use_ = 0, committed_ = 0;
  std::vector<Group> groups_;
};

}  // namespace tally
