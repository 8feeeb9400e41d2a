// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/norm/norm.h"

#include <gtest/gtest.h>

#include "engine/kernels/norm/norm_ref.h"
#include "tests/kernels/harness.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

// A norm of [rows, groups * k] on arrays that end at bad pages.
struct NormCase {
  NormOp op;
  EdgeMat<float> x, want, got;
  EdgeArray<float> weight, bias;

  NormCase(Random& random, NormKind kind, int64_t rows, int64_t groups, int64_t k, bool with_bias, int64_t gap, float offset)
      : x(rows, groups * k, gap),
        want(rows, groups * k, gap),
        got(rows, groups * k, gap),
        weight(static_cast<size_t>(k)),
        bias(static_cast<size_t>(k)) {
    x.Fill(random, 2, offset);
    random.Fill(weight.data(), k);
    random.Fill(bias.data(), k);
    op.kind = kind;
    op.groups = groups;
    op.x = x.view();
    op.out = want.view();
    if (kind != NormKind::kL2) op.weight = VectorView(weight.data(), k, 3);
    if (with_bias) op.bias = VectorView(bias.data(), k, 4);
  }

  // The tolerance of norm_ref.h for element (r, c); the statistics of a vector are taken at its first
  // element.
  double Tolerance(int64_t r, int64_t c, double y) {
    const int64_t k = op.vector_size(), start = c / k * k;
    if (op.kind != NormKind::kLayer) return NormTolerance(k) * std::fabs(y);
    if (r != row_ || start != start_) TakeStatistics(row_ = r, start_ = start);
    const size_t at = static_cast<size_t>(c - start);
    return NormTolerance(k) * (std::fabs(weight[at]) * (1 + greatest_over_sd_) + std::fabs(y) + std::fabs(bias[at]));
  }

 private:
  void TakeStatistics(int64_t r, int64_t start) {
    const int64_t k = op.weight.cols;
    double mean = 0, variance = op.eps, greatest = 0;
    for (int64_t i = start; i < start + k; ++i) mean += x.Row(r)[i] / static_cast<double>(k);
    for (int64_t i = start; i < start + k; ++i) {
      variance += std::pow(x.Row(r)[i] - mean, 2) / static_cast<double>(k);
      greatest = std::max(greatest, std::fabs(static_cast<double>(x.Row(r)[i])));
    }
    greatest_over_sd_ = greatest / std::sqrt(variance);
  }
  int64_t row_ = -1, start_ = -1;
  double greatest_over_sd_ = 0;
};

std::vector<int64_t> Lengths() {
  std::vector<int64_t> v;
  for (int64_t k = 1; k <= 35; ++k) v.push_back(k);
  for (int64_t k : {47, 48, 49, 63, 64, 65, 127, 128, 129, 131, 255, 257, 768, 2880, 4097}) v.push_back(k);
  return v;
}

TEST(Norm, HighwayAgreesWithTheReference) {
  ForEachTarget([] {
    Random random(41);
    SCOPED_TRACE(random.Trace());
    for (int64_t k : Lengths()) {
      for (int variant = 0; variant < 4; ++variant) {
        const NormKind kind = variant == 0 ? NormKind::kRms : variant == 3 ? NormKind::kL2 : NormKind::kLayer;
        const int64_t rows = random.Between(1, 4), groups = random.Between(1, 3);
        SCOPED_TRACE("k " + std::to_string(k) + ", variant " + std::to_string(variant) + ", rows " + std::to_string(rows) +
                     ", groups " + std::to_string(groups));
        NormCase c(random, kind, rows, groups, k, variant == 2, random.Between(0, 5), k % 2 == 0 ? 3.0f : 0.0f);
        ASSERT_TRUE(c.op.Validate().ok()) << c.op.Validate().message();
        RunShuffled(KernelNamed<NormOp>("ref"), c.op, random.Bits());
        c.op.out = c.got.view();
        RunShuffled(KernelNamed<NormOp>("hwy"), c.op, random.Bits());
        ExpectClose(c.got.view(), c.want.view(), [&](int64_t r, int64_t col, double y) { return c.Tolerance(r, col, y); });
        c.got.ExpectGapsUntouched();
        // in place, and one vector alone: the same bits
        EdgeMat<float> again(rows, groups * k, 2);
        again.CopyFrom(c.op.x);
        c.op.x = again.view();
        c.op.out = again.view();
        RunShuffled(KernelNamed<NormOp>("hwy"), c.op, random.Bits(), 1);
        ExpectSameBits(again.view(), c.got.view());
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(Norm, ReferenceAgreesWithDoublePrecision) {
  Random random(42);
  SCOPED_TRACE(random.Trace());
  for (bool layer : {false, true}) {
    NormCase c(random, layer ? NormKind::kLayer : NormKind::kRms, 2, 1, 300, layer, 0, 1);
    RunShuffled(KernelNamed<NormOp>("ref"), c.op, random.Bits());
    for (int64_t r = 0; r < 2; ++r) {
      double mean = 0, squares = 0;
      for (int64_t i = 0; i < 300; ++i) mean += layer ? c.x.Row(r)[i] / 300.0 : 0;
      for (int64_t i = 0; i < 300; ++i) squares += std::pow(c.x.Row(r)[i] - mean, 2);
      for (int64_t i = 0; i < 300; ++i) {
        const size_t at = static_cast<size_t>(i);
        const double y = (c.x.Row(r)[i] - mean) / std::sqrt(squares / 300 + c.op.eps) * c.weight[at] + (layer ? c.bias[at] : 0);
        ASSERT_NEAR(c.want.Row(r)[i], y, c.Tolerance(r, i, y));
      }
    }
  }
}

TEST(Norm, L2DividesByTheLength) {
  Random random(46);
  SCOPED_TRACE(random.Trace());
  NormCase c(random, NormKind::kL2, 2, 3, 128, false, 0, 0);
  c.op.eps = 1e-6f;
  for (int64_t i = 0; i < 128; ++i) c.x.Row(1)[i] *= 1e-4f;  // eps is added to the sum, not to the mean
  ForEachTarget([&] {
    for (const char* kernel : {"ref", "hwy"}) {
      RunShuffled(KernelNamed<NormOp>(kernel), c.op, random.Bits());
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t g = 0; g < 3; ++g) {
          const float* const x = c.x.Row(r) + g * 128;
          double squares = c.op.eps;
          for (int64_t i = 0; i < 128; ++i) squares += static_cast<double>(x[i]) * x[i];
          for (int64_t i = 0; i < 128; ++i) {
            const double y = x[i] / std::sqrt(squares);
            ASSERT_NEAR(c.want.Row(r)[g * 128 + i], y, NormTolerance(128) * std::fabs(y));
          }
        }
      }
    }
  });
}

TEST(Norm, ZerosStayFiniteAndNanStaysInItsRow) {
  ForEachTarget([] {
    for (NormKind kind : {NormKind::kRms, NormKind::kL2, NormKind::kLayer}) {
      Random random(43);
      NormCase c(random, kind, 3, 1, 19, kind == NormKind::kLayer, 0, 0);
      for (int64_t i = 0; i < 19; ++i) c.x.Row(0)[i] = 0;
      c.x.Row(1)[18] = std::nanf("");
      RunShuffled(KernelNamed<NormOp>("hwy"), c.op, 1);
      for (int64_t i = 0; i < 19; ++i) {
        EXPECT_EQ(c.want.Row(0)[i], kind == NormKind::kLayer ? c.bias[static_cast<size_t>(i)] : 0);
        EXPECT_TRUE(std::isnan(c.want.Row(1)[i]));
        EXPECT_TRUE(std::isfinite(c.want.Row(2)[i]));
      }
    }
  });
}

TEST(Norm, UsefulByHandAndByCounting) {
  Random random(44);
  // RMS over 2 rows of 3 groups of 10: 6 vectors of 4 * 10 + 1 FLOPs, a divide and an rsqrt each.
  NormCase rms(random, NormKind::kRms, 2, 3, 10, false, 0, 0);
  Cost cost = TotalUseful(rms.op);
  EXPECT_EQ(cost.Flops(WorkClass::kNorm), 246u);
  EXPECT_EQ(cost.Special(WorkClass::kNorm), 12u);
  EXPECT_EQ(cost.TotalFlops(), 246u);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsStored), 40u);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsPacked), 40u);
  EXPECT_EQ(cost.Bytes(ByteKind::kActivationsRead), 240u);
  EXPECT_EQ(cost.Bytes(ByteKind::kActivationsWritten), 240u);
  WeightTouches touches;
  rms.op.Touches(touches);
  ASSERT_EQ(touches.size(), 1u);
  EXPECT_EQ(touches[0].id, 3u);
  EXPECT_EQ(touches[0].row_end, 1u);

  NormCase layer(random, NormKind::kLayer, 1, 1, 10, true, 0, 0);
  EXPECT_EQ(TotalUseful(layer.op).Flops(WorkClass::kNorm), 71u);
  EXPECT_EQ(TotalUseful(layer.op).Special(WorkClass::kNorm), 3u);
  EXPECT_EQ(TotalUseful(layer.op).Bytes(ByteKind::kWeightsStored), 80u);
  NormCase plain(random, NormKind::kLayer, 1, 1, 10, false, 0, 0), l2(random, NormKind::kL2, 2, 3, 10, false, 0, 0);
  EXPECT_EQ(TotalUseful(l2.op).Flops(WorkClass::kNorm), 6u * 31);
  EXPECT_EQ(TotalUseful(l2.op).Special(WorkClass::kNorm), 6u);

  for (const NormCase* c : {&rms, &layer, &plain, &l2}) {
    const OpCounts counts = CountOf([&] { NormRef<Counting>(c->op, 0, c->op.x.rows * c->op.groups); });
    EXPECT_EQ(counts.flops, TotalUseful(c->op).TotalFlops());
    EXPECT_EQ(counts.special, TotalUseful(c->op).TotalSpecial());
  }
  ForEachTarget([&] {
    for (const NormCase* c : {&rms, &layer, &plain, &l2}) {
      for (const Kernel<NormOp>& k : Kernels<NormOp>()) ExpectAtLeast(TotalExecuted(k, c->op), TotalUseful(c->op));
    }
    NormCase whole(random, NormKind::kRms, 1, 1, 64, false, 0, 0);  // nothing masked: equal
    EXPECT_EQ(TotalExecuted(KernelNamed<NormOp>("hwy"), whole.op), TotalUseful(whole.op));
  });
}

TEST(Norm, ValidateNamesWhatIsWrong) {
  Random random(45);
  NormCase good(random, NormKind::kRms, 2, 1, 8, false, 0, 0);
  EXPECT_TRUE(good.op.Validate().ok());
  NormOp op = good.op;
  op.groups = 3;
  EXPECT_EQ(op.Validate().code(), StatusCode::kInternal);
  op = good.op;
  op.bias = op.weight;
  EXPECT_FALSE(op.Validate().ok());
  op = good.op;
  op.eps = std::nanf("");
  EXPECT_FALSE(op.Validate().ok());
  op = good.op;
  op.out.rows = 1;
  EXPECT_FALSE(op.Validate().ok());
  op = good.op;
  op.weight.cols = 5;
  EXPECT_FALSE(op.Validate().ok());
  op = good.op;
  op.weight = {};
  op.kind = NormKind::kLayer;
  EXPECT_FALSE(op.Validate().ok());
  op.kind = NormKind::kL2;
  EXPECT_TRUE(op.Validate().ok());
  op.weight = good.op.weight;
  EXPECT_FALSE(op.Validate().ok());
}

}  // namespace
}  // namespace tally
