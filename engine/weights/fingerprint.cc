// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/fingerprint.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "engine/base/checksum.h"

namespace tally {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // of a slice; a task
constexpr int32_t kInMemory = -2;

struct Piece {
  std::span<const uint8_t> bytes;  // empty: of a slice that has no fixed place
  int32_t read_with = kInMemory;   // the layer that is read from disk to these bytes
};

template <class T>
void AddValues(std::span<const T> values, Checksum* sum) {
  sum->Add({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

}  // namespace

uint64_t FingerprintOf(const PackedWeights& weights, Team& team) {
  Checksum sum;
  std::vector<Piece> pieces;
  std::vector<size_t> first_piece, slice_bytes;  // by weight
  LayerStore* const layers = weights.layers();
  for (const WeightView& w : weights.views()) {
    const std::array<int64_t, 5> shape = {static_cast<int64_t>(w.dtype), static_cast<int64_t>(w.layout), w.slices, w.rows,
                                          w.cols};
    AddValues<int64_t>(shape, &sum);
    const size_t bytes = static_cast<size_t>(weights.infos()[w.id].packed_bytes) / static_cast<size_t>(w.slices);
    first_piece.push_back(pieces.size());
    slice_bytes.push_back(bytes);
    const bool streamed = layers != nullptr && layers->DataOf(w.id) != nullptr;
    for (int64_t s = 0; s < w.slices; ++s) {
      for (size_t at = 0; at < bytes; at += kPieceBytes) {
        const size_t n = std::min(kPieceBytes, bytes - at);
        pieces.push_back({.bytes = w.slots != nullptr ? std::span<const uint8_t>() : std::span(w.Slice(s) + at, n),
                          .read_with = streamed ? weights.infos()[w.id].layer : kInMemory});
      }
    }
  }
  std::vector<uint64_t> sums(pieces.size());
  int32_t wanted = kInMemory;
  auto task = [&](int, int64_t begin, int64_t end) {
    for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      if (!pieces[i].bytes.empty() && pieces[i].read_with == wanted) sums[i] = BlockChecksum(pieces[i].bytes);
    }
  };
  team.Run(static_cast<int64_t>(pieces.size()), 1, task);
  if (layers != nullptr) {
    LayerStore::Pass pass = layers->Begin();
    for (size_t i = 0; i < layers->layers().size(); ++i) {
      if (const Status read = pass.Wait(i); !read.ok()) {
        sum.Add(read.message());
        break;
      }
      wanted = layers->layers()[i].layer;
      team.Run(static_cast<int64_t>(pieces.size()), 1, task);
      pass.Free(i);
    }
  }
  if (ExpertStore* const experts = weights.experts(); experts != nullptr) {
    const Status read = experts->ForEachRecord([&](size_t layer, int64_t expert, const uint8_t* record) {
      for (const ExpertRecords::Part& part : experts->layers()[layer].parts) {
        const size_t bytes = slice_bytes[part.weight], each = (bytes + kPieceBytes - 1) / kPieceBytes;
        size_t piece = first_piece[part.weight] + static_cast<size_t>(expert) * each;
        for (size_t at = 0; at < bytes; at += kPieceBytes) {
          sums[piece++] = BlockChecksum({record + part.offset + at, std::min(kPieceBytes, bytes - at)});
        }
      }
    });
    if (!read.ok()) sum.Add(read.message());
  }
  AddValues<uint64_t>(sums, &sum);
  return sum.value();
}

}  // namespace tally
