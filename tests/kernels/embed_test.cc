// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/embed/embed.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/base/float16.h"
#include "engine/kernels/embed/embed_ref.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/target.h"
#include "tests/kernels/harness.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

// A table of random bits in a type, stored by rows and in panels, with the values it decodes to. All end at a bad page. `wild`: the
// floats and scales are any bits at all.
struct Table {
  DType type;
  int64_t rows, cols;
  std::vector<float> values;
  EdgeArray<uint8_t> stored, panels;

  Table(Random& random, DType t, int64_t r, int64_t c, bool wild = false)
      : type(t),
        rows(r),
        cols(c),
        values(static_cast<size_t>(r * c)),
        stored(static_cast<size_t>(*StoredBytes(t, static_cast<uint64_t>(c)) * static_cast<uint64_t>(r))),
        panels(static_cast<size_t>((r + 15) / 16) * PanelBytes(t, c)) {
    const DTypeInfo info = GetDTypeInfo(t);
    const size_t row_bytes = static_cast<size_t>(*StoredBytes(t, static_cast<uint64_t>(c)));
    std::memset(panels.data(), 0, panels.size());
    for (int64_t row = 0; row < r; ++row) {
      uint8_t* bytes = stored.data() + static_cast<size_t>(row) * row_bytes;
      uint8_t* panel = panels.data() + static_cast<size_t>(row / 16) * PanelBytes(t, c);
      const int64_t lane = row % 16;
      float* value = values.data() + row * c;
      for (int64_t k = 0; k < c; ++k) {
        const float x = wild ? std::bit_cast<float>(static_cast<uint32_t>(random.Bits())) : random.Normal();
        switch (t) {
          case DType::kF32:
            std::memcpy(bytes + 4 * k, &x, 4);
            std::memcpy(panel + k * 64 + lane * 4, &x, 4);
            value[k] = x;
            break;
          case DType::kF16:
          case DType::kBF16: {
            const uint16_t h = wild ? static_cast<uint16_t>(row * c + k) : (t == DType::kF16 ? F32ToF16(x) : F32ToBF16(x));
            std::memcpy(bytes + 2 * k, &h, 2);
            std::memcpy(panel + k / 2 * 64 + lane * 4 + k % 2 * 2, &h, 2);
            value[k] = t == DType::kF16 ? F16ToF32(h) : BF16ToF32(h);
            break;
          }
          default: break;
        }
      }
      if (info.quantised) {
        std::vector<float> x(static_cast<size_t>(c));
        for (float& v : x) v = random.Normal();
        FormatOf(t).encode(x.data(), nullptr, c / info.block_size, bytes);
        for (size_t i = 0; wild && i < row_bytes; ++i) bytes[i] = static_cast<uint8_t>(random.Bits());
        FormatOf(t).decode(bytes, c / info.block_size, value);
      }
    }
    for (int64_t p = 0; info.quantised && p < r; p += 16) {
      FormatOf(t).pack(c, static_cast<int>(std::min<int64_t>(16, r - p)),
                       {.data = stored.data() + static_cast<size_t>(p) * row_bytes, .stride = row_bytes},
                       panels.data() + static_cast<size_t>(p / 16) * PanelBytes(t, c));
    }
  }

  WeightView View(bool packed) const {
    WeightView w;
    w.id = 9;
    w.dtype = type;
    w.layout = packed ? WeightLayout::kPanel16 : WeightLayout::kRowMajor;
    w.rows = rows;
    w.cols = cols;
    w.stored_row_bytes = *StoredBytes(type, static_cast<uint64_t>(cols));
    w.panel_stride = packed ? PanelBytes(type, cols) : static_cast<size_t>(w.stored_row_bytes);
    w.data = packed ? panels.data() : stored.data();
    return w;
  }
};

const std::vector<int32_t> kIds = {0, 36, 15, 16, 17, 36, 5, 31, 32};

// What a table's rows must become, added to `before` or alone.
void FillExpected(const Table& table, bool add, Mat<const float> before, Mat<float> want) {
  for (int64_t r = 0; r < want.rows; ++r) {
    for (int64_t i = 0; i < want.cols; ++i) {
      const float v = table.values[static_cast<size_t>(kIds[static_cast<size_t>(r)] * want.cols + i)];
      want.Row(r)[i] = add ? before.Row(r)[i] + v : v;
    }
  }
}

TEST(Embed, GathersTheStoredValuesFromRowsAndPanels) {
  Random random(71);
  SCOPED_TRACE(random.Trace());
  for (DType t : kWeightTypes) {
    for (bool packed : {false, true}) {
      for (bool add : {false, true}) {
        const int64_t cols = GetDTypeInfo(t).quantised ? 3 * GetDTypeInfo(t).block_size : 33;  // an odd K where it may be odd
        SCOPED_TRACE(std::string(DTypeName(t)) + (packed ? " panels" : " rows"));
        Table table(random, t, 37, cols);
        EdgeMat<float> out(9, cols, 3), want(9, cols);
        out.Fill(random);
        FillExpected(table, add, out.view(), want.view());
        const EmbedOp op = {kIds, table.View(packed), add, out.view()};
        ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
        RunShuffled(KernelNamed<EmbedOp>("ref"), op, random.Bits());
        ExpectClose(out.view(), want.view(), [](int64_t, int64_t, double) { return 0.0; });
        out.ExpectGapsUntouched();
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

std::vector<int64_t> Columns(DType t) {
  const int64_t block = GetDTypeInfo(t).block_size;
  if (block > 1) return {block, 2 * block, 3 * block, 5 * block, 16 * block};
  std::vector<int64_t> v(70);
  std::iota(v.begin(), v.end(), 1);
  return v;
}

TEST(Embed, HighwayGivesTheBitsOfTheReference) {
  ForEachTarget([] {
    Random random(74);
    SCOPED_TRACE(random.Trace());
    for (DType t : kWeightTypes) {
      for (int64_t cols : Columns(t)) {
        Table table(random, t, 37, cols);
        for (bool packed : {false, true}) {
          for (bool add : {false, true}) {
            SCOPED_TRACE(std::string(DTypeName(t)) + (packed ? " panels of " : " rows of ") + std::to_string(cols) +
                         (add ? ", added" : ""));
            EdgeMat<float> got(9, cols, random.Between(0, 5)), want(9, cols);
            got.Fill(random);
            want.CopyFrom(got.view());
            EmbedOp op = {kIds, table.View(packed), add, want.view()};
            RunShuffled(KernelNamed<EmbedOp>("ref"), op, random.Bits());
            op.out = got.view();
            RunShuffled(KernelNamed<EmbedOp>("hwy"), op, random.Bits());
            ExpectSameBits(got.view(), want.view());
            got.ExpectGapsUntouched();
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  });
}

// Every F16 and BF16; any F32, and any scale with any integer: subnormal, infinite and not a number among them.
TEST(Embed, HighwayWidensAnyBits) {
  std::vector<int32_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  ForEachTarget([&] {
    Random random(75);
    SCOPED_TRACE(random.Trace());
    for (DType t : kWeightTypes) {
      Table table(random, t, 64, 1024, true);
      EdgeMat<float> got(64, 1024), want(64, 1024);
      for (bool packed : {false, true}) {
        SCOPED_TRACE(std::string(DTypeName(t)) + (packed ? " panels" : " rows"));
        EmbedOp op = {all, table.View(packed), false, want.view()};
        RunShuffled(KernelNamed<EmbedOp>("ref"), op, random.Bits());
        ExpectClose(want.view(), {table.values.data(), 64, 1024}, [](int64_t, int64_t, double) { return 0.0; });
        op.out = got.view();
        RunShuffled(KernelNamed<EmbedOp>("hwy"), op, random.Bits());
        for (Mat<float> m : {got.view(), want.view()}) {  // what a NaN carries may differ
          for (float& v : std::span(m.data, 64 * 1024)) v = std::isnan(v) ? std::nanf("") : v;
        }
        ExpectSameBits(got.view(), want.view());
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(Embed, UsefulByHandAndByCounting) {
  Random random(72);
  Table table(random, DType::kQ8_0, 40, 64);
  const std::vector<int32_t> ids = {3, 20, 3, 7};  // three rows, in two panels
  EdgeMat<float> out(4, 64);
  out.Fill(random);
  EmbedOp op = {ids, table.View(false), false, out.view()};
  Cost cost = TotalUseful(op);
  EXPECT_EQ(cost.TotalFlops(), 0u);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsStored), 3u * 68);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsPacked), 3u * 68);
  EXPECT_EQ(cost.Bytes(ByteKind::kActivationsRead), 16u);
  EXPECT_EQ(cost.Bytes(ByteKind::kActivationsWritten), 1024u);
  EXPECT_EQ(TotalExecuted(KernelNamed<EmbedOp>("ref"), op).Flops(WorkClass::kQuantize), 4u * 64);

  op.table = table.View(true);
  op.add_to_out = true;
  cost = TotalUseful(op);
  EXPECT_EQ(cost.Flops(WorkClass::kResidualBias), 256u);
  EXPECT_EQ(cost.TotalFlops(), 256u);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsStored), 3u * 68);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsPacked), 2u * 1088);
  EXPECT_EQ(cost.Bytes(ByteKind::kActivationsRead), 1040u);
  AlignedBuffer<uint8_t> scratch;
  ASSERT_TRUE(scratch.Resize(256));
  const OpCounts counts = CountOf([&] { EmbedRef<Counting>(op, 0, 4, scratch.span()); });
  EXPECT_EQ(counts.flops, 256u);
  EXPECT_EQ(counts.special, 0u);

  EXPECT_EQ(TotalExecuted(KernelNamed<EmbedOp>("ref"), op).Flops(WorkClass::kQuantize), 4u * 64 * 2);

  WeightTouches touches;
  op.Touches(touches);
  ASSERT_EQ(touches.size(), 3u);
  const uint32_t rows[] = {3, 7, 20};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(touches[i].id, 9u);
    EXPECT_EQ(touches[i].row_begin, rows[i]);
    EXPECT_EQ(touches[i].row_end, rows[i] + 1);
  }
}

TEST(Embed, HighwayCountsItsPadding) {
  Random random(76);
  const std::vector<int32_t> ids = {3, 20, 3, 7};
  // Q8_0 multiplies by the scale, Q4_0 too, MXFP4 by one half before.
  const std::pair<DType, uint64_t> types[] = {{DType::kF32, 0},  {DType::kF16, 0},  {DType::kBF16, 0},
                                              {DType::kQ8_0, 1}, {DType::kQ4_0, 1}, {DType::kMXFP4, 2}};
  ForEachTarget([&] {
    const uint64_t lanes = static_cast<uint64_t>(HwyF32Lanes());
    for (auto [t, flops] : types) {
      for (int64_t cols : {64, 65}) {
        if (cols % GetDTypeInfo(t).block_size != 0) continue;
        Table table(random, t, 40, cols);
        EdgeMat<float> out(4, cols);
        for (bool packed : {false, true}) {
          const EmbedOp op = {ids, table.View(packed), true, out.view()};
          const Cost executed = TotalExecuted(KernelNamed<EmbedOp>("hwy"), op);
          ExpectAtLeast(executed, TotalUseful(op));
          EXPECT_EQ(executed.Flops(WorkClass::kQuantize), 4u * 64 * flops);
          EXPECT_EQ(executed.Flops(WorkClass::kResidualBias), 4u * (cols == 64 ? 64 : 64 + lanes));
          if (cols == 64 && flops == 0) {
            EXPECT_EQ(executed, TotalUseful(op));
          }
        }
      }
    }
  });
}

TEST(Embed, IdsOutsideTheTableAreBadInput) {
  Random random(73);
  Table table(random, DType::kF32, 5, 4);
  EdgeMat<float> out(1, 4);
  for (int32_t id : {-1, 5}) {
    const EmbedOp op = {{&id, 1}, table.View(false), false, out.view()};
    EXPECT_EQ(op.Validate().code(), StatusCode::kBadInput);
    EXPECT_NE(op.Validate().message().find(std::to_string(id)), std::string::npos);
  }
  const int32_t good = 4;
  EmbedOp op = {{&good, 1}, table.View(false), false, out.view()};
  EXPECT_TRUE(op.Validate().ok());
  op.table.layout = WeightLayout::kVector;
  EXPECT_EQ(op.Validate().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace tally
