// The KV cache: pools of blocks of kKvBlock absolute positions, and for each sequence and layer a table of them.
//
// Layers of the same window form a group that allocates together: a block id of a group stands for one block in each of its
// layers. Groups with a window give back whole blocks that lie wholly below the window of the next position, less one block that
// is kept so that a sequence can be rolled back a little.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/kernels/attention/attention.h"
#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"

namespace tally {

class KvCache {
 public:
  // Room for `sequences` sequences of `context` positions, stepped in batches of at most `max_batch` rows.
  static Result<std::unique_ptr<KvCache>> Create(const Recipe& recipe, KvType type, int64_t context, int32_t sequences,
                                                 int64_t max_batch);
  // Bytes of the pools that Create makes.
  static uint64_t PlanBytes(const Recipe& recipe, KvType type, int64_t context, int32_t sequences, int64_t max_batch);

  Result<int32_t> NewSequence();  // kBadInput when `sequences` are live
  bool IsLive(int32_t sequence) const;
  int64_t Length(int32_t sequence) const;  // positions; 0 for a sequence that is not live
  // Makes room for `n` more positions. kBadInput: beyond the context, or the pool is full; nothing has changed then.
  Status Extend(int32_t sequence, int64_t n);
  // Keeps the first `length` positions. kBadInput: more than there are, or positions a window layer needs are gone.
  Status Truncate(int32_t sequence, int64_t length);
  void Free(int32_t sequence);

  // Of a layer, indexed by sequence id; valid until the next call that changes a sequence.
  std::span<const KvTable> Tables(int32_t layer) const;
  uint64_t BytesAllocated() const;  // of blocks in use

 private:
  struct Group {
    int32_t window = 0;
    std::vector<int32_t> layers;
    int64_t blocks = 0;  // in the pool
    AnonymousMemory pool;
    std::vector<int32_t> free;  // block ids that have been used; ids from `fresh` on never were
    int32_t fresh = 0;
    size_t block_bytes = 0;  // of one layer
    size_t stride() const { return block_bytes * layers.size(); }
    uint64_t bytes() const;  // of the pool; UINT64_MAX where that overflows
    uint8_t* Block(int32_t id, size_t layer) const {
      return pool.data() + static_cast<size_t>(id) * stride() + layer * block_bytes;
    }
    int64_t available() const { return static_cast<int64_t>(free.size()) + blocks - fresh; }
  };
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    std::vector<std::vector<int32_t>> ids;  // [group][position / kKvBlock], -1: given back or not yet there
  };

  static std::vector<Group> MakeGroups(const Recipe& recipe, KvType type, int64_t context, int32_t sequences, int64_t max_batch);
  int32_t Allocate(Group& group);
  void Release(size_t group, Sequence& s, size_t block);
  static int64_t FirstNeeded(const Group& group, int64_t length);
  static int64_t FirstKept(const Group& group, int64_t length);
  void Publish(int32_t sequence);

  int64_t context_ = 0;
  std::vector<Group> groups_;
  std::vector<Sequence> sequences_;
  std::vector<size_t> group_of_layer_, index_in_group_;
  std::vector<std::vector<std::vector<uint8_t*>>> pointers_;  // [layer][sequence][block]
  std::vector<std::vector<KvTable>> tables_;                  // [layer][sequence]
};

}  // namespace tally
