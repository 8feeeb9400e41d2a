// SPDX-License-Identifier: Apache-2.0
// The pool of KV blocks of kKvBlock absolute positions, and for each sequence and layer a table of its blocks.
//
// Layers with the same window form a group. A block id of a group stands for one block in each of its layers. Several sequences
// may share a block (Fork); blocks are reference-counted, and only a block with one reference is written. Groups with a window
// free the blocks below the window of the next position, except one, so that a sequence can be rolled back a little.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/kernels/kv_store/kv_store.h"
#include "engine/machine/machine.h"

namespace tally {

struct KvLayerSpec {
  int32_t window = 0;  // positions that a query sees, its own included; 0: all
  KvLayout layout;
};

struct KvPoolSize {
  int64_t context = 0;    // maximum positions of a sequence
  int32_t sequences = 1;  // maximum number of live sequences
  int64_t max_batch = 1;  // maximum positions of one Extend
  // Pool size, divided among groups in proportion to a full-context sequence and rounded down to blocks. 0: all sequences at full
  // context.
  uint64_t bytes = 0;
};

class KvPool {
 public:
  // kBadInput: more than the address space, or too few bytes for a sequence's first max_batch positions (names both sizes).
  static Status Check(std::span<const KvLayerSpec> layers, const KvPoolSize& size);
  // Bytes of the blocks that Create makes; UINT64_MAX on overflow.
  static uint64_t PlanBytes(std::span<const KvLayerSpec> layers, const KvPoolSize& size);
  // kBadInput: as Check, or no memory.
  static Result<std::unique_ptr<KvPool>> Create(std::span<const KvLayerSpec> layers, const KvPoolSize& size);

  Result<int32_t> NewSequence();  // empty. kBadInput: `sequences` are live
  // A new sequence with the first `length` positions of another. Whole blocks are shared, a partial last one is copied.
  // kBadInput: no such sequence, a length it does not have, positions that a window layer needs and has freed, `sequences` are
  // live, no block for the copy. Nothing changes on an error.
  Result<int32_t> Fork(int32_t sequence, int64_t length);
  // A new sequence with all positions of another, in blocks of its own. kBadInput: no such sequence, `sequences` are live, too few
  // blocks. Nothing changes on an error.
  Result<int32_t> Copy(int32_t sequence);
  bool IsLive(int32_t sequence) const;
  int64_t Length(int32_t sequence) const;  // positions; 0 for a sequence that is not live
  // Makes room for `n` more positions, in blocks that no other sequence has; new blocks are zero. kBadInput: beyond the context, or
  // the pool is full. Nothing changes on an error.
  Status Extend(int32_t sequence, int64_t n);
  // Keeps the first `length` positions. kBadInput: no such sequence, more than there are, or positions that a window layer needs
  // and has freed. Truncating to the length before the last Extend always succeeds.
  Status Truncate(int32_t sequence, int64_t length);
  void Free(int32_t sequence);  // an unknown one is ignored

  // Writes a sequence as bytes: its length, the blocks that it holds of each group, and these blocks. Equal contents give equal bytes:
  // lanes beyond the length are zero. kBadInput: no such sequence; errors of `write`.
  using Sink = std::function<Status(std::span<const uint8_t> bytes)>;
  Status Export(int32_t sequence, const Sink& write) const;
  // A new sequence out of the bytes of Export, by a pool of the same layers. `read` fills what it is given with the bytes that
  // follow. kBadInput: bytes of other layers or none of Export's, more positions than the context, `sequences` are live, too few
  // blocks; errors of `read`. Nothing changes on an error.
  using Source = std::function<Status(std::span<uint8_t> bytes)>;
  Result<int32_t> Import(const Source& read);

  // The tables of a layer, indexed by sequence id; valid until the next call that changes a sequence.
  std::span<const KvTable> Tables(int32_t layer) const { return layers_[static_cast<size_t>(layer)].tables; }
  uint64_t BytesAllocated() const;  // of blocks in use; a shared one counts once

 private:
  struct Group {
    int32_t window = 0;
    std::vector<size_t> layers;
    size_t stride = 0;   // bytes of a block in all its layers
    int64_t needs = 0;   // blocks of a full-context sequence
    int64_t blocks = 0;  // blocks of the pool
    AnonymousMemory pool;
    std::vector<int32_t> references;  // of each block that has ever been used
    std::vector<int32_t> free;        // used blocks without references

    uint64_t bytes() const;  // of the pool; UINT64_MAX where that overflows
    int64_t available() const { return static_cast<int64_t>(free.size()) + blocks - static_cast<int64_t>(references.size()); }
    uint8_t* Block(int32_t id) const { return pool.data() + static_cast<size_t>(id) * stride; }
    bool Shared(int32_t id) const { return references[static_cast<size_t>(id)] > 1; }
    int64_t FirstNeeded(int64_t length) const;
    int64_t FirstKept(int64_t length) const;
    int32_t Take(const uint8_t* copy_of);
    void Drop(int32_t id);
  };
  struct Layer {
    KvLayout layout;
    size_t offset = 0;                            // of its block within the group's
    std::vector<std::vector<uint8_t*>> pointers;  // [sequence][block], null below `first`
    std::vector<KvTable> tables;                  // [sequence]
  };
  // A sequence's blocks of a group: [first, ids.size()) are held, those below are freed.
  struct Held {
    size_t first = 0;
    std::vector<int32_t> ids;
  };
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    std::vector<Held> held;  // [group]
  };

  static int64_t BlocksFor(int64_t positions) { return (positions + kKvBlock - 1) / kKvBlock; }
  static std::vector<Group> MakeGroups(std::span<const KvLayerSpec> layers, const KvPoolSize& size);
  static Status CheckGroups(std::span<const Group> groups, const KvPoolSize& size);
  void ClearLanes(const Group& group, uint8_t* block, int64_t from) const;
  Result<int32_t> Fill(std::span<const uint64_t> first, int64_t length, const Source& read);
  bool WritesShared(const Group& group, const Held& held, int64_t length) const;
  Status CheckHeld(const Sequence& s, int64_t length, const char* what) const;
  void Append(Group& group, int32_t sequence, Held& held, int32_t id);
  void GiveBack(Group& group, int32_t sequence, Held& held, size_t below);
  void Shorten(Group& group, int32_t sequence, Held& held, size_t blocks);

  KvPoolSize size_;
  std::vector<Group> groups_;
  std::vector<Layer> layers_;
  std::vector<Sequence> sequences_;  // indexed by id; freed ids are reused
};

}  // namespace tally
