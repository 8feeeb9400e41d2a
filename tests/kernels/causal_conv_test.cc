// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/causal_conv/causal_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "engine/kernels/causal_conv/causal_conv_ref.h"
#include "tests/kernels/harness.h"

namespace tally {
namespace {

// Sequences whose rows are in blocks. A block ends at an inaccessible page and begins as NaNs: a row that should not be read shows.
class Sequences {
 public:
  Sequences(int64_t d, const std::vector<int64_t>& lengths, Random& random) : layout_{KvType::kF32, 1, d, d, true} {
    for (size_t s = 0; s < lengths.size(); ++s) {
      std::vector<uint8_t*>& blocks = pointers_.emplace_back();
      for (int64_t p = 0; p < lengths[s]; p += kKvBlock) {
        blocks_.push_back(std::make_unique<EdgeArray<uint8_t>>(layout_.BlockBytes()));
        std::memset(blocks_.back()->data(), 0xFF, blocks_.back()->size());
        blocks.push_back(blocks_.back()->data());
      }
      values_.emplace_back(static_cast<size_t>(lengths[s] * d));
      random.Fill(values_[s].data(), lengths[s] * d);
    }
    for (const auto& p : pointers_) tables_.push_back({p.data(), static_cast<int64_t>(p.size())});
  }
  const KvLayout& layout() const { return layout_; }
  std::span<const KvTable> tables() const { return tables_; }
  // Positions [0, end) of a sequence, as KvStoreOp stores them.
  void Store(int32_t s, int64_t end) {
    std::vector<KvRow> rows;
    for (int64_t p = 0; p < end; ++p) rows.push_back({s, static_cast<int32_t>(p)});
    KvStoreOp op;
    op.k = {values_[static_cast<size_t>(s)].data(), end, layout_.k_dim};
    op.layout = layout_;
    op.rows = rows;
    op.tables = tables_;
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    RunShuffled(KernelNamed<KvStoreOp>("hwy"), op, 3);
  }
  double At(int32_t s, int64_t p, int64_t i) const {
    return p < 0 ? 0 : static_cast<double>(values_[static_cast<size_t>(s)][static_cast<size_t>(p * layout_.k_dim + i)]);
  }
  uint8_t** blocks(size_t s) { return pointers_[s].data(); }

 private:
  KvLayout layout_;
  std::vector<std::unique_ptr<EdgeArray<uint8_t>>> blocks_;
  std::vector<std::vector<uint8_t*>> pointers_;
  std::vector<std::vector<float>> values_;
  std::vector<KvTable> tables_;
};

WeightView Taps(const float* data, int64_t taps, int64_t d) {
  WeightView w = VectorView(data, d);
  w.slices = taps;
  return w;
}

CausalConvOp Op(const Sequences& s, Mat<const float> gate, const WeightView& taps, std::span<const KvRow> rows, Mat<float> out) {
  CausalConvOp op;
  op.gate = gate;
  op.taps = taps;
  op.layout = s.layout();
  op.rows = rows;
  op.tables = s.tables();
  op.out = out;
  return op;
}

TEST(CausalConv, EveryTargetAgreesWithTheFormula) {
  ForEachTarget([] {
    Random random(81);
    SCOPED_TRACE(random.Trace());
    for (int64_t d = 1; d <= 200; d += d < 40 ? 1 : 23) {
      for (const int64_t taps : {1, 3, 4}) {
        Sequences s(d, {140, 3}, random);
        s.Store(0, 140);
        s.Store(1, 3);
        const std::vector<KvRow> rows = {{0, 0}, {1, 2}, {0, 1}, {0, 127}, {0, 128}, {0, 129}, {1, 0}, {0, 139}};
        const int64_t n = static_cast<int64_t>(rows.size()), gap = random.Between(0, 4);
        EdgeMat<float> gate(n, d, gap), got(n, d, gap), want(n, d);
        EdgeArray<float> weights(static_cast<size_t>(taps * d));
        gate.Fill(random);
        random.Fill(weights.data(), taps * d);
        CausalConvOp op = Op(s, gate.view(), Taps(weights.data(), taps, d), rows, got.view());
        ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
        RunShuffled(KernelNamed<CausalConvOp>("hwy"), op, random.Bits());
        got.ExpectGapsUntouched();
        op.out = want.view();
        RunShuffled(KernelNamed<CausalConvOp>("ref"), op, random.Bits());
        for (int64_t r = 0; r < n; ++r) {
          for (int64_t i = 0; i < d; ++i) {
            double sum = 0, most = 0;
            for (int64_t k = 0; k < taps; ++k) {
              const KvRow& row = rows[static_cast<size_t>(r)];
              const double product =
                  static_cast<double>(weights[static_cast<size_t>(k * d + i)]) * s.At(row.table, row.position - taps + 1 + k, i);
              sum += product;
              most += std::fabs(product);
            }
            const double g = static_cast<double>(gate.Row(r)[i]), allowed = CausalConvTolerance(taps) * std::fabs(g) * most;
            ASSERT_NEAR(static_cast<double>(want.Row(r)[i]), g * sum, allowed) << "row " << r << ", column " << i;
            ASSERT_NEAR(static_cast<double>(got.Row(r)[i]), static_cast<double>(want.Row(r)[i]), allowed);
          }
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// One row after another, or all of a prompt at once, in company or alone.
TEST(CausalConv, BitsDoNotDependOnTheCut) {
  ForEachTarget([] {
    Random random(82);
    SCOPED_TRACE(random.Trace());
    constexpr int64_t kD = 37, kLength = 133, kTaps = 3;
    Sequences s(kD, {kLength, kLength}, random);
    s.Store(0, kLength);
    s.Store(1, kLength);
    EdgeArray<float> weights(kTaps * kD);
    random.Fill(weights.data(), kTaps * kD);
    std::vector<KvRow> rows;
    for (int32_t p = 0; p < kLength; ++p) rows.push_back({p % 3 == 0 ? 1 : 0, p});
    EdgeMat<float> gate(kLength, kD), whole(kLength, kD), one(1, kD);
    gate.Fill(random);
    const WeightView taps = Taps(weights.data(), kTaps, kD);
    RunShuffled(KernelNamed<CausalConvOp>("hwy"), Op(s, gate.view(), taps, rows, whole.view()), random.Bits());
    for (int64_t p = 0; p < kLength; ++p) {
      const Mat<const float> own(gate.Row(p), 1, kD);
      const std::span<const KvRow> row(&rows[static_cast<size_t>(p)], 1);
      RunShuffled(KernelNamed<CausalConvOp>("hwy"), Op(s, own, taps, row, one.view()), random.Bits());
      ExpectSameBits(one.view(), Mat<const float>(whole.Row(p), 1, kD));
    }
  });
}

TEST(CausalConv, CostsByHand) {
  Random random(83);
  Sequences s(5, {200}, random);
  EdgeArray<float> weights(15);
  EdgeMat<float> gate(3, 5), out(3, 5);
  const std::vector<KvRow> rows = {{0, 0}, {0, 1}, {0, 130}};
  CausalConvOp op = Op(s, gate.view(), Taps(weights.data(), 3, 5), rows, out.view());
  const Cost cost = TotalUseful(op);
  EXPECT_EQ(cost.Flops(WorkClass::kLinear), 3u * 2 * 3 * 5);
  EXPECT_EQ(cost.Flops(WorkClass::kActivation), 3u * 5);
  EXPECT_EQ(cost.Bytes(ByteKind::kKvRead), (1u + 2 + 3) * 5 * 4);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsPacked), 3u * 5 * 4);
  std::vector<CostAmounts> amounts(2);
  op.AddRowAmounts(std::vector<uint32_t>{0, 1, 1}, amounts);
  EXPECT_EQ(amounts[1][Amount::kVisible], 5u);
  EXPECT_EQ(amounts[0][Amount::kRows], 1u);
  ForEachTarget([&] { ExpectAtLeast(TotalExecuted(KernelNamed<CausalConvOp>("hwy"), op), TotalUseful(op)); });
  WeightTouches touches;
  op.Touches(touches);
  EXPECT_EQ(touches.size(), 3u);
}

TEST(CausalConv, RefusesWhatItCannotRead) {
  Random random(84);
  Sequences s(5, {200}, random);
  EdgeArray<float> weights(15);
  EdgeMat<float> gate(1, 5), out(1, 5);
  const std::vector<KvRow> rows = {{0, 129}};
  const CausalConvOp op = Op(s, gate.view(), Taps(weights.data(), 3, 5), rows, out.view());
  EXPECT_TRUE(op.Validate().ok());
  CausalConvOp half = op;
  half.layout.type = KvType::kF16;
  EXPECT_FALSE(half.Validate().ok());
  CausalConvOp narrow = op;
  narrow.taps.cols = 4;
  EXPECT_FALSE(narrow.Validate().ok());
  s.blocks(0)[0] = nullptr;  // positions 127 and 128 are not in one block
  EXPECT_FALSE(op.Validate().ok());
  const std::vector<KvRow> later = {{0, 130}};
  EXPECT_TRUE(Op(s, gate.view(), op.taps, later, out.view()).Validate().ok());
}

}  // namespace
}  // namespace tally
