#include "engine/kernels/rope.h"

#include <gtest/gtest.h>

#include "engine/kernels/rope_ref.h"
#include "tests/kernels/harness.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

struct Case {
  RopeOp op;
  EdgeMat<float> x, cos, sin;
  Case(Random& random, RopeStyle style, int64_t rows, int64_t heads, int64_t head_dim, int64_t dim, int64_t gap)
      : x(rows, heads * head_dim, gap), cos(rows, dim / 2, gap), sin(rows, dim / 2, gap) {
    x.Fill(random);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < dim / 2; ++i) {
        const float angle = random.Uniform(-10, 10);
        cos.Row(r)[i] = std::cos(angle);
        sin.Row(r)[i] = std::sin(angle);
      }
    }
    op = {style, x.view(), heads, head_dim, dim, cos.view(), sin.view()};
  }
};

TEST(Rope, HighwayAgreesWithTheReference) {
  ForEachTarget([] {
    Random random(51);
    SCOPED_TRACE(random.Trace());
    for (RopeStyle style : {RopeStyle::kRotateHalf, RopeStyle::kAdjacentPair}) {
      for (int64_t dim = 2; dim <= 140; dim += dim < 72 ? 2 : 14) {
        for (int64_t beyond : {0, 3}) {
          const int64_t rows = random.Between(1, 3), heads = random.Between(1, 3), gap = random.Between(0, 5);
          SCOPED_TRACE("style " + std::to_string(static_cast<int>(style)) + ", dim " + std::to_string(dim) + " + " +
                       std::to_string(beyond));
          Case c(random, style, rows, heads, dim + beyond, dim, gap);
          ASSERT_TRUE(c.op.Validate().ok()) << c.op.Validate().message();
          EdgeMat<float> before(rows, c.op.x.cols), got(rows, c.op.x.cols, gap);
          before.CopyFrom(c.op.x);
          got.CopyFrom(c.op.x);
          RunShuffled(KernelNamed<RopeOp>("ref"), c.op, random.Bits());
          RopeOp hwy = c.op;
          hwy.x = got.view();
          RunShuffled(KernelNamed<RopeOp>("hwy"), hwy, random.Bits());
          ExpectClose(got.view(), c.x.view(), [&](int64_t r, int64_t col, double) {
            const int64_t h = col / c.op.head_dim * c.op.head_dim, i = col - h, half = dim / 2;
            if (i >= dim) return 0.0;  // stays
            const int64_t pair = style == RopeStyle::kAdjacentPair ? i / 2 : i % half;
            const int64_t other = style == RopeStyle::kAdjacentPair ? i ^ 1 : (i + half) % dim;
            const double a = before.Row(r)[col], b = before.Row(r)[h + other];
            return kRopeTolerance * (std::fabs(a * c.cos.Row(r)[pair]) + std::fabs(b * c.sin.Row(r)[pair]));
          });
          got.ExpectGapsUntouched();
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

// Against the formula in double precision, and the two styles against each other by permutation.
TEST(Rope, ReferenceTurnsByTheAngle) {
  Random random(52);
  SCOPED_TRACE(random.Trace());
  const int32_t positions[] = {0, 1, 77, 4095};
  std::vector<float> inv_freq(8);
  for (size_t i = 0; i < 8; ++i) inv_freq[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / 8));
  EdgeMat<float> cos(4, 8), sin(4, 8);
  const RopeTableOp table = {positions, inv_freq, 1.25f, cos.view(), sin.view()};
  ASSERT_TRUE(table.Validate().ok());
  RunShuffled(KernelNamed<RopeTableOp>("ref"), table, random.Bits());
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t i = 0; i < 8; ++i) {
      const float angle = static_cast<float>(positions[r]) * inv_freq[static_cast<size_t>(i)];  // an f32 product
      EXPECT_NEAR(cos.Row(r)[i], 1.25 * std::cos(static_cast<double>(angle)), 2e-7);
      EXPECT_NEAR(sin.Row(r)[i], 1.25 * std::sin(static_cast<double>(angle)), 2e-7);
    }
  }
  EdgeMat<float> half(4, 20), adjacent(4, 20);
  half.Fill(random);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t i = 0; i < 8; ++i) {
      adjacent.Row(r)[2 * i] = half.Row(r)[i];
      adjacent.Row(r)[2 * i + 1] = half.Row(r)[i + 8];
    }
  }
  EdgeMat<float> before(4, 20);
  before.CopyFrom(half.view());
  RunShuffled(KernelNamed<RopeOp>("ref"), RopeOp{RopeStyle::kRotateHalf, half.view(), 1, 20, 16, cos.view(), sin.view()}, 1);
  RunShuffled(KernelNamed<RopeOp>("ref"), RopeOp{RopeStyle::kAdjacentPair, adjacent.view(), 1, 20, 16, cos.view(), sin.view()},
              2);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t i = 0; i < 8; ++i) {
      const double a = before.Row(r)[i], b = before.Row(r)[i + 8];
      const double angle = static_cast<float>(positions[r]) * inv_freq[static_cast<size_t>(i)];
      EXPECT_NEAR(half.Row(r)[i], 1.25 * (a * std::cos(angle) - b * std::sin(angle)), 2e-6);
      EXPECT_NEAR(half.Row(r)[i + 8], 1.25 * (b * std::cos(angle) + a * std::sin(angle)), 2e-6);
      EXPECT_EQ(adjacent.Row(r)[2 * i], half.Row(r)[i]);
      EXPECT_EQ(adjacent.Row(r)[2 * i + 1], half.Row(r)[i + 8]);
    }
    for (int64_t i = 16; i < 20; ++i) EXPECT_EQ(half.Row(r)[i], before.Row(r)[i]);
  }
}

TEST(Rope, UsefulByHandAndByCounting) {
  Random random(53);
  Case c(random, RopeStyle::kRotateHalf, 2, 3, 12, 10, 0);
  // 2 rows x 3 heads x 5 pairs x 6
  EXPECT_EQ(c.op.Useful().Flops(WorkClass::kRope), 180u);
  EXPECT_EQ(c.op.Useful().TotalFlops(), 180u);
  EXPECT_EQ(c.op.Useful().Bytes(ByteKind::kActivationsRead), 2u * (30 + 10) * 4);
  EXPECT_EQ(c.op.Useful().Bytes(ByteKind::kActivationsWritten), 2u * 30 * 4);
  OpCounts counts = CountOf([&] { RopeRef<Counting>(c.op, 0, 6); });
  EXPECT_EQ(counts.flops, 180u);
  EXPECT_EQ(counts.special, 0u);

  const int32_t positions[] = {5, 6, 7};
  const float inv_freq[] = {1.0f, 0.5f};
  EdgeMat<float> cos(3, 2), sin(3, 2);
  const RopeTableOp table = {positions, inv_freq, 1.0f, cos.view(), sin.view()};
  EXPECT_EQ(table.Useful().Flops(WorkClass::kRope), 18u);
  EXPECT_EQ(table.Useful().Special(WorkClass::kRope), 12u);
  EXPECT_EQ(table.Useful().Bytes(ByteKind::kActivationsRead), 20u);
  EXPECT_EQ(table.Useful().Bytes(ByteKind::kActivationsWritten), 48u);
  counts = CountOf([&] { RopeTableRef<Counting>(table, 0, 3); });
  EXPECT_EQ(counts.flops, 18u);
  EXPECT_EQ(counts.special, 12u);

  ForEachTarget([&] {
    ExpectAtLeast(KernelNamed<RopeOp>("hwy").executed(c.op), c.op.Useful());
    Case whole(random, RopeStyle::kRotateHalf, 1, 1, 64, 64, 0);
    EXPECT_EQ(KernelNamed<RopeOp>("hwy").executed(whole.op), whole.op.Useful());
  });
}

TEST(Rope, ValidateNamesWhatIsWrong) {
  Random random(54);
  Case good(random, RopeStyle::kRotateHalf, 2, 2, 8, 8, 0);
  RopeOp op = good.op;
  op.dim = 7;
  EXPECT_FALSE(op.Validate().ok());
  op = good.op;
  op.dim = 10;
  EXPECT_FALSE(op.Validate().ok());
  op = good.op;
  op.cos.rows = 1;
  EXPECT_FALSE(op.Validate().ok());
  op = good.op;
  op.style = RopeStyle::kNone;
  EXPECT_FALSE(op.Validate().ok());
  const int32_t negative[] = {-1};
  const float inv_freq[] = {1.0f};
  float c, s;
  EXPECT_FALSE((RopeTableOp{negative, inv_freq, 1.0f, Mat<float>(&c, 1, 1), Mat<float>(&s, 1, 1)}.Validate().ok()));
}

}  // namespace
}  // namespace tally
