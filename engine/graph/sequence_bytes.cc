// SPDX-License-Identifier: Apache-2.0
// A sequence of the store as bytes: Export and Import.
//
//   u64 length, u64 number of groups
//   for each group: u64 window, u64 bytes of a block in all its layers, u64 number of the first block held
//   for each group: the blocks from the first held to the last
//
// Numbers and blocks are as in memory, which is little-endian wherever Tally runs.
#include <algorithm>
#include <array>
#include <bit>
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
  ClearAllNew();
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  std::vector<uint64_t> header = {static_cast<uint64_t>(s.length), groups_.size()};
  for (size_t g = 0; g < groups_.size(); ++g) {
    header.insert(header.end(), {static_cast<uint64_t>(groups_[g].window), groups_[g].bytes, s.held[g].first});
  }
  TALLY_RETURN_IF_ERROR(write(BytesOf(header)));
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const Held& held = s.held[g];
    const size_t whole = static_cast<size_t>(s.length / group.positions);
    for (size_t b = held.first; b < held.ids.size(); ++b) {
      const std::span<const uint8_t> block(Block(g, held.ids[b]), group.bytes);
      if (b < whole) {
        TALLY_RETURN_IF_ERROR(write(block));
        continue;
      }
      std::vector<uint8_t> last(block.begin(), block.end());
      for (const size_t l : group.layers) layers_[l].clear(last.data() + layers_[l].offset, s.length % group.positions);
      TALLY_RETURN_IF_ERROR(write(last));
    }
  }
  return {};
}

Result<int32_t> SequenceStore::Import(const Source& read) {
  std::array<uint64_t, 2> start;
  TALLY_RETURN_IF_ERROR(read(WritableBytesOf(start)));
  const auto [length, n_groups] = start;
  if (n_groups != groups_.size()) return BadInput("a KV cache of other layers");
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
    // What a sequence of this length may lack: CheckHeld.
    const int64_t needed =
        std::min(group.FirstNeeded(static_cast<int64_t>(length)), group.BlocksFor(static_cast<int64_t>(length)));
    if (held > static_cast<uint64_t>(needed)) {
      return BadInput("a KV cache without the positions that a layer with a window of " + std::to_string(window) + " needs");
    }
    first.push_back(held);
  }
  return Fill(first, static_cast<int64_t>(length), read);
}

// A new sequence that holds the blocks from `first` [group] on, with the bytes of `read`.
Result<int32_t> SequenceStore::Fill(std::span<const uint64_t> first, int64_t length, const Source& read) {
  uint64_t bytes = 0;
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
    while (static_cast<int64_t>(held.ids.size()) < groups_[g].BlocksFor(length)) {
      Append(g, sequence, Take(g).id);
      if (Status status = read({Block(g, held.ids.back()), groups_[g].bytes}); !status.ok()) {
        Free(sequence);
        return status;
      }
    }
  }
  s.length = length;
  return sequence;
}

}  // namespace tally
