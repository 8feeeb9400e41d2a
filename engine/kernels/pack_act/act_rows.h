// SPDX-License-Identifier: Apache-2.0
// Single elements of a pack, for scalar kernels and tests.
#pragma once

#include <algorithm>
#include <cstring>

#include "engine/base/float16.h"
#include "engine/kernels/pack_act/act_pack.h"

namespace tally {

// Row `row` of group `group`: row j of `tile`.
struct PackedRow {
  const uint8_t* tile;
  int64_t tile_rows;
  int64_t j;
  int sums;
  int64_t run;

  PackedRow(const ActPack& pack, const RowGroup& group, int64_t row) {
    const ActTiling tiling = TilingOf(pack.format, group.rows);
    const int64_t size = tiling.rows, first = row / size * size;
    run = tiling.run;
    tile = pack.data + static_cast<size_t>(group.row_begin + first) * pack.row_bytes();
    tile_rows = std::min(size, group.rows - first);
    j = row - first;
    sums = pack.format.sums;
  }

  template <class T>
  T At(int64_t byte) const {
    T v;
    std::memcpy(&v, tile + byte, sizeof(v));
    return v;
  }
  float F32(int64_t k) const { return At<float>((k * tile_rows + j) * 4); }
  float BF16(int64_t k) const { return BF16ToF32(At<uint16_t>(InRuns(2 * k))); }
  int Int8(int64_t k) const {
    const int64_t i = k % kInt8Block;
    return At<int8_t>(Block(k / kInt8Block) + InRuns(i));
  }
  float Scale(int64_t kb) const { return At<float>(Block(kb) + 32 * tile_rows + 4 * j); }
  int32_t Correction(int64_t kb, int part = 0) const { return At<int32_t>(Block(kb) + (36 + 4 * part) * tile_rows + 4 * j); }
  float ScaledSum(int64_t kb, int part) const { return At<float>(Block(kb) + (36 + 4 * part) * tile_rows + 4 * j); }  // minima
  int PairCorrection(int64_t kb, int half, int part = 0) const {
    return At<int16_t>(Block(kb) + (36 + 4 * (sums + part)) * tile_rows + 4 * j + 2 * half);
  }

 private:
  int64_t InRuns(int64_t byte) const { return (byte / run * tile_rows + j) * run + byte % run; }
  int64_t Block(int64_t kb) const { return kb * Int8BlockBytes(sums) * tile_rows; }
};

}  // namespace tally
