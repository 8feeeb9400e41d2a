// SPDX-License-Identifier: Apache-2.0
// A sequence of the KV pool as bytes: Export and Import.
//
//   u64 length, u64 number of groups
//   for each group: u64 window, u64 bytes of a block in all its layers, u64 number of the first block held
//   for each group: the blocks from the first held to the last
//
// Numbers and blocks are as in memory, which is little-endian wherever Tally runs.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "engine/graph/kv_pool.h"

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

// Positions of a block from lane `from` on.
void KvPool::ClearLanes(const Group& group, uint8_t* block, int64_t from) const {
  for (const size_t l : group.layers) {
    const KvLayout& layout = layers_[l].layout;
    const std::vector<float> zeros(static_cast<size_t>(std::max(layout.k_dim, layout.v_dim)));
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      for (int64_t lane = from; lane < kKvBlock; ++lane) {
        layout.Store(block + layers_[l].offset, head, lane, zeros.data(), zeros.data());
      }
    }
  }
}

Status KvPool::Export(int32_t sequence, const Sink& write) const {
  if (!IsLive(sequence)) return BadInput("no sequence " + std::to_string(sequence));
  const Sequence& s = sequences_[static_cast<size_t>(sequence)];
  std::vector<uint64_t> header = {static_cast<uint64_t>(s.length), groups_.size()};
  for (size_t g = 0; g < groups_.size(); ++g) {
    header.insert(header.end(), {static_cast<uint64_t>(groups_[g].window), groups_[g].stride, s.held[g].first});
  }
  TALLY_RETURN_IF_ERROR(write(BytesOf(header)));
  const size_t whole = static_cast<size_t>(s.length / kKvBlock);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const Held& held = s.held[g];
    for (size_t b = held.first; b < held.ids.size(); ++b) {
      const std::span<const uint8_t> block(group.Block(held.ids[b]), group.stride);
      if (b < whole) {
        TALLY_RETURN_IF_ERROR(write(block));
        continue;
      }
      std::vector<uint8_t> last(block.begin(), block.end());
      ClearLanes(group, last.data(), s.length % kKvBlock);
      TALLY_RETURN_IF_ERROR(write(last));
    }
  }
  return {};
}

Result<int32_t> KvPool::Import(const Source& read) {
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
    const auto [window, stride, held] = described;
    if (window != static_cast<uint64_t>(group.window) || stride != group.stride) return BadInput("a KV cache of other layers");
    // What a sequence of this length may lack: CheckHeld.
    const int64_t needed = std::min(group.FirstNeeded(static_cast<int64_t>(length)), BlocksFor(static_cast<int64_t>(length)));
    if (held > static_cast<uint64_t>(needed)) {
      return BadInput("a KV cache without the positions that a layer with a window of " + std::to_string(window) + " needs");
    }
    first.push_back(held);
  }
  return Fill(first, static_cast<int64_t>(length), read);
}

// A new sequence that holds the blocks from `first` [group] on, with the bytes of `read`.
Result<int32_t> KvPool::Fill(std::span<const uint64_t> first, int64_t length, const Source& read) {
  const int64_t blocks = BlocksFor(length);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t needed = blocks - static_cast<int64_t>(first[g]);
    if (groups_[g].available() >= needed) continue;
    return NoRoom("the KV cache is full: " + std::to_string(length) + " positions need " + std::to_string(needed) +
                  " blocks, and " + std::to_string(groups_[g].available()) + " are free");
  }
  TALLY_ASSIGN_OR_RETURN(const int32_t sequence, NewSequence());
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    Held& held = s.held[g];
    while (held.ids.size() < first[g]) Append(group, sequence, held, -1);
    held.first = held.ids.size();
    while (static_cast<int64_t>(held.ids.size()) < blocks) {
      Append(group, sequence, held, group.Take(nullptr));
      if (Status status = read({group.Block(held.ids.back()), group.stride}); !status.ok()) {
        Free(sequence);
        return status;
      }
    }
  }
  s.length = length;
  return sequence;
}

}  // namespace tally
