// SPDX-License-Identifier: Apache-2.0
// The work arrays of a thread of the Highway kernels of attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/kernels/attention/attention_internal.h"

namespace tally {

// Bytes of keys or values that are unpacked at a time, or a group of 16 positions if it is larger.
inline constexpr int64_t kUnpackBytes = 16384;

// For one tile. Query i of it is row i / heads, head i % heads of the task's heads. Sizes in floats; queries stand for the most that a tile
// has, rounded up to 16. On matrix tiles q, unpacked (keys) and edge (values) are in tiles; o is of a chunk of queries, p of two.
struct AttentionScratch {
  float* q;                                                  // [steps of k_dim][kTileQueries] factors, or as Int8Query has them
  float* o;                                                  // [queries][padded v_dim]: a block's sum of p v
  float *range_o, *all_o;                                    // [queries][padded v_dim]: the range's O, the row's
  float* p;                                                  // [queries][kKvBlock]: scores, then probabilities
  float* factors;                                            // [queries][kKvBlock / 2]: probabilities in bf16
  float* unpacked;                                           // keys or values of some groups of positions
  float* edge;                                               // [8][padded v_dim]: the values of a group, masked
  float *max, *sum;                                          // [queries]: m and l of the block
  float *range_max, *range_sum, *all_max, *all_sum, *a, *b;  // [queries]: M, L of range and row; factors of a merge

  static size_t Floats(const AttentionOp& op) {
    AttentionScratch none;
    return none.Divide(op, nullptr);
  }
  AttentionScratch(const AttentionOp& op, std::span<uint8_t> bytes) { Divide(op, reinterpret_cast<float*>(bytes.data())); }

 private:
  AttentionScratch() = default;
  // Returns the floats that it takes.
  size_t Divide(const AttentionOp& op, float* from) {
    const size_t k = static_cast<size_t>((op.layout.k_dim + 31) / 32 * 32), v = KvPadded(op.layout.v_dim),
                 queries = static_cast<size_t>(TileRows(op) * MostTaskHeads(op) + 15) / 16 * 16;
    size_t used = 0;
    auto take = [&](size_t n) {
      used += n;
      return from == nullptr ? nullptr : from + used - n;
    };
    range_o = take(queries * v);
    all_o = take(queries * v);
    if (OnTiles(op.layout)) {
      // A bf16 takes half a float. A bf16 cache's keys are read where they are.
      const size_t parts = op.layout.type == KvType::kF16 ? 2 : 1, chunk = kAmxChunk;
      q = take(queries * parts * k / 2);
      o = take(chunk * v);
      p = take(2 * chunk * kKvBlock);
      factors = nullptr;
      const size_t buffers = 2048;  // two of kAmxBuffer bytes
      unpacked = take(op.layout.type == KvType::kBF16 ? 0 : std::max<size_t>(buffers, kKvBlock * parts * k / 2));
      edge = take(std::max<size_t>(buffers, kKvBlock * parts * v / 2));
    } else {
      q = take(k * kTileQueries);
      o = take(queries * v);
      p = take(queries * kKvBlock);
      factors = take(queries * kKvBlock / 2);
      unpacked = take(std::max<size_t>(kUnpackBytes / sizeof(float), 16 * std::max(k, v)));
      edge = take(8 * v);
    }
    for (float** array : {&max, &sum, &range_max, &range_sum, &all_max, &all_sum, &a, &b}) *array = take(queries);
    return used;
  }
};

}  // namespace tally
