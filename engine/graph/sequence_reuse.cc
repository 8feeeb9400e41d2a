// SPDX-License-Identifier: Apache-2.0
// Sequences that begin as others did: what the store's index remembers and finds, and how it forgets.
#include <algorithm>
#include <string>

#include "engine/graph/sequence_store.h"

namespace tally {

void SequenceStore::Remember(int32_t sequence, std::string_view key, std::span<const int32_t> tokens, int32_t states) {
  if (!IsLive(sequence) || (slot_groups_.empty() && states == 0)) return;
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  tokens = tokens.first(std::min(tokens.size(), static_cast<size_t>(s.length)));
  if (tokens.empty()) return;
  const int32_t root = index_.Root(key);
  int32_t node = s.root == root && index_.Exists(s.node, s.generation) ? s.node : root;
  if (index_.end(node) > static_cast<int64_t>(tokens.size())) node = root;
  int32_t last = node;
  std::vector<int32_t> symbols;
  const size_t from = static_cast<size_t>(index_.end(node));
  std::span<const int32_t> more = tokens.subspan(from);
  if (!s.rows.empty()) {
    ForgetSymbols();
    symbols = symbols_.Of(tokens, s.rows, static_cast<int64_t>(from), true);
    more = symbols;
    tokens = tokens.first(from + symbols.size());
  }
  for (size_t at = 0; at < more.size(); at += PrefixIndex::kTokens) {
    const std::span<const int32_t> piece = more.subspan(at, std::min<size_t>(PrefixIndex::kTokens, more.size() - at));
    const PrefixIndex::Entry entry = index_.Enter(node, piece);
    if (entry.node == PrefixIndex::kNone) break;
    Attach(sequence, entry.node, entry.known);
    last = entry.node;
    if (piece.size() == PrefixIndex::kTokens) node = last;
  }
  s.root = root;
  s.node = node;
  s.generation = index_.generation(node);
  if (recurrent()) {
    if (!s.rows.empty()) symbols = symbols_.Of(tokens, s.rows, 0, true);
    RememberStates(s, key, s.rows.empty() ? tokens : std::span<const int32_t>(symbols), states);
  }
  index_.Prune(last);
}

// If the node names no block, or one that holds less than its tokens, it now names the sequence's. If it already names a block of the same
// tokens, the sequence takes that one. So a sequence that holds a node's block also holds the blocks of the nodes above.
void SequenceStore::Attach(int32_t sequence, int32_t node, int64_t known) {
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const int64_t begin = index_.begin(node), tokens = index_.end(node) - begin;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].rows) continue;
    const int64_t positions = groups_[g].positions;
    for (int64_t i = 0; i * positions < tokens; ++i) {
      const size_t at = static_cast<size_t>(begin / positions + i), slot = groups_[g].slot + static_cast<size_t>(i);
      const int32_t own = s.held[g].ids[at], named = index_.block(node, slot);
      if (own == named) continue;
      const bool complete = (i + 1) * positions <= tokens;
      if (named >= 0 && known >= std::min((i + 1) * positions, tokens)) {
        if (own < 0 || !complete) continue;
        pool_->Share(g, named);
        Put(g, sequence, at, named);
        continue;
      }
      if (named >= 0) {
        index_.SetBlock(node, slot, PrefixIndex::kNone);
        pool_->Release(g, named);
      }
      if (own >= 0 && pool_->holder(g, own) < 0) {
        index_.SetBlock(node, slot, own);
        pool_->Hold(g, own, node);
      }
    }
  }
}

// Block `at` of a group, along the path.
int32_t SequenceStore::Named(const PrefixIndex::Path& path, size_t group, int64_t at) const {
  const int64_t in_node = PrefixIndex::kTokens / groups_[group].positions;
  return index_.block(path.nodes[static_cast<size_t>(at / in_node)], groups_[group].slot + static_cast<size_t>(at % in_node));
}

// The most of the first `length` tokens for which every group has what the next position needs.
int64_t SequenceStore::Usable(const PrefixIndex::Path& path, int64_t length) const {
  for (bool lowered = true; lowered;) {
    lowered = false;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      if (group.rows) continue;
      for (int64_t b = group.BlocksFor(length) - 1; b >= group.FirstNeeded(length); --b) {
        if (Named(path, g, b) >= 0) continue;
        length = b * group.positions;  // any more would need this block, too
        lowered = true;
      }
    }
  }
  return length;
}

// The first of the blocks that a sequence of `length` along the path is to hold.
int64_t SequenceStore::FirstNamed(const PrefixIndex::Path& path, size_t group, int64_t length) const {
  int64_t first = groups_[group].BlocksFor(length);
  while (first > groups_[group].FirstKept(length) && Named(path, group, first - 1) >= 0) --first;
  return first;
}

// Whether a new sequence of `length` may go on writing into its partial last block, instead of a copy of it: no sequence holds the block,
// and the index names it for no position from `length` on.
bool SequenceStore::Continues(const PrefixIndex::Path& path, size_t group, int64_t length) const {
  const int32_t id = Named(path, group, groups_[group].BlocksFor(length) - 1);
  const int32_t node = path.nodes[static_cast<size_t>((length - 1) / PrefixIndex::kTokens)];
  return pool_->references(group, id) == 0 && index_.end(node) == length;
}

// Bytes that a sequence of `length` along the path takes.
uint64_t SequenceStore::BytesToReuse(const PrefixIndex::Path& path, int64_t length) const {
  uint64_t bytes = 0;
  if (recurrent() && length > 0) bytes += pool_->references(state_group(), StateAt(path, length)) == 0 ? state_stride_ : 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].rows) continue;
    for (int64_t b = FirstNamed(path, g, length); b < groups_[g].BlocksFor(length); ++b) {
      bytes += pool_->references(g, Named(path, g, b)) == 0 ? groups_[g].stride : 0;
    }
    if (length % groups_[g].positions != 0 && !Continues(path, g, length)) bytes += groups_[g].stride;
  }
  return bytes;
}

int32_t SequenceStore::StateAt(const PrefixIndex::Path& path, int64_t at) {
  return std::ranges::find_if(path.states, [&](const PrefixIndex::State& state) { return state.at == at; })->id;
}

// Keeps rows that see one another together.
int64_t SequenceStore::Reusable(const PrefixIndex::Path& path, std::span<const SequenceRow> rows) const {
  if (recurrent()) {
    for (size_t i = path.states.size(); i > 0; --i) {
      const int64_t at = path.states[i - 1].at;
      if (SpanAround(rows, at).empty() && Usable(path, at) == at && BytesToReuse(path, at) <= pool_->available()) return at;
    }
    return 0;
  }
  const auto usable = [&](int64_t length) {
    length = Usable(path, length);
    for (RowSpan cut; !(cut = SpanAround(rows, length)).empty();) length = Usable(path, cut.begin);
    return length;
  };
  int64_t length = usable(path.length);
  if (BytesToReuse(path, length) <= pool_->available()) return length;
  // Without copies there is room: shared blocks take no new bytes.
  do {
    length = usable(length / PrefixIndex::kTokens * PrefixIndex::kTokens);
  } while (length % PrefixIndex::kTokens != 0);
  return length;
}

// `rows`: of the tokens.
PrefixIndex::Path SequenceStore::Find(std::string_view key, std::span<const int32_t> tokens, std::span<SequenceRow> rows) const {
  tokens = tokens.first(std::min(tokens.size(), static_cast<size_t>(size_.context)));
  const auto no_token = std::ranges::find_if(tokens, [](int32_t token) { return token < 0; });  // it could be taken for a symbol
  tokens = tokens.first(static_cast<size_t>(no_token - tokens.begin()));
  return rows.empty() ? index_.Find(key, tokens) : index_.Find(key, symbols_.Of(tokens, rows, 0, false));
}

int64_t SequenceStore::Reusable(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow> rows) const {
  std::vector<SequenceRow> own = RowsOfPrefix(tokens, rows);
  return Reusable(Find(key, tokens, own), own);
}

// Once there are many symbols, keeps those of the index and of sequences.
void SequenceStore::ForgetSymbols() {
  if (symbols_.size() < most_symbols_) return;
  std::vector<int32_t> used;
  index_.ForEach([&](int32_t node) {
    for (const int32_t token : index_.tokens(node)) {
      if (token < 0) used.push_back(token);
    }
  });
  for (const Sequence& s : sequences_) {
    for (const SequenceRow& r : s.rows) {
      if (r.symbol < 0) used.push_back(r.symbol);
    }
  }
  std::ranges::sort(used);
  symbols_.KeepOnly(used);
  most_symbols_ = std::max(kMostSymbols, 2 * symbols_.size());
}

Result<int32_t> SequenceStore::NewSequenceFor(std::string_view key, std::span<const int32_t> tokens,
                                              std::span<const PrefixRow> rows) {
  TALLY_ASSIGN_OR_RETURN(const int32_t sequence, NewSequence());
  std::vector<SequenceRow> own = RowsOfPrefix(tokens, rows);
  const PrefixIndex::Path path = Find(key, tokens, own);
  const int64_t length = Reusable(path, own);
  std::vector<bool> copied(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    copied[g] = !groups_[g].rows && length % groups_[g].positions != 0 && !Continues(path, g, length);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {  // all are held before one is copied, which may evict others
    Held& held = sequences_[static_cast<size_t>(sequence)].held[g];
    const int64_t first = groups_[g].rows ? groups_[g].BlocksFor(length) : FirstNamed(path, g, length);
    for (int64_t b = 0; b < groups_[g].BlocksFor(length); ++b) {
      const int32_t id = b < first ? -1 : Named(path, g, b);
      if (id >= 0) pool_->Share(g, id);
      Append(g, sequence, id);
    }
    held.first = static_cast<size_t>(groups_[g].rows ? length / groups_[g].positions : first);
  }
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (recurrent() && length > 0) {
    s.states = {{length, StateAt(path, length)}};
    pool_->Share(state_group(), s.states[0].id);
    s.rows_from = s.rows_from_before = s.before = length;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (copied[g]) CopyLast(g, sequence);
  }
  s.length = length;
  s.rows = std::move(own);
  DropRows(s, length);
  return sequence;
}

// Removes the block from the index. Without a window, also removes what follows it in the chain.
void SequenceStore::Forget(size_t group, int32_t id) {
  const int32_t node = pool_->holder(group, id);
  if (group == state_group()) {
    index_.RemoveState(node, id);
    pool_->Release(group, id);
    return index_.Prune(node);
  }
  if (groups_[group].window == 0) {
    return index_.Remove(
        node, [&](size_t slot, int32_t named) { pool_->Release(slot_groups_[slot], named); },
        [&](int32_t state) { pool_->Release(state_group(), state); });
  }
  size_t slot = groups_[group].slot;
  while (index_.block(node, slot) != id) ++slot;
  index_.SetBlock(node, slot, PrefixIndex::kNone);
  pool_->Release(group, id);
  index_.Prune(node);
}

Status SequenceStore::VerifyIndex() const {
  TALLY_RETURN_IF_ERROR(index_.Verify());
  Status status;
  std::vector<size_t> named(groups_.size() + 1);
  index_.ForEach([&](int32_t node) {
    for (const PrefixIndex::State& state : index_.states(node)) {
      ++named[state_group()];
      if (pool_->holder(state_group(), state.id) != node) status = InternalError("a state is held by another node");
    }
    for (size_t slot = 0; slot < slot_groups_.size(); ++slot) {
      const size_t g = slot_groups_[slot];
      const int32_t id = index_.block(node, slot);
      named[g] += id >= 0 ? 1 : 0;
      const std::string name = "node " + std::to_string(node) + ", slot " + std::to_string(slot);
      if (id >= 0 && pool_->holder(g, id) != node) status = InternalError(name + " names a block of another node");
      // Chains are evicted from their end.
      const int64_t first = index_.begin(node) + static_cast<int64_t>(slot - groups_[g].slot) * groups_[g].positions;
      if (id < 0 && groups_[g].window == 0 && first < index_.end(node)) status = InternalError(name + " lacks a block");
    }
  });
  TALLY_RETURN_IF_ERROR(std::move(status));
  uint64_t cached = 0;
  for (size_t g = 0; g < groups_.size() + (recurrent() ? 1 : 0); ++g) {
    size_t held = 0;
    for (int32_t id = 0; id < pool_->blocks(g); ++id) {
      const bool has_holder = pool_->holder(g, id) >= 0;
      held += has_holder ? 1 : 0;
      cached += has_holder && pool_->references(g, id) == 0 ? pool_->stride(g) : 0;
    }
    if (held != named[g]) {
      return InternalError("group " + std::to_string(g) + ": " + std::to_string(held) + " blocks with a node, nodes name " +
                           std::to_string(named[g]));
    }
  }
  if (cached != pool_->cached()) {
    return InternalError(std::to_string(pool_->cached()) + " bytes counted as cached, " + std::to_string(cached) + " are");
  }
  return {};
}

}  // namespace tally
