#include "engine/weights/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/base/float16.h"
#include "engine/base/quant_blocks.h"
#include "engine/weights/weights.h"

namespace tally {
namespace {

// Every panel is made of 64-byte steps of one 4-byte word per row, so packing is a transpose of words: word w
// of row r goes to word 16 w + r. Rows are taken one after another, a cache line or a block of each: the
// lines written (at most 1 KiB) stay in L1, and rows whose stride is a power of two do not evict one another.
constexpr size_t kWord = 4;
constexpr size_t kStepBytes = kPanelRows * kWord;

// The compilers' portable vectors: 16 bytes are within every target's baseline.
using Bytes16 [[gnu::vector_size(16)]] = uint8_t;
using Halves8 [[gnu::vector_size(16)]] = uint16_t;
using Words4 [[gnu::vector_size(16)]] = uint32_t;

uint32_t LoadWord(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
void StoreWord(uint32_t v, uint8_t* p) { std::memcpy(p, &v, sizeof(v)); }

// `words` words of one row into its place in `words` consecutive steps.
template <uint32_t kFlip = 0>
void SpreadWords(const uint8_t* src, int64_t words, uint8_t* dst) {
  for (int64_t w = 0; w < words; ++w) StoreWord(LoadWord(src + w * kWord) ^ kFlip, dst + w * kStepBytes);
}

void FillWords(uint32_t value, int64_t words, uint8_t* dst) {
  for (int64_t w = 0; w < words; ++w) StoreWord(value, dst + w * kStepBytes);
}

// F32, F16, BF16: `words` whole words a row; an odd 16-bit element is left over where `tail`.
void PackWords(int64_t words, bool tail, int valid, const StagedRows& src, uint8_t* panel) {
  constexpr int64_t kLine = 16;
  int64_t w = 0;
  for (; w + kLine <= words; w += kLine) {
    for (int r = 0; r < valid; ++r) {
      SpreadWords(src.data + r * src.stride + w * kWord, kLine, panel + w * kStepBytes + r * kWord);
    }
  }
  for (int r = 0; r < valid; ++r) {
    const uint8_t* row = src.data + r * src.stride;
    SpreadWords(row + w * kWord, words - w, panel + w * kStepBytes + r * kWord);
    if (tail) {
      uint16_t last;
      std::memcpy(&last, row + words * kWord, sizeof(last));
      StoreWord(last, panel + words * kStepBytes + r * kWord);
    }
  }
  for (int r = valid; r < kPanelRows; ++r) FillWords(0, words + (tail ? 1 : 0), panel + r * kWord);
}

void PackQ8_0(int64_t blocks, int valid, const StagedRows& src, uint8_t* panel) {
  constexpr size_t kBlock = sizeof(BlockQ8_0), kScales = 2 * kPanelRows, kQuants = 8 * kStepBytes;
  for (int64_t b = 0; b < blocks; ++b, panel += kScales + kQuants) {
    uint8_t* quants = panel + kScales;
    for (int r = 0; r < valid; ++r) {
      const uint8_t* block = src.data + r * src.stride + b * kBlock;
      std::memcpy(panel + 2 * r, block, 2);
      SpreadWords<0x80808080u>(block + 2, 8, quants + r * kWord);  // int8 q -> u8 q + 128
    }
    for (int r = valid; r < kPanelRows; ++r) {
      std::memset(panel + 2 * r, 0, 2);
      FillWords(0x80808080u, 8, quants + r * kWord);
    }
  }
}

// A GGUF block of nibbles holds element i beside element i + 16; word j of it is steps j and j + 4 of its
// row.
void PackQ4_0(int64_t blocks, int valid, const StagedRows& src, uint8_t* panel) {
  constexpr size_t kBlock = sizeof(BlockQ4_0), kScales = 2 * kPanelRows, kQuants = 4 * kStepBytes;
  for (int64_t b = 0; b < blocks; ++b, panel += kScales + kQuants) {
    uint8_t* quants = panel + kScales;
    for (int r = 0; r < valid; ++r) {
      const uint8_t* block = src.data + r * src.stride + b * kBlock;
      std::memcpy(panel + 2 * r, block, 2);
      SpreadWords(block + 2, 4, quants + r * kWord);
    }
    for (int r = valid; r < kPanelRows; ++r) {
      std::memset(panel + 2 * r, 0, 2);
      FillWords(0x88888888u, 4, quants + r * kWord);
    }
  }
}

// A block in Hugging Face's order (byte j: elements 2j and 2j + 1) to GGUF's (elements j and j + 16), spread
// like the others.
void SpreadHfNibbles(const uint8_t* src, uint8_t* dst) {
  Bytes16 in;
  std::memcpy(&in, src, sizeof(in));
  const Bytes16 even = in & 15, odd = in >> 4;
  const Bytes16 first = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const Bytes16 second = __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  const Words4 out = std::bit_cast<Words4>(first | second << 4);
  for (int w = 0; w < 4; ++w) StoreWord(out[w], dst + w * kStepBytes);
}

void PackMxfp4(int64_t blocks, int valid, const StagedRows& src, uint8_t* panel) {
  constexpr size_t kBlock = sizeof(BlockMXFP4), kScales = kPanelRows, kQuants = 4 * kStepBytes;
  for (int64_t b = 0; b < blocks; ++b, panel += kScales + kQuants) {
    uint8_t* quants = panel + kScales;
    for (int r = 0; r < valid; ++r) {
      const uint8_t* row = src.data + r * src.stride;
      if (src.scales != nullptr) {
        panel[r] = src.scales[r * src.scale_stride + b];
        SpreadHfNibbles(row + b * 16, quants + r * kWord);
      } else {
        panel[r] = row[b * kBlock];
        SpreadWords(row + b * kBlock + 1, 4, quants + r * kWord);
      }
    }
    for (int r = valid; r < kPanelRows; ++r) {
      panel[r] = 0;
      FillWords(0, 4, quants + r * kWord);
    }
  }
}

// 16 elements of two bytes from each of two rows, alternating.
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

void PackPanel(DType dtype, int64_t cols, int valid, const StagedRows& src, uint8_t* panel) {
  switch (dtype) {
    case DType::kF32: return PackWords(cols, false, valid, src, panel);
    case DType::kF16:
    case DType::kBF16: return PackWords(cols / 2, cols % 2 != 0, valid, src, panel);
    case DType::kQ8_0: return PackQ8_0(cols / kQuantBlock, valid, src, panel);
    case DType::kQ4_0: return PackQ4_0(cols / kQuantBlock, valid, src, panel);
    case DType::kMXFP4: return PackMxfp4(cols / kQuantBlock, valid, src, panel);
    default: return;  // PanelBytes is 0: no such matrix gets as far as this
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
    PackPanel(dtype, cols, valid, rows, dst + (row_begin + r) / kPanelRows * panel_bytes);
    rows.data += kPanelRows * src.stride;
    if (rows.scales != nullptr) rows.scales += kPanelRows * src.scale_stride;
  }
}

void PackTransposed(DType dtype, int64_t rows, int64_t cols, int64_t k_begin, int64_t n, const uint8_t* src, uint8_t* dst) {
  const size_t panel_bytes = PanelBytes(dtype, cols);
  const size_t element = dtype == DType::kF32 ? 4 : 2;
  const size_t src_row = static_cast<size_t>(rows) * element;
  for (int64_t r = 0; r < rows; r += kPanelRows) {
    const int valid = static_cast<int>(std::min<int64_t>(kPanelRows, rows - r));
    uint8_t* panel = dst + r / kPanelRows * panel_bytes;
    const uint8_t* from = src + r * element;
    if (dtype == DType::kF32) {  // a step is 16 neighbours of one input row
      for (int64_t k = 0; k < n; ++k) {
        uint8_t* step = panel + (k_begin + k) * kStepBytes;
        if (valid == kPanelRows) {
          std::memcpy(step, from + k * src_row, kStepBytes);
        } else {
          std::memcpy(step, from + k * src_row, valid * kWord);
          std::memset(step + valid * kWord, 0, kStepBytes - valid * kWord);
        }
      }
      continue;
    }
    for (int64_t k = 0; k < n; k += 2) {  // a step is 16 neighbours of two input rows, interleaved
      uint8_t* step = panel + (k_begin + k) / 2 * kStepBytes;
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
  const size_t element = dtype == DType::kF32 ? 4 : 2;
  for (int64_t i = 0; i < n; ++i, src += stride * element) {
    if (dtype == DType::kF32) {
      std::memcpy(dst + i, src, sizeof(float));
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, src, sizeof(bits));
    dst[i] = dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }
}

void PackRows(DType dtype, WeightLayout layout, int64_t rows, int64_t cols, int64_t row_begin, int64_t n, const uint8_t* src,
              uint8_t* dst) {
  const size_t row_bytes = StoredBytes(dtype, static_cast<uint64_t>(cols)).value_or(0);
  PackStaged(dtype, layout, cols, row_begin, std::min(n, rows - row_begin), {.data = src, .stride = row_bytes}, dst);
}

}  // namespace tally
