// SPDX-License-Identifier: Apache-2.0
// The memory of sequences: blocks of positions, and for each sequence and layer a table of its blocks.
//
// Layers with the same window and block length form a group. A block id of a group stands for one block in each of its layers, which lie
// side by side in whole pages. All groups share one budget of bytes (block_pool.h). Several sequences may share a block (Fork); blocks are
// counted by references, and only a block with one reference is written. Groups with a window drop the blocks below the window of the next
// position, except one, so that a sequence can be rolled back a little.
//
// The store remembers which blocks hold which tokens, in use or not, partial last ones too (prefix_index.h). A block that no sequence
// holds stays cached until its bytes are needed; the least recently used one is evicted first. In a group without a window, a block
// is evicted only together with those that follow it. The contents of a block depend only on the tokens up to its end, so sharing
// changes no bits.
//
// A recurrent layer keeps states of a sequence (kernels/state/state.h): the running one, which a step overwrites, and earlier ones to go
// back to, with rows to replay the positions in between. All recurrent layers of a sequence are at the same position, so one block id
// names a state, or a block of rows, in each of them. The index names states, not rows, and only at positions that the caller of
// Remember asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/graph/block_pool.h"
#include "engine/graph/prefix_index.h"
#include "engine/graph/row_symbols.h"
#include "engine/kernels/state/state.h"
#include "engine/machine/parallel.h"

namespace tally {

// The memory of a layer for a sequence.
struct StoreLayer {
  int32_t window = 0;            // positions that a query sees, its own included; 0: all
  int32_t positions = kKvBlock;  // positions of a block: a divisor of kKvBlock, or kKvBlock itself without a window
  size_t bytes = 0;              // of a block; 0: the layer keeps nothing
  size_t state_bytes = 0;  // bytes of a recurrent layer's state; its blocks of rows have kStateRows positions. 0: not recurrent
  std::function<void(uint8_t* block, int64_t from)> clear;  // zeroes the positions of a block from `from` on
};
// Keys and values.
StoreLayer KvStoreLayer(int32_t window, const KvLayout& layout);
StoreLayer StateStoreLayer(const StateLayout& layout);

struct StoreSize {
  int64_t context = 0;    // maximum positions of a sequence
  int32_t sequences = 1;  // maximum number of live sequences
  int64_t max_batch = 1;  // maximum positions of one Extend
  uint64_t bytes = 0;     // the budget, rounded down to whole pages; 0: all sequences at full context
};

class SequenceStore {
 public:
  // kBadInput: more than the address space, or too few bytes for a sequence's first max_batch positions (names both sizes).
  static Status Check(std::span<const StoreLayer> layers, const StoreSize& size);
  // The budget in bytes: the most memory that blocks take. UINT64_MAX on overflow.
  static uint64_t PlanBytes(std::span<const StoreLayer> layers, const StoreSize& size);
  // Errors of Check. kNoRoom: no memory. `team` clears and copies blocks, and must outlive the store; null: the caller does.
  static Result<std::unique_ptr<SequenceStore>> Create(std::span<const StoreLayer> layers, const StoreSize& size, Team* team);

  // Errors: kNoRoom if bytes, sequences or positions are missing now; kBadInput if the request can never succeed. Nothing changes on an
  // error.

  Result<int32_t> NewSequence();  // empty. kNoRoom: `sequences` are live
  // A new sequence with the first `length` positions of another. Whole blocks are shared, a partial last one is copied.
  // kBadInput: no such sequence, a length it does not have, positions that a window layer needs and has dropped. kNoRoom: `sequences`
  // are live, no room for the copy.
  Result<int32_t> Fork(int32_t sequence, int64_t length);
  // A new sequence with all positions of another, in blocks of its own. kBadInput: no such sequence. kNoRoom: `sequences` are live,
  // too few bytes.
  Result<int32_t> Copy(int32_t sequence);
  bool IsLive(int32_t sequence) const;
  int64_t Length(int32_t sequence) const;  // positions; 0 for a sequence that is not live
  // Makes room for `n` more positions, in blocks that no other sequence has; new blocks are zero. kNoRoom: beyond the context, or too
  // few bytes. `keep_first`: of recurrent layers, the state after the first of several new positions is kept, to go back to without doing
  // steps again. Earlier positions than those of the state before may then be given up.
  Status Extend(int32_t sequence, int64_t n, bool keep_first = false);
  // Tells what some of the new positions of the last Extend are, besides tokens; ascending. Fork, Copy, Truncate and the index keep to it.
  void AddRows(int32_t sequence, std::span<const int32_t> tokens, std::span<const PrefixRow> rows);
  // The position of the next row, if none is given.
  int64_t NextPosition(int32_t sequence) const;
  bool HasRows(int32_t sequence) const { return IsLive(sequence) && !sequences_[static_cast<size_t>(sequence)].rows.empty(); }
  // Keeps the first `length` positions. kBadInput: no such sequence, more than there are, a cut between rows that see one another (so does
  // Fork), or positions that a window layer or a recurrent
  // one needs and has dropped. Truncating to the length before the last Extend always succeeds. With recurrent layers, so does any length
  // from the last multiple of kStateRows on, and from the one before it if steps were short.
  Status Truncate(int32_t sequence, int64_t length);
  void Free(int32_t sequence);  // an unknown one is ignored

  // The index. Only sequences with equal keys share what they have run.
  //
  // From now on the blocks of a sequence's first positions are found by `tokens`, which these positions have run; more of them than the
  // sequence has are ignored. To be called after each step, since the next one drops blocks that a window has left; its cost grows with the
  // tokens since the last call. A sequence has one key. Blocks of equal contents are kept once: the sequence's tables may change.
  // `states`: how many of the recurrent layers' states are found from now on: the last one, and the one before. Without recurrent layers
  // every length is found again; with them, those of states.
  void Remember(int32_t sequence, std::string_view key, std::span<const int32_t> tokens, int32_t states);
  // A new sequence with as many of the first `tokens` as are remembered, maybe none: Length tells. Whole blocks are shared; a partial last
  // one is copied, or used as it is if no other sequence has it. The caller leaves out the token whose logits it wants. kNoRoom:
  // `sequences` are live.
  // `rows`: what some of them are besides tokens.
  Result<int32_t> NewSequenceFor(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow> rows = {});
  // The length of such a sequence, if it were made now.
  int64_t Reusable(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow> rows = {}) const;

  // Writes a sequence as bytes: its length, the blocks that it holds of each group, and these blocks. Equal contents give equal bytes:
  // positions beyond the length are zero. kBadInput: no such sequence, one with rows that are more than tokens; errors of `write`.
  using Sink = std::function<Status(std::span<const uint8_t> bytes)>;
  Status Export(int32_t sequence, const Sink& write);
  // A new sequence out of the bytes of Export, by a store of the same layers. `read` fills what it is given with the bytes that
  // follow. kBadInput: bytes of other layers or none of Export's, more positions than the context; errors of `read`. kNoRoom:
  // `sequences` are live, too few bytes.
  using Source = std::function<Status(std::span<uint8_t> bytes)>;
  Result<int32_t> Import(const Source& read);

  // The tables of a layer, indexed by sequence id; valid until the next call that changes a sequence. Blocks that are new to the layer
  // are cleared now, by the team.
  std::span<const KvTable> Tables(int32_t layer);
  // The same of a recurrent layer, for the step that follows the last Extend.
  std::span<const StateTable> States(int32_t layer) const;

  uint64_t Budget() const { return pool_->budget(); }
  // Bytes of the blocks and states that a sequence holds, shared ones included.
  uint64_t BytesHeld(int32_t sequence) const;
  uint64_t BytesInUse() const { return pool_->in_use(); }  // of blocks that sequences hold; a shared one counts once
  // Bytes of remembered blocks that no sequence holds. They are evicted when others need the bytes.
  uint64_t BytesCached() const { return pool_->cached(); }
  // False if another sequence has the last layer's block of this position too.
  bool Owns(int32_t sequence, int64_t position) const;
  // The most bytes that a sequence of `positions` holds which grows by at most max_batch at a time.
  uint64_t BytesFor(int64_t positions) const;
  // kInternal: the counts contradict each other. For tests.
  Status Verify() const;

 private:
  // A group of layers. Recurrent layers have one for their rows, in which a sequence may lack blocks between those that it has.
  struct Group {
    int32_t window = 0, positions = kKvBlock;
    bool rows = false;
    std::vector<size_t> layers;
    uint64_t bytes = 0, stride = 0;  // of a block in all its layers, and in whole pages
    size_t slot = 0;                 // of its first block in a node of the index

    int64_t BlocksFor(int64_t n) const { return (n + positions - 1) / positions; }
    int64_t FirstNeeded(int64_t length) const;
    int64_t FirstKept(int64_t length) const;
    int64_t Needs(int64_t length, int64_t max_batch) const;
  };
  struct Groups {
    std::vector<Group> groups;
    uint64_t state_bytes = 0, state_stride = 0;  // of a state of all recurrent layers, and in whole pages; 0: there are none
  };
  static constexpr size_t kMostSymbols = 4096;
  struct Layer {
    size_t bytes = 0, offset = 0;  // of its block, within the group's
    size_t state_offset = 0;       // of its state, within all layers'
    size_t group = 0;
    std::function<void(uint8_t*, int64_t)> clear;
    std::vector<std::vector<uint8_t*>> pointers;  // [sequence][block], null if none is held
    std::vector<KvTable> tables;                  // [sequence]
    std::vector<StateTable> states;               // [sequence]
    std::vector<int32_t> dirty;                   // blocks that are to be cleared; they have references
  };
  // A sequence's blocks of a group: [first, ids.size()) are held, those below are dropped.
  struct Held {
    size_t first = 0;
    std::vector<int32_t> ids;
  };
  // What the recurrent layers know after `at` positions. id -1: zeros, before the first.
  struct State {
    int64_t at = 0;
    int32_t id = -1;
  };
  struct Sequence {
    bool live = false;
    int64_t length = 0;
    std::vector<Held> held;  // [group]
    std::vector<SequenceRow> rows = {};
    // Recurrent layers. Ascending; the last is the running one, or earlier than `length` after Truncate. A step can start from one at
    // `length`, or at rows_from or beyond: the rows of [rows_from, length) are kept.
    std::vector<State> states;
    int64_t rows_from = 0;
    int64_t before = 0, rows_from_before = 0;  // the rows of [rows_from_before, before) are kept as well, until the next Extend
    int64_t RowsFrom(int64_t at) const { return at <= before ? rows_from_before : rows_from; }  // rows_from after a cut to `at`
    // The last whole node of the index that stands for its tokens.
    int32_t root = PrefixIndex::kNone, node = PrefixIndex::kNone;
    uint64_t generation = 0;
  };

  // What an Extend does with states and rows.
  struct StatePlan {
    std::vector<State> kept;     // of the sequence's
    int64_t rows_from = 0;       // of the existing rows, those from here on are kept
    bool in_place = false;       // the running state is overwritten
    int64_t mid_at = 0;          // position of the state that is kept on the way; 0: none
    int64_t rows_from_then = 0;  // rows_from after the step
  };

  static Groups MakeGroups(std::span<const StoreLayer> layers);
  static uint64_t BytesFor(const Groups& g, int64_t positions, int64_t max_batch);
  static uint64_t BudgetOf(const Groups& g, const StoreSize& size);
  static Status CheckGroups(const Groups& g, const StoreSize& size);
  template <class F>
  void InPieces(size_t blocks, size_t bytes, const F& f);

  uint8_t* Block(size_t group, int32_t id) const { return pool_->data(group, id); }
  BlockPool::Taken Take(size_t group);
  int32_t TakeEmpty(size_t group);
  int32_t TakeCopy(size_t group, int32_t id);
  void Drop(size_t group, int32_t id);
  void ClearNew(Layer& layer);
  void ClearAllNew();

  bool recurrent() const { return state_stride_ > 0; }
  size_t state_group() const { return groups_.size(); }  // the pool's
  uint8_t* StateOf(int32_t id) const { return Block(state_group(), id); }
  StatePlan PlanStates(const Sequence& s, int64_t n, bool keep_first) const;
  uint64_t RowBlocksToTake(const Sequence& s, size_t group, int64_t n, const StatePlan& plan) const;
  void ExtendRows(size_t group, int32_t sequence, int64_t n, const StatePlan& plan);
  void ExtendStates(int32_t sequence, int64_t n, const StatePlan& plan);
  void DropStates(Sequence& s, size_t kept);
  static size_t StatesAt(const Sequence& s, int64_t length);
  void RememberStates(const Sequence& s, std::string_view key, std::span<const int32_t> tokens, int32_t states);

  Status NoRoomFor(const std::string& what, uint64_t bytes) const;
  uint64_t BytesToExtend(const Sequence& s, int64_t n, const StatePlan& plan) const;
  uint64_t BytesToDrop(const Sequence& s, const StatePlan& plan) const;
  bool FitsToExtend(const Sequence& s, int64_t n, bool keep_first) const;
  size_t DroppedBelow(const Sequence& s, size_t group, const StatePlan& plan) const;
  bool WritesShared(const Sequence& s, size_t group) const;
  void OwnLast(size_t group, int32_t sequence);
  void CopyLast(size_t group, int32_t sequence);
  void Put(size_t group, int32_t sequence, size_t at, int32_t id);

  void Attach(int32_t sequence, int32_t node, int64_t known);
  void Forget(size_t group, int32_t id);
  int32_t Named(const PrefixIndex::Path& path, size_t group, int64_t at) const;
  int64_t Usable(const PrefixIndex::Path& path, int64_t length) const;
  int64_t FirstNamed(const PrefixIndex::Path& path, size_t group, int64_t length) const;
  bool Continues(const PrefixIndex::Path& path, size_t group, int64_t length) const;
  uint64_t BytesToReuse(const PrefixIndex::Path& path, int64_t length) const;
  int64_t Reusable(const PrefixIndex::Path& path, std::span<const SequenceRow> rows) const;
  PrefixIndex::Path Find(std::string_view key, std::span<const int32_t> tokens, std::span<SequenceRow> rows) const;
  Status CheckCut(const Sequence& s, int64_t length, const char* what) const;
  static void DropRows(Sequence& s, int64_t length);
  void ForgetSymbols();
  static int32_t StateAt(const PrefixIndex::Path& path, int64_t at);
  Status VerifyIndex() const;

  Result<int32_t> Fill(std::span<const uint64_t> first, int64_t length, int64_t state_at, const Source& read);
  Status CheckHeld(const Sequence& s, int64_t length, const char* what) const;
  void Append(size_t group, int32_t sequence, int32_t id);
  void DropBelow(size_t group, int32_t sequence, size_t below);
  void Shorten(size_t group, int32_t sequence, size_t blocks);

  StoreSize size_;
  Team* team_ = nullptr;
  std::vector<Group> groups_;
  uint64_t state_bytes_ = 0, state_stride_ = 0;
  std::vector<Layer> layers_;
  std::unique_ptr<BlockPool> pool_;
  std::vector<Sequence> sequences_;  // indexed by id; freed ids are reused
  PrefixIndex index_;
  mutable RowSymbols symbols_;          // looking up makes none
  size_t most_symbols_ = kMostSymbols;  // when there are more, those that are not in use are forgotten
  std::vector<size_t> slot_groups_;     // the group of each slot of the index
};

}  // namespace tally
