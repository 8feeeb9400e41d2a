// SPDX-License-Identifier: Apache-2.0
// Scalar functions of quantised formats (plain.h has those of the others). A struct Format<NAME> defines
//   kType, kInt8, kNarrow, kWidening  as in WeightFormat
//   Block                             a block as stored, of GetDTypeInfo's bytes
//   kStrips                           std::array: bytes of one row in each strip of a panel's block
//   kPanelCols                        columns of a panel's block, the same as of a stored block
//   kScaleWords                       f32 or i32 numbers of a row that the kernels use with 32 integers
//   Decode(const Block&, float*), Encode(const float* x, const float* importance, Block&)
//   kPowersOf2                        optional: scales are powers of two, 0 and NaN aside
//   Join(const uint8_t* codes, uint8_t scale)   optional: a Block from codes and scale in separate tensors
// A panel row is the bytes of one row of a panel's block, in the order of the strips:
//   PanelRow(const Block&, uint8_t* row)        the panel row of a block
//   Padding(uint8_t* row)                       the panel row of a row that does not exist
//   DecodePanelRow(const uint8_t* row, float*)  its kPanelCols values, the same bits as Decode
//   Int8Row(const uint8_t* row, int part, Int8Terms&)   columns [32 part, 32 part + 32)
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/kernels/formats/weight_format.h"

namespace tally {

inline constexpr size_t kStepBytes = 64;  // a strip of 4 bytes per row

template <class T>
T LoadAt(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

template <class F>
inline constexpr size_t kPanelRowBytes = std::accumulate(F::kStrips.begin(), F::kStrips.end(), size_t{0});
template <class F>
inline constexpr size_t kPanelBlockBytes = kPanelRows* kPanelRowBytes<F>;

// Calls piece(at, n) for each strip: its first byte in the panel row, and its bytes as an integral_constant.
template <class F, class Piece>
inline void ForEachStrip(const Piece& piece) {
  constexpr auto kBefore = [] {
    std::array<size_t, F::kStrips.size()> before{};
    for (size_t i = 1; i < before.size(); ++i) before[i] = before[i - 1] + F::kStrips[i - 1];
    return before;
  }();
  [&]<size_t... i>(std::index_sequence<i...>) { (piece(kBefore[i], std::integral_constant<size_t, F::kStrips[i]>()), ...); }
  (std::make_index_sequence<F::kStrips.size()>());
}

// Copies row `r` of a panel's block to a panel row.
template <class F>
inline void GatherRow(const uint8_t* block, size_t r, uint8_t* row) {
  ForEachStrip<F>([&](size_t at, auto n) { std::memcpy(row + at, block + kPanelRows * at + r * n(), n()); });
}

// 16 panel rows, kStagedRowBytes apart, and a panel's block of them: strips of one size are transposed together.
template <class F>
inline constexpr size_t kStagedRowBytes = (kPanelRowBytes<F> + 31) / 16 * 16;

using Words4 [[gnu::vector_size(16)]] = uint32_t;  // compiler vectors, which work on every target
using Bytes16 [[gnu::vector_size(16)]] = uint8_t;

// Four words of each of four rows, `stride` bytes apart: word w of row r goes to word 16 w + r.
inline void TransposeWords(const uint8_t* rows, size_t stride, uint8_t* to) {
  const Words4 a = LoadAt<Words4>(rows), b = LoadAt<Words4>(rows + stride), c = LoadAt<Words4>(rows + 2 * stride),
               d = LoadAt<Words4>(rows + 3 * stride);
  const Words4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Words4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Words4 columns[4] = {__builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7),
                             __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5), __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7)};
  for (int w = 0; w < 4; ++w) std::memcpy(to + 64 * w, &columns[w], sizeof(Words4));
}

// `n` <= 16 bytes of each of 16 rows: byte i of row r goes to byte 16 i + r. Reads 16 bytes of each row.
inline void TransposeBytes(const uint8_t* rows, size_t stride, int n, uint8_t* to) {
  Bytes16 from[kPanelRows], turned[kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) from[r] = LoadAt<Bytes16>(rows + static_cast<size_t>(r) * stride);
  const auto interleave = [](const Bytes16(&x)[kPanelRows], Bytes16(&y)[kPanelRows]) {
    for (int i = 0; i < kPanelRows / 2; ++i) {
      const Bytes16 a = x[i], b = x[i + kPanelRows / 2];
      y[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      y[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
  };
  interleave(from, turned);
  interleave(turned, from);
  interleave(from, turned);
  interleave(turned, from);
  for (int i = 0; i < n; ++i) std::memcpy(to + kPanelRows * i, &from[i], sizeof(Bytes16));
}

template <class F, size_t kStrip = 0, size_t kAt = 0>
inline void ScatterRows(const uint8_t* rows, uint8_t* block) {
  if constexpr (kStrip < F::kStrips.size()) {
    constexpr size_t kSize = F::kStrips[kStrip], kStride = kStagedRowBytes<F>;
    constexpr size_t kRun = [] {  // strips of this size
      size_t n = 1;
      while (kStrip + n < F::kStrips.size() && F::kStrips[kStrip + n] == kSize) ++n;
      return n;
    }();
    if constexpr (kSize == 4 && kRun >= 4) {
      for (size_t r = 0; r < kPanelRows; r += 4)
        TransposeWords(rows + r * kStride + kAt, kStride, block + kPanelRows * kAt + 4 * r);
      ScatterRows<F, kStrip + 4, kAt + 16>(rows, block);
    } else if constexpr (kSize == 1 && kRun >= 4) {
      constexpr size_t kBytes = std::min<size_t>(kRun, 16);
      TransposeBytes(rows + kAt, kStride, kBytes, block + kPanelRows * kAt);
      ScatterRows<F, kStrip + kBytes, kAt + kBytes>(rows, block);
    } else {
      for (size_t r = 0; r < kPanelRows; ++r) std::memcpy(block + kPanelRows * kAt + r * kSize, rows + r * kStride + kAt, kSize);
      ScatterRows<F, kStrip + 1, kAt + kSize>(rows, block);
    }
  }
}

// Block `b` of stored row `r`.
template <class F>
typename F::Block StagedBlock(const StagedRows& src, int r, int64_t b) {
  if constexpr (requires { F::Join(src.data, uint8_t{}); }) {
    constexpr size_t kBytes = sizeof(typename F::Block) - 1;
    if (src.scales != nullptr) {
      return F::Join(src.data + static_cast<size_t>(r) * src.stride + static_cast<size_t>(b) * kBytes,
                     src.scales[static_cast<size_t>(r) * src.scale_stride + static_cast<size_t>(b)]);
    }
  }
  return LoadAt<typename F::Block>(src.data + static_cast<size_t>(r) * src.stride +
                                   static_cast<size_t>(b) * sizeof(typename F::Block));
}

template <class F>
void PackQuantised(int64_t cols, int valid, const StagedRows& src, uint8_t* panel) {
  alignas(16) uint8_t rows[kPanelRows * kStagedRowBytes<F>] = {};
  for (int r = valid; r < kPanelRows; ++r) F::Padding(rows + static_cast<size_t>(r) * kStagedRowBytes<F>);
  for (int64_t b = 0; b < cols / F::kPanelCols; ++b, panel += kPanelBlockBytes<F>) {
    for (int r = 0; r < valid; ++r) F::PanelRow(StagedBlock<F>(src, r, b), rows + static_cast<size_t>(r) * kStagedRowBytes<F>);
    ScatterRows<F>(rows, panel);
  }
}

template <class F>
void UnpackQuantised(const uint8_t* panel, int row, int64_t cols, float* out) {
  uint8_t bytes[kPanelRowBytes<F>];
  for (int64_t k = 0; k < cols; k += F::kPanelCols, panel += kPanelBlockBytes<F>) {
    GatherRow<F>(panel, static_cast<size_t>(row), bytes);
    F::DecodePanelRow(bytes, out + k);
  }
}

template <class F>
void Int8TermsOf(const uint8_t* panel, int row, int64_t kb, Int8Terms& terms) {
  constexpr int kParts = F::kPanelCols / 32;
  uint8_t bytes[kPanelRowBytes<F>];
  GatherRow<F>(panel + static_cast<size_t>(kb / kParts) * kPanelBlockBytes<F>, static_cast<size_t>(row), bytes);
  F::Int8Row(bytes, static_cast<int>(kb % kParts), terms);
}

template <class F>
void DecodeBlocks(const uint8_t* stored, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, stored += sizeof(typename F::Block), out += GetDTypeInfo(F::kType).block_size) {
    F::Decode(LoadAt<typename F::Block>(stored), out);
  }
}

template <class F>
void EncodeBlocks(const float* x, const float* importance, int64_t blocks, uint8_t* stored) {
  constexpr int64_t kElements = static_cast<int64_t>(GetDTypeInfo(F::kType).block_size);
  for (int64_t b = 0; b < blocks; ++b, stored += sizeof(typename F::Block)) {
    typename F::Block block;
    F::Encode(x + b * kElements, importance == nullptr ? nullptr : importance + b * kElements, block);
    std::memcpy(stored, &block, sizeof(block));
  }
}

// Bytes of a decoded block of 32 columns: 512 weights and the scale words.
template <class F>
inline constexpr size_t kDecodedBlockBytes = 512 + sizeof(float) * kPanelRows* F::kScaleWords;

template <class F>
concept HasPowersOf2 = requires {
  F::kPowersOf2;
};

template <class F>
constexpr WeightFormat MakeQuantised(FormatKernels (*kernels)()) {
  static_assert(sizeof(typename F::Block) == GetDTypeInfo(F::kType).block_bytes);
  static_assert(F::kPanelCols == static_cast<int>(GetDTypeInfo(F::kType).block_size) && F::kPanelCols % 32 == 0);
  return {.act = ActKind::kInt8,
          .int8 = F::kInt8,
          .narrow = F::kNarrow,
          .powers_of_2 = HasPowersOf2<F>,
          .panel_cols = F::kPanelCols,
          .strips = F::kStrips,
          .panel_block_bytes = kPanelBlockBytes<F>,
          .decoded_block_bytes = kDecodedBlockBytes<F>,
          .widening = F::kWidening,
          .decode = DecodeBlocks<F>,
          .encode = EncodeBlocks<F>,
          .pack = PackQuantised<F>,
          .unpack = UnpackQuantised<F>,
          .int8_terms = Int8TermsOf<F>,
          .kernels = kernels};
}

// Quantised formats cannot store an infinity or NaN. A block with one gets this scale, so that all of it decodes to NaN.
inline constexpr uint16_t kF16NaN = 0x7e00;

inline bool AllFinite(const float* x, int n) {
  return std::all_of(x, x + n, [](float v) { return std::isfinite(v); });
}

// 1 / d, or 0 if that is not finite. Such a d rounds to 0 in f16, so the block decodes to zeros.
inline float InverseScale(float d) { return std::isfinite(1.0f / d) ? 1.0f / d : 0.0f; }

}  // namespace tally
