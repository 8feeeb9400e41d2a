// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/pack.h"

#include <algorithm>
#include <cstring>

namespace tally {
namespace {

constexpr size_t kWord = 4;
constexpr size_t kWordsBytes = kPanelRows * kWord;

using Halves8 [[gnu::vector_size(16)]] = uint16_t;  // a compiler vector, which works on every target

// Interleaves 16 elements of two bytes from each of two rows.
void Interleave16(const uint8_t* low, const uint8_t* high, uint8_t* dst) {
  for (int i = 0; i < 2; ++i) {
    Halves8 a, b;
    std::memcpy(&a, low + i * sizeof(a), sizeof(a));
    std::memcpy(&b, high + i * sizeof(b), sizeof(b));
    const Halves8 first = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    const Halves8 second = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(dst + 32 * i, &first, sizeof(first));
    std::memcpy(dst + 32 * i + 16, &second, sizeof(second));
  }
}

}  // namespace

void PackStaged(DType dtype, WeightLayout layout, int64_t cols, int64_t row_begin, int64_t n, const StagedRows& src,
                uint8_t* dst) {
  if (layout == WeightLayout::kVector) {
    WidenToF32(dtype, cols, 1, src.data, reinterpret_cast<float*>(dst));
    return;
  }
  if (layout == WeightLayout::kRowMajor) {
    const size_t row_bytes = StoredBytes(dtype, static_cast<uint64_t>(cols)).value_or(0);
    for (int64_t r = 0; r < n; ++r) std::memcpy(dst + (row_begin + r) * row_bytes, src.data + r * src.stride, row_bytes);
    return;
  }
  const size_t panel_bytes = PanelBytes(dtype, cols);
  StagedRows rows = src;
  for (int64_t r = 0; r < n; r += kPanelRows) {
    const int valid = static_cast<int>(std::min<int64_t>(kPanelRows, n - r));
    FormatOf(dtype).pack(cols, valid, rows, dst + (row_begin + r) / kPanelRows * panel_bytes);
    rows.data += kPanelRows * src.stride;
    if (rows.scales != nullptr) rows.scales += kPanelRows * src.scale_stride;
  }
}

void PackTransposed(DType dtype, int64_t rows, int64_t cols, int64_t k_begin, int64_t n, const uint8_t* src, uint8_t* dst) {
  const size_t panel_bytes = PanelBytes(dtype, cols);
  const size_t element = GetDTypeInfo(dtype).block_bytes;
  const size_t src_row = static_cast<size_t>(rows) * element;
  for (int64_t r = 0; r < rows; r += kPanelRows) {
    const int valid = static_cast<int>(std::min<int64_t>(kPanelRows, rows - r));
    uint8_t* panel = dst + r / kPanelRows * panel_bytes;
    const uint8_t* from = src + r * element;
    if (element == kWord) {  // a step is 16 consecutive elements of one input row
      for (int64_t k = 0; k < n; ++k) {
        uint8_t* step = panel + (k_begin + k) * kWordsBytes;
        if (valid == kPanelRows) {
          std::memcpy(step, from + k * src_row, kWordsBytes);
        } else {
          std::memcpy(step, from + k * src_row, valid * kWord);
          std::memset(step + valid * kWord, 0, kWordsBytes - valid * kWord);
        }
      }
      continue;
    }
    for (int64_t k = 0; k < n; k += 2) {  // a step is 16 consecutive elements of each of two input rows, interleaved
      uint8_t* step = panel + (k_begin + k) / 2 * kWordsBytes;
      if (valid == kPanelRows && k + 1 < n) {
        Interleave16(from + k * src_row, from + (k + 1) * src_row, step);
        continue;
      }
      uint8_t low[2 * kPanelRows] = {}, high[2 * kPanelRows] = {};
      std::memcpy(low, from + k * src_row, static_cast<size_t>(valid) * 2);
      if (k + 1 < n) std::memcpy(high, from + (k + 1) * src_row, static_cast<size_t>(valid) * 2);
      Interleave16(low, high, step);
    }
  }
}

void WidenToF32(DType dtype, int64_t n, int64_t stride, const uint8_t* src, float* dst) {
  const WeightFormat& format = FormatOf(dtype);
  if (stride == 1) return format.decode(src, n / GetDTypeInfo(dtype).block_size, dst);
  const size_t element = GetDTypeInfo(dtype).block_bytes;
  for (int64_t i = 0; i < n; ++i) format.decode(src + static_cast<size_t>(i * stride) * element, 1, dst + i);
}

void PackRows(DType dtype, WeightLayout layout, int64_t rows, int64_t cols, int64_t row_begin, int64_t n, const uint8_t* src,
              uint8_t* dst) {
  const size_t row_bytes = StoredBytes(dtype, static_cast<uint64_t>(cols)).value_or(0);
  PackStaged(dtype, layout, cols, row_begin, std::min(n, rows - row_begin), {.data = src, .stride = row_bytes}, dst);
}

}  // namespace tally
