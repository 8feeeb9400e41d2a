// SPDX-License-Identifier: Apache-2.0
// The scalar reference of PackActOp, a template over the scalar type. The Highway kernel gives the same bits.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/float16.h"
#include "engine/kernels/pack_act/act_pack.h"
#include "engine/kernels/scalar.h"

namespace tally {

template <class T>
void StoreBytes(uint8_t* p, T v) {
  std::memcpy(p, &v, sizeof(v));
}

// Packs x [pack.cols] as row `j` of a tile of `rows` rows, in runs of `run` bytes.
template <class S>
void PackRowReference(const ActPack& pack, const float* x, uint8_t* tile, int64_t rows, int64_t j, int64_t run = 4) {
  const auto at = [=](int64_t byte) { return (byte / run * rows + j) * run + byte % run; };
  const int64_t cols = pack.cols;
  switch (pack.format.kind) {
    case ActKind::kF32:
      for (int64_t k = 0; k < cols; ++k) StoreBytes(tile + (k * rows + j) * 4, x[k]);
      return;
    case ActKind::kBF16:
      for (int64_t k = 0; k < static_cast<int64_t>(pack.row_bytes()) / 2; ++k) {
        StoreBytes(tile + at(2 * k), k < cols ? F32ToBF16(x[k]) : uint16_t{0});
      }
      return;
    case ActKind::kInt8:
      for (int64_t kb = 0; kb < cols / kInt8Block; ++kb) {
        const int parts = pack.format.sums;
        uint8_t* block = tile + kb * Int8BlockBytes(parts) * rows;
        S amax(0.0f);
        bool finite = true;
        for (int i = 0; i < 32; ++i) {
          const float v = x[32 * kb + i];
          finite = finite && std::isfinite(v);
          amax = Max(amax, Abs(S(v)));
        }
        const bool nothing = ToF32(amax) < kSmallestAmax;
        const S inverse = finite && !nothing ? S(127.0f) / amax : S(0.0f);
        const S scale = nothing ? S(0.0f) : amax / S(127.0f) * S(pack.format.scale_mul);
        S sums[2][2] = {{S(0.0f), S(0.0f)}, {S(0.0f), S(0.0f)}};  // [part][k % 4 >= 2]
        for (int i = 0; i < 32; ++i) {
          const S scaled = finite ? S(x[32 * kb + i]) * inverse : S(0.0f);
          const float q = std::nearbyint(ToF32(scaled));
          S& sum = sums[i * parts / 32][i % 4 / 2];
          if (pack.format.offset != 0 || pack.format.minima) sum = sum + S(q);
          StoreBytes(block + at(i), static_cast<int8_t>(q));
        }
        const S stored = finite ? scale : S(std::nanf(""));
        StoreBytes(block + 32 * rows + 4 * j, ToF32(stored));
        for (int part = 0; part < parts; ++part) {
          const int32_t pair[2] = {static_cast<int32_t>(ToF32(sums[part][0])), static_cast<int32_t>(ToF32(sums[part][1]))};
          uint8_t* correction = block + (36 + 4 * part) * rows + 4 * j;
          if (pack.format.minima) {
            StoreBytes(correction, ToF32(stored * S(static_cast<float>(pair[0] + pair[1]))));
          } else {
            StoreBytes(correction, -pack.format.offset * (pair[0] + pair[1]));
          }
          for (int i = 0; i < 2; ++i) {
            StoreBytes(block + (36 + 4 * (parts + part)) * rows + 4 * j + 2 * i,
                       static_cast<int16_t>(-PairOffset(pack.format) * pair[i]));
          }
        }
      }
      return;
  }
}

}  // namespace tally
