// SPDX-License-Identifier: Apache-2.0
// A sequence of the store as bytes: Export and Import.
//
//   u64 length, u64 number of groups, u64 bytes of a state, u64 positions before the state (0: there is none)
//   for each group: u64 window, u64 bytes of a block in all its layers, u64 number of the first block held
//   for each group: the blocks from the first held to the last
//   the state
//
// Rows of recurrent layers are written from the state on. A group with a window writes the blocks that it still holds.
//
// Numbers and blocks are as in memory, which is little-endian wherever Tally runs.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "engine/graph/sequence_store.h"

namespace tally {
namespace {

static_assert(std::endian::native == std::endian::little);

template <class T>
std::span<const uint8_t> BytesOf(const T& numbers) {
  return {reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(numbers[0])};
}
template <class T>
std::span<uint8_t> WritableBytesOf(T& numbers) {
  return {reinterpret_cast<uint8_t*>(numbers.data()), numbers.size() * sizeof(numbers[0])};
}

}  // namespace

Status SequenceStore::Export(int32_t sequence, const Sink& write) {
  if (!IsLive(sequence)) return BadInput("no sequence " + std::to_string(sequence));
  if (HasRows(sequence)) return BadInput("a sequence with pictures or positions of its own cannot be written");
  ClearAllNew();
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  const State state = recurrent() ? s.states.back() : State();
  const auto first = [&](size_t g) {
    if (!groups_[g].rows) return s.held[g].first;
    return static_cast<size_t>(state.at < s.length ? state.at / kStateRows : groups_[g].BlocksFor(s.length));
  };
  std::vector<uint64_t> header = {static_cast<uint64_t>(s.length), groups_.size(), state_bytes_, static_cast<uint64_t>(state.at)};
  for (size_t g = 0; g < groups_.size(); ++g) {
    header.insert(header.end(), {static_cast<uint64_t>(groups_[g].window), groups_[g].bytes, first(g)});
  }
  TALLY_RETURN_IF_ERROR(write(BytesOf(header)));
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const Held& held = s.held[g];
    const size_t whole = static_cast<size_t>(s.length / group.positions);
    for (size_t b = first(g); b < held.ids.size(); ++b) {
      const std::span<const uint8_t> block(Block(g, held.ids[b]), group.bytes);
      const size_t foreign =
          group.rows && b == first(g) ? static_cast<size_t>(state.at % kStateRows) : 0;  // rows before the state
      if (b < whole && foreign == 0) {
        TALLY_RETURN_IF_ERROR(write(block));
        continue;
      }
      std::vector<uint8_t> part(block.begin(), block.end());
      for (const size_t l : group.layers) {
        uint8_t* const of_layer = part.data() + layers_[l].offset;
        if (b >= whole) layers_[l].clear(of_layer, s.length % group.positions);
        std::memset(of_layer, 0, foreign * (layers_[l].bytes / kStateRows));
      }
      TALLY_RETURN_IF_ERROR(write(part));
    }
  }
  return state.id < 0 ? Status() : write({StateOf(state.id), state_bytes_});
}

Result<int32_t> SequenceStore::Import(const Source& read) {
  std::array<uint64_t, 4> start;
  TALLY_RETURN_IF_ERROR(read(WritableBytesOf(start)));
  const auto [length, n_groups, state_bytes, state_at] = start;
  if (n_groups != groups_.size() || state_bytes != state_bytes_) return BadInput("a KV cache of other layers");
  if (length > static_cast<uint64_t>(size_.context)) {
    return BadInput("a KV cache of " + std::to_string(length) + " positions, and the context has room for " +
                    std::to_string(size_.context));
  }
  std::vector<uint64_t> first;
  for (const Group& group : groups_) {
    std::array<uint64_t, 3> described;
    TALLY_RETURN_IF_ERROR(read(WritableBytesOf(described)));
    const auto [window, bytes, held] = described;
    if (window != static_cast<uint64_t>(group.window) || bytes != group.bytes) return BadInput("a KV cache of other layers");
    // CheckHeld says what a sequence of this length may lack.
    const int64_t needed =
        group.rows
            ? (state_at < length ? static_cast<int64_t>(state_at) / kStateRows : group.BlocksFor(static_cast<int64_t>(length)))
            : std::min(group.FirstNeeded(static_cast<int64_t>(length)), group.BlocksFor(static_cast<int64_t>(length)));
    if (group.rows && held != static_cast<uint64_t>(needed)) return BadInput("a KV cache without the rows that its state needs");
    if (held > static_cast<uint64_t>(needed)) {
      return BadInput("a KV cache without the positions that a layer with a window of " + std::to_string(window) + " needs");
    }
    first.push_back(held);
  }
  // Rows lead from the state to the end: an export has at most two blocks of them.
  if (state_at > length || (state_at > 0 && !recurrent()) || (recurrent() && length - state_at >= 2 * kStateRows)) {
    return BadInput("a KV cache of " + std::to_string(length) + " positions with a state after " + std::to_string(state_at));
  }
  return Fill(first, static_cast<int64_t>(length), static_cast<int64_t>(state_at), read);
}

// A new sequence that holds the blocks from `first` [group] on, with the bytes of `read`.
Result<int32_t> SequenceStore::Fill(std::span<const uint64_t> first, int64_t length, int64_t state_at, const Source& read) {
  uint64_t bytes = state_at > 0 ? state_stride_ : 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    bytes += (static_cast<uint64_t>(groups_[g].BlocksFor(length)) - first[g]) * groups_[g].stride;
  }
  if (bytes > pool_->available()) return NoRoomFor("a sequence of " + std::to_string(length) + " positions", bytes);
  TALLY_ASSIGN_OR_RETURN(const int32_t sequence, NewSequence());
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (size_t g = 0; g < groups_.size(); ++g) {
    Held& held = s.held[g];
    while (held.ids.size() < first[g]) Append(g, sequence, -1);
    held.first = held.ids.size();
    if (groups_[g].rows) held.first = std::min(held.first, static_cast<size_t>(length / groups_[g].positions));
    while (static_cast<int64_t>(held.ids.size()) < groups_[g].BlocksFor(length)) {
      Append(g, sequence, Take(g).id);
      if (Status status = read({Block(g, held.ids.back()), groups_[g].bytes}); !status.ok()) {
        Free(sequence);
        return status;
      }
    }
  }
  s.length = length;
  if (!recurrent()) return sequence;
  s.rows_from = s.rows_from_before = state_at;
  s.before = length;
  if (state_at == 0) return sequence;
  s.states = {{state_at, Take(state_group()).id}};
  if (Status status = read({StateOf(s.states[0].id), state_bytes_}); !status.ok()) {
    Free(sequence);
    return status;
  }
  return sequence;
}

}  // namespace tally
