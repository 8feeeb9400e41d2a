// Activations packed for the matrix kernels: rows in groups (one group; or one per expert), each group cut into tiles of
// kTile rows (its last tile shorter). Within a tile of T rows the input dimension runs outermost:
//   kF32   [K][T] f32                                                          row bytes: 4 K
//   kBF16  [ceil(K/2)][T][2] bf16, round to nearest even                       row bytes: 4 ceil(K/2)
//   kInt8  per 32 k: [8][T][4] i8, then T f32 scales, T i32 corrections, T pairs of i16 corrections; row bytes: 44 (K/32)
//          q = round_half_even(x * (127 / amax)), scale = (amax / 127) * scale_mul, correction = -offset * sum(q);
//          amax < kSmallestAmax gives q = 0 and scale 0. `offset` and `scale_mul` undo the weight type's storage (ActFormatFor).
//          The pair is for sums in 16 bits: -PairOffset(offset) * sum(q) over k % 4 < 2, then over k % 4 >= 2.
// A tile of T rows that starts at row r of the pack starts at byte r * row_bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/base/dtype.h"

namespace tally {

enum class ActKind : uint8_t { kF32, kBF16, kInt8 };
inline constexpr std::array<std::string_view, 3> kActKindNames = {"f32", "bf16", "int8"};

struct ActFormat {
  ActKind kind = ActKind::kF32;
  int32_t offset = 0;
  float scale_mul = 1;
  bool operator==(const ActFormat&) const = default;
};

// The format that a matrix of type `t` is multiplied by when its activations are of kind `k`.
constexpr ActFormat ActFormatFor(DType t, ActKind k) {
  if (k != ActKind::kInt8) return {k, 0, 1};
  switch (t) {
    case DType::kQ8_0: return {k, 128, 1};
    case DType::kQ4_0: return {k, 8, 1};
    case DType::kMXFP4: return {k, 12, 0.5f};  // codes decode to twice their value plus 12
    default: return {k, 0, 1};
  }
}

// Only 4-bit weights are summed in 16 bits, their offset is at most 16: 16 * 16 * 127 < 2^15.
constexpr int32_t PairOffset(int32_t offset) { return offset <= 16 ? offset : 0; }

// Blocks of nothing larger are zeros: 127 / amax would overflow (below 3.8e-37), and no result would show them.
inline constexpr float kSmallestAmax = 0x1p-120f;

// Bytes of one row's block of 32 int8 activations.
inline constexpr int kInt8BlockBytes = 44;

// Rows [row_begin, row_begin + rows) of the pack are multiplied by slice `slice` of the weights.
struct RowGroup {
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t slice = 0;
};

// Rows in a full tile. Kernels for narrow vectors take a tile in parts.
constexpr int ActTile(ActKind k) { return k == ActKind::kInt8 ? 6 : 12; }

constexpr size_t ActRowBytes(ActKind k, int64_t cols) {
  switch (k) {
    case ActKind::kF32: return static_cast<size_t>(cols) * 4;
    case ActKind::kBF16: return static_cast<size_t>((cols + 1) / 2) * 4;
    case ActKind::kInt8: return static_cast<size_t>(cols / 32) * kInt8BlockBytes;
  }
  return 0;
}

struct ActPack {
  ActFormat format;
  int64_t rows = 0, cols = 0;
  uint8_t* data = nullptr;           // rows * ActRowBytes, 64-byte aligned, and 64 readable bytes beyond
  std::span<const RowGroup> groups;  // cover [0, rows) in order
  size_t row_bytes() const { return ActRowBytes(format.kind, cols); }
};

// Groups that have rows.
inline int64_t ActiveGroups(const ActPack& x) {
  int64_t n = 0;
  for (const RowGroup& g : x.groups) n += g.rows > 0 ? 1 : 0;
  return n;
}

}  // namespace tally
