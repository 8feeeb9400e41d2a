// SPDX-License-Identifier: Apache-2.0
// Packing, then unpacking by the layouts' scalar definition, gives back what was stored, bit for bit.
#include "engine/weights/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "engine/kernels/unpack.h"
#include "tests/support/stored_weights.h"

namespace tally {
namespace {

constexpr uint8_t kCanary = 0xc5;

size_t SliceBytes(DType t, WeightLayout layout, int64_t rows, int64_t cols) {
  if (layout == WeightLayout::kVector) return static_cast<size_t>(cols) * 4;
  if (layout == WeightLayout::kRowMajor) return static_cast<size_t>(rows) * *StoredBytes(t, static_cast<uint64_t>(cols));
  return static_cast<size_t>((rows + 15) / 16) * PanelBytes(t, cols);
}

WeightView ViewOf(DType t, WeightLayout layout, int64_t rows, int64_t cols, const uint8_t* data) {
  WeightView w;
  w.dtype = t;
  w.layout = layout;
  w.rows = rows;
  w.cols = cols;
  w.panel_stride = layout == WeightLayout::kRowMajor ? *StoredBytes(t, static_cast<uint64_t>(cols)) : PanelBytes(t, cols);
  w.slice_stride = SliceBytes(t, layout, rows, cols);
  w.data = data;
  return w;
}

void ExpectRows(const WeightView& w, const std::vector<float>& expected, const char* what) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int64_t r = 0; r < w.rows; ++r) {
    UnpackRow(w, 0, r, row.data());
    ASSERT_TRUE(SameBits(row.data(), expected.data() + r * w.cols, row.size()))
        << what << " " << DTypeName(w.dtype) << " " << w.rows << " x " << w.cols << ", row " << r;
  }
}

// Padding rows of the last panel: zero scales, and quants that decode to 0.
void ExpectPadding(const WeightView& w) {
  const uint8_t* panel = w.Panel(0, w.panels() - 1);
  for (int r = static_cast<int>((w.rows - 1) % kPanelRows) + 1; r < kPanelRows; ++r) {
    if (!GetDTypeInfo(w.dtype).quantised) {
      for (size_t i = 0; i < w.panel_stride; i += 64) {
        uint32_t word;
        std::memcpy(&word, panel + i + r * 4, 4);
        ASSERT_EQ(word, 0u) << DTypeName(w.dtype) << " row " << r << " step " << i / 64;
      }
      continue;
    }
    const WeightFormat& format = FormatOf(w.dtype);
    for (int64_t kb = 0; kb < w.cols / 32 && format.int8_terms != nullptr; ++kb) {
      Int8Terms terms;
      format.int8_terms(panel, r, kb, terms);
      const auto zero = [&](int q) { return terms.scale * static_cast<float>(q) == 0; };
      ASSERT_TRUE(std::all_of(terms.w, terms.w + 32, zero)) << DTypeName(w.dtype);
      for (const float minimum : terms.minimum) ASSERT_EQ(minimum, 0.0f) << DTypeName(w.dtype);
    }
    for (size_t block = 0; block < w.panel_stride; block += format.panel_block_bytes) {  // the first strip: scales
      const uint8_t* p = panel + block + static_cast<size_t>(r) * format.strips[0];
      ASSERT_TRUE(std::all_of(p, p + format.strips[0], [](uint8_t x) { return x == 0; })) << DTypeName(w.dtype);
    }
  }
}

TEST(PackRows, EveryTypeAndLayoutUnpacksToWhatWasStored) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 rng(seed);
  for (DType t : kWeightTypes) {
    const int64_t block = GetDTypeInfo(t).block_size;
    std::vector<int64_t> widths = {block, 2 * block, 3 * block, 5 * block, 16 * block};
    if (block == 1) widths.insert(widths.end(), {15, 17, 31, 32, 33, 47, 65, 96, 160, 512});
    for (int64_t cols : widths) {
      for (int64_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 48, 50}) {
        const auto stored = RandomStored(t, static_cast<uint64_t>(rows * cols), rng);
        const auto expected = DecodeStored(t, stored.data(), static_cast<uint64_t>(rows * cols));
        for (WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor}) {
          const size_t size = SliceBytes(t, layout, rows, cols);
          std::vector<uint8_t> packed(size + 64, kCanary);
          // In blocks of random multiples of 16 rows, last first, as threads would.
          std::vector<std::pair<int64_t, int64_t>> blocks;
          for (int64_t r = 0; r < rows;) {
            const int64_t n = std::min<int64_t>(rows - r, 16 * (1 + static_cast<int64_t>(rng() % 3)));
            blocks.emplace_back(r, n);
            r += n;
          }
          std::reverse(blocks.begin(), blocks.end());
          const size_t row_bytes = *StoredBytes(t, static_cast<uint64_t>(cols));
          for (const auto& [r, n] : blocks) {
            PackRows(t, layout, rows, cols, r, n, stored.data() + static_cast<size_t>(r) * row_bytes, packed.data());
          }
          const WeightView w = ViewOf(t, layout, rows, cols, packed.data());
          ExpectRows(w, expected, layout == WeightLayout::kPanel16 ? "panels" : "rows");
          if (layout == WeightLayout::kPanel16) ExpectPadding(w);
          ASSERT_TRUE(
              std::all_of(packed.begin() + static_cast<ptrdiff_t>(size), packed.end(), [](uint8_t b) { return b == kCanary; }))
              << DTypeName(t) << " " << rows << " x " << cols << " wrote past its end";
        }
      }
    }
  }
}

TEST(PackRows, AnOddInputDimensionIsPaddedWithZero) {
  std::mt19937_64 rng(1);
  for (DType t : {DType::kF16, DType::kBF16}) {
    const int64_t rows = 18, cols = 37;
    const auto stored = RandomStored(t, rows * cols, rng);
    std::vector<uint8_t> packed(SliceBytes(t, WeightLayout::kPanel16, rows, cols), kCanary);
    PackRows(t, WeightLayout::kPanel16, rows, cols, 0, rows, stored.data(), packed.data());
    const WeightView w = ViewOf(t, WeightLayout::kPanel16, rows, cols, packed.data());
    for (int64_t p = 0; p < 2; ++p) {
      for (int r = 0; r < 16; ++r) EXPECT_EQ(GetHalf(w.Panel(0, p) + 18 * 64 + r * 4 + 2), 0) << p << " " << r;
    }
  }
}

TEST(PackRows, TheLowestQ8Survives) {
  std::vector<uint8_t> stored(34, 0x80);
  PutHalf(F32ToF16(1.0f), stored.data());
  std::vector<uint8_t> packed(PanelBytes(DType::kQ8_0, 32));
  PackRows(DType::kQ8_0, WeightLayout::kPanel16, 1, 32, 0, 1, stored.data(), packed.data());
  Int8Terms terms;
  FormatOf(DType::kQ8_0).int8_terms(packed.data(), 0, 0, terms);
  for (int k = 0; k < 32; ++k) EXPECT_EQ(terms.w[k], -128);
}

TEST(PackRows, VectorsWidenExactly) {
  std::mt19937_64 rng(2);
  for (DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t n : {1, 7, 16, 100}) {
      const auto stored = RandomStored(t, static_cast<uint64_t>(n), rng);
      const auto expected = DecodeStored(t, stored.data(), static_cast<uint64_t>(n));
      std::vector<float> packed(static_cast<size_t>(n) + 1, 7.0f);
      PackRows(t, WeightLayout::kVector, 1, n, 0, 1, stored.data(), reinterpret_cast<uint8_t*>(packed.data()));
      EXPECT_TRUE(SameBits(packed.data(), expected.data(), expected.size())) << DTypeName(t) << " " << n;
      EXPECT_EQ(packed.back(), 7.0f);
    }
  }
}

TEST(PackStaged, RowsOfTwoMatricesThatAlternate) {
  std::mt19937_64 rng(3);
  for (DType t : kWeightTypes) {
    const int64_t rows = 21, cols = 2 * std::max<int64_t>(32, GetDTypeInfo(t).block_size);
    const auto stored = RandomStored(t, 2 * rows * cols, rng);
    const auto all = DecodeStored(t, stored.data(), 2 * rows * cols);
    const size_t row_bytes = *StoredBytes(t, static_cast<uint64_t>(cols));
    for (int64_t odd : {0, 1}) {
      std::vector<float> expected;
      for (int64_t r = 0; r < rows; ++r) {
        const auto from = all.begin() + (2 * r + odd) * cols;
        expected.insert(expected.end(), from, from + cols);
      }
      std::vector<uint8_t> packed(SliceBytes(t, WeightLayout::kPanel16, rows, cols), kCanary);
      PackStaged(t, WeightLayout::kPanel16, cols, 0, rows,
                 {.data = stored.data() + static_cast<size_t>(odd) * row_bytes, .stride = 2 * row_bytes}, packed.data());
      const WeightView w = ViewOf(t, WeightLayout::kPanel16, rows, cols, packed.data());
      ExpectRows(w, expected, "interleaved");
      ExpectPadding(w);
    }
  }
}

TEST(PackStaged, HuggingFaceMxfp4) {
  std::mt19937_64 rng(4);
  for (int64_t rows : {1, 16, 19, 32}) {
    for (int64_t cols : {32, 64, 96}) {
      std::vector<uint8_t> blocks(static_cast<size_t>(rows * cols / 2)), scales(static_cast<size_t>(rows * cols / 32));
      for (uint8_t& b : blocks) b = static_cast<uint8_t>(rng());
      for (uint8_t& s : scales) s = static_cast<uint8_t>(rng() % 255);
      const auto expected = DecodeHfMxfp4(blocks.data(), scales.data(), static_cast<uint64_t>(rows * cols));
      std::vector<uint8_t> packed(SliceBytes(DType::kMXFP4, WeightLayout::kPanel16, rows, cols), kCanary);
      PackStaged(DType::kMXFP4, WeightLayout::kPanel16, cols, 0, rows,
                 {.data = blocks.data(),
                  .stride = static_cast<size_t>(cols / 2),
                  .scales = scales.data(),
                  .scale_stride = static_cast<size_t>(cols / 32)},
                 packed.data());
      const WeightView w = ViewOf(DType::kMXFP4, WeightLayout::kPanel16, rows, cols, packed.data());
      ExpectRows(w, expected, "HF");
      ExpectPadding(w);
    }
  }
}

TEST(PackTransposed, EveryCut) {
  std::mt19937_64 rng(5);
  for (DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t rows : {1, 15, 16, 17, 40}) {
      for (int64_t cols : {1, 2, 3, 16, 33, 64}) {
        const auto stored = RandomStored(t, static_cast<uint64_t>(rows * cols), rng);  // [cols, rows]
        const auto values = DecodeStored(t, stored.data(), static_cast<uint64_t>(rows * cols));
        std::vector<float> expected(values.size());
        for (int64_t k = 0; k < cols; ++k) {
          for (int64_t r = 0; r < rows; ++r)
            expected[static_cast<size_t>(r * cols + k)] = values[static_cast<size_t>(k * rows + r)];
        }
        for (int64_t cut : {2, 6, 64}) {
          const size_t size = SliceBytes(t, WeightLayout::kPanel16, rows, cols);
          std::vector<uint8_t> packed(size + 64, kCanary);
          for (int64_t k = 0; k < cols; k += cut) {
            PackTransposed(t, rows, cols, k, std::min(cut, cols - k),
                           stored.data() + static_cast<size_t>(k * rows) * GetDTypeInfo(t).block_bytes, packed.data());
          }
          const WeightView w = ViewOf(t, WeightLayout::kPanel16, rows, cols, packed.data());
          ExpectRows(w, expected, "transposed");
          ExpectPadding(w);
          for (size_t i = size; i < packed.size(); ++i) ASSERT_EQ(packed[i], kCanary);
          if (cols % 2 != 0 && t != DType::kF32) {
            for (int r = 0; r < 16; ++r) ASSERT_EQ(GetHalf(packed.data() + (cols / 2) * 64 + r * 4 + 2), 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tally
