// SPDX-License-Identifier: Apache-2.0
// Activations packed for the matrix kernels. Rows form groups (one group, or one per expert). A group is cut into tiles of
// TilingOf().rows rows, the last one shorter. Layout of a tile of T rows:
//   kF32   [K][T] f32                                                          row bytes: 4 K
//   kBF16  [ceil(K/2)][T][2] bf16, round to nearest even                       row bytes: 4 ceil(K/2)
//   kInt8  per 32 k: [8][T][4] i8, then T f32 scales, [sums][T] i32 corrections, [sums][T] pairs of i16 corrections;
//          row bytes: (36 + 8 sums) (K/32)
//          q = round_half_even(x * (127 / amax)), scale = (amax / 127) * scale_mul; amax < kSmallestAmax gives q = 0 and scale 0.
//          correction = -offset * sum(q), one for each of the `sums` equal parts of a block.
//          With minima: the f32 products scale * sum(q) instead.
//          i16 corrections, for sums in 16 bits; 0 with minima: -PairOffset * sum(q) over k % 4 < 2 of the part, then over k % 4 >= 2.
// In runs (ActTiling::run): more than 4 bytes of a row of bf16 or i8 lie in one place.
//   AMX, whose left tiles have 32 k of a row in one place:
//     kBF16  [ceil(K/32)][T][32] bf16, zeros beyond K                          row bytes: 64 ceil(K/32)
//     kInt8  per 32 k: [T][32] i8, the rest as above
//   SMMLA, whose operands have 8 k of two rows:
//     kInt8  per 32 k: [4][T][8] i8, the rest as above
// A tile that starts at row r of the pack starts at byte r * row_bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/base/dtype.h"

namespace tally {

enum class ActKind : uint8_t { kF32, kBF16, kInt8 };
inline constexpr std::array<std::string_view, 3> kActKindNames = {"f32", "bf16", "int8"};

// How activations are packed for a weight format. offset, scale_mul and sums apply to kInt8 only.
struct ActFormat {
  ActKind kind = ActKind::kF32;
  // Kernels store weight q as unsigned q + offset. Starting a sum at -offset * sum(x) removes the offset.
  int32_t offset = 0;
  float scale_mul = 1;  // factor folded into the activation scale: 0.5 if kernels hold doubled weights
  int32_t sums = 1;     // parts of a block with a sum each: 1, or 2 if every 16 weights have an integer scale
  bool minima = false;  // weights are scale * q + minimum; the offset is 0
  bool amx = false;     // in the runs of AMX, or of SMMLA, where TilingOf says so
  bool smmla = false;
  constexpr int32_t minimum_sums() const { return minima ? sums : 0; }
  bool operator==(const ActFormat&) const = default;
};

// The format of activations of kind `k` for a matrix of type `t`.
ActFormat ActFormatFor(DType t, ActKind k);

// The offset in the i16 corrections. 0 if a sum of 16 / sums products would not fit 16 bits; kernels then do not use them.
constexpr int32_t PairOffset(const ActFormat& f) { return f.offset * 127 * (16 / f.sums) < 1 << 15 ? f.offset : 0; }

// A block whose maximum is below this is packed as zeros, since 127 / amax would overflow.
inline constexpr float kSmallestAmax = 0x1p-120f;

// Elements of a block of int8 activations, and the bytes of one row in it.
inline constexpr int kInt8Block = 32;
constexpr int Int8BlockBytes(int sums) { return kInt8Block + 4 + 8 * sums; }

// Rows [row_begin, row_begin + rows) of the pack are multiplied by slice `slice` of the weights.
struct RowGroup {
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t slice = 0;
  const int32_t* step_rows = nullptr;  // [rows]: the step's row of each, if the step's data chose the slice (experts)
};

// Rows in a full tile without AMX.
constexpr int ActTile(ActKind k) { return k == ActKind::kInt8 ? 6 : 12; }

// Rows of a full tile of AMX.
inline constexpr int kAmxRows = 16;
// Larger groups of int8 activations are packed for SMMLA if the format says so; for AMX from more than a tile on.
inline constexpr int64_t kInt8RunRows = 2 * ActTile(ActKind::kInt8);

// How a group of `group_rows` rows lies in a pack.
struct ActTiling {
  int rows = 0;  // of a full tile
  int run = 4;   // bytes of a row that lie together; row j's byte i of n columns' bytes is byte (i / run * T + j) * run + i % run
};
constexpr ActTiling TilingOf(const ActFormat& f, int64_t group_rows) {
  if (f.amx && f.kind == ActKind::kBF16) return {kAmxRows, 64};
  if (f.amx && group_rows > kAmxRows) return {kAmxRows, kInt8Block};
  return {ActTile(f.kind), f.smmla && group_rows > kInt8RunRows ? 8 : 4};
}

constexpr size_t ActRowBytes(const ActFormat& f, int64_t cols) {
  switch (f.kind) {
    case ActKind::kF32: return static_cast<size_t>(cols) * 4;
    case ActKind::kBF16: return f.amx ? static_cast<size_t>((cols + 31) / 32) * 64 : static_cast<size_t>((cols + 1) / 2) * 4;
    case ActKind::kInt8: return static_cast<size_t>(cols / kInt8Block) * static_cast<size_t>(Int8BlockBytes(f.sums));
  }
  return 0;
}

struct ActPack {
  ActFormat format;
  int64_t rows = 0, cols = 0;
  uint8_t* data = nullptr;           // rows * ActRowBytes, 64-byte aligned, and 64 readable bytes beyond
  std::span<const RowGroup> groups;  // cover [0, rows) in order
  size_t row_bytes() const { return ActRowBytes(format, cols); }
};

// Groups that have rows.
inline int64_t ActiveGroups(const ActPack& x) {
  int64_t n = 0;
  for (const RowGroup& g : x.groups) n += g.rows > 0 ? 1 : 0;
  return n;
}

}  // namespace tally
