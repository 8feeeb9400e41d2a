// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <deque>

#include "engine/kernels/rope/rope_ref.h"
#include "engine/kernels/target.h"
#include "tests/kernels/harness.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

struct RopeCase {
  RopeOp op;
  EdgeMat<float> x, cos, sin;
  RopeCase(Random& random, RopeStyle style, int64_t rows, int64_t heads, int64_t head_dim, int64_t dim, int64_t gap)
      : x(rows, heads * head_dim, gap), cos(rows, dim / 2, gap), sin(rows, dim / 2, gap) {
    x.Fill(random);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < dim / 2; ++i) {
        const float angle = random.Uniform(-10, 10);
        cos.Row(r)[i] = std::cos(angle);
        sin.Row(r)[i] = std::sin(angle);
      }
    }
    op = {style, x.view(), heads, head_dim, dim, cos.view(), sin.view(), {}, 0};
  }
};

// The rotated dimensions of each head, elsewhere, or without a style what would rotate; the rest of `out` and of x is left alone.
TEST(Rope, IntoAnotherMatrix) {
  ForEachTarget([] {
    Random random(83);
    for (const RopeStyle style : {RopeStyle::kRotateHalf, RopeStyle::kAdjacentPair, RopeStyle::kNone}) {
      const int64_t heads = 3, stride = 26, dim = 14, out_stride = 40, rows = 2;
      EdgeMat<float> x(rows, 2 * stride + dim), out(rows, 2 * out_stride + dim), cos(rows, dim / 2), sin(rows, dim / 2),
          kept(rows, x.view().cols);
      for (auto* m : {&x, &out, &cos, &sin}) m->Fill(random);
      kept.CopyFrom(x.view());
      EdgeMat<float> before(rows, out.view().cols);
      before.CopyFrom(out.view());
      const RopeOp to{style, x.view(), heads, stride, dim, cos.view(), sin.view(), out.view(), out_stride};
      ASSERT_TRUE(to.Validate().ok()) << to.Validate().message();
      RunShuffled(KernelNamed<RopeOp>("hwy"), to, random.Bits());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < x.view().cols; ++c) ASSERT_EQ(x.Row(r)[c], kept.Row(r)[c]);
      }
      const RopeOp in_place{style, x.view(), heads, stride, dim, cos.view(), sin.view(), {}, 0};
      ASSERT_EQ(in_place.Validate().ok(), style != RopeStyle::kNone);
      if (style != RopeStyle::kNone) RunShuffled(KernelNamed<RopeOp>("hwy"), in_place, random.Bits());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < out.view().cols; ++c) {
          const int64_t h = c / out_stride, d = c % out_stride;
          ASSERT_EQ(out.Row(r)[c], d < dim ? x.Row(r)[h * stride + d] : before.Row(r)[c]) << "head " << h << ", d " << d;
        }
      }
    }
  });
}

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
          RopeCase c(random, style, rows, heads, dim + beyond, dim, gap);
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

// Positions and frequencies, the table they give, and the angles: f32 products.
struct TableCase {
  std::vector<int32_t> positions;
  std::vector<float> inv_freq;
  float magnitude = 1;
  EdgeMat<float> cos, sin;
  TableCase(std::vector<int32_t> p, std::vector<float> f, float m, int64_t gap = 0)
      : positions(std::move(p)), inv_freq(std::move(f)), magnitude(m), cos(Rows(), Cols(), gap), sin(Rows(), Cols(), gap) {}
  int64_t Rows() const { return static_cast<int64_t>(positions.size()); }
  int64_t Cols() const { return static_cast<int64_t>(inv_freq.size()); }
  RopeTableOp Op(EdgeArray<float>& frequencies) const {
    std::copy(inv_freq.begin(), inv_freq.end(), frequencies.data());
    return {positions, frequencies.span(), magnitude, cos.view(), sin.view()};
  }
  float Angle(int64_t r, int64_t i) const {
    return static_cast<float>(positions[static_cast<size_t>(r)]) * inv_freq[static_cast<size_t>(i)];
  }
  void Run(std::string_view kernel, uint64_t seed) const {
    EdgeArray<float> frequencies(inv_freq.size());
    const RopeTableOp op = Op(frequencies);
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    RunShuffled(KernelNamed<RopeTableOp>(kernel), op, seed);
    cos.ExpectGapsUntouched();
    sin.ExpectGapsUntouched();
  }
  // Every value within 1 ulp of the true one, rounded (magnitude 1); `worst` collects the distance from the unrounded one.
  void ExpectTrue(double* worst) const {
    for (int64_t r = 0; r < Rows(); ++r) {
      for (int64_t i = 0; i < Cols(); ++i) {
        const long double angle = Angle(r, i);
        for (auto [got, want] : {std::pair(cos.Row(r)[i], std::cos(angle)), std::pair(sin.Row(r)[i], std::sin(angle))}) {
          *worst = std::max(*worst, UlpDistance(got, static_cast<double>(want)));
          ASSERT_LE(UlpDistance(got, static_cast<float>(want)), 1.0) << "angle " << Angle(r, i) << ", want " << want;
        }
      }
    }
  }
};

std::vector<float> Frequencies(double theta, int64_t half) {
  std::vector<float> f;
  for (int64_t i = 0; i < half; ++i) {
    f.push_back(static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(half))));
  }
  return f;
}

TEST(RopeTable, HighwayAgreesWithTheReference) {
  ForEachTarget([] {
    Random random(55);
    SCOPED_TRACE(random.Trace());
    for (int64_t half = 1; half <= 70; half += half < 36 ? 1 : 7) {
      SCOPED_TRACE("half " + std::to_string(half));
      std::vector<int32_t> positions = {0, 1, 131071, 1000000, INT32_MAX};
      while (positions.size() < 8) positions.push_back(static_cast<int32_t>(random.Below(200000)));
      const float magnitude = random.Uniform(1, 2);
      const TableCase want(positions, Frequencies(150000, half), magnitude), got(positions, want.inv_freq, magnitude, half % 4);
      want.Run("ref", random.Bits());
      got.Run("hwy", random.Bits());
      auto tolerance = [](int64_t, int64_t, double t) { return kRopeTableTolerance * std::fabs(t); };
      ExpectClose(got.cos.view(), want.cos.view(), tolerance);
      ExpectClose(got.sin.view(), want.sin.view(), tolerance);
      // one angle alone: the same bits
      for (int64_t i = 0; i < half; i += 5) {
        const TableCase one({positions[3]}, {want.inv_freq[static_cast<size_t>(i)]}, magnitude);
        one.Run("hwy", 1);
        ExpectSameBits(one.cos.view(), got.cos.view().Rows(3, 1).Cols(i, 1));
        ExpectSameBits(one.sin.view(), got.sin.view().Rows(3, 1).Cols(i, 1));
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// Against long double: angles of models, then every magnitude up to 2^31 and the neighbours of quarter turns, where the
// remainder is least.
TEST(RopeTable, HighwayIsWithinOneUlpOfTheTruth) {
  Random random(56);
  SCOPED_TRACE(random.Trace());
  std::deque<TableCase> cases;  // they cannot move
  const std::vector<int32_t> positions = {0, 1, 2, 3, 5, 77, 4095, 4096, 32767, 131071, 1000000, 16777217, INT32_MAX};
  for (double theta : {1e4, 1.5e5, 5e5, 1e6}) cases.emplace_back(positions, Frequencies(theta, 64), 1.0f);
  std::vector<float> angles = {0x1p31f, 0x1.fffffep30f, -0x1p31f, 0.0f, -0.0f, 1e-30f, 0x1p-149f, 0x1.921fb6p-1f, 0x1.921fb4p-1f};
  for (int exponent = -30; exponent < 31; ++exponent) {
    for (int i = 0; i < 500; ++i) angles.push_back(std::ldexp(random.Uniform(1, 2), exponent) * (i % 2 == 0 ? 1.0f : -1.0f));
  }
  const long double quarter_turn = std::acos(-1.0L) / 2;
  auto neighbours = [&](int64_t n) {
    const float at = static_cast<float>(static_cast<long double>(n) * quarter_turn);
    for (float angle : {std::nextafter(at, 0.0f), at, std::nextafter(at, 0x1p30f)}) angles.push_back(angle);
  };
  for (int64_t n = 1; n < 500; ++n) neighbours(n);
  for (int i = 0; i < 5000; ++i) {
    const int exponent = static_cast<int>(random.Between(8, 29));
    neighbours(static_cast<int64_t>(std::ldexp(random.Uniform(1, 2), exponent)));
  }
  cases.emplace_back(std::vector<int32_t>{1}, angles, 1.0f);
  double worst = 0;
  ForEachTarget([&] {
    for (const TableCase& c : cases) {
      c.Run("hwy", random.Bits());
      c.ExpectTrue(&worst);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
  std::printf("greatest error: %.4f ulp\n", worst);
}

// Beyond the reduction's range libm takes over, lane by lane.
TEST(RopeTable, OddFrequenciesGiveNanAndHugeAnglesTheTruth) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> odd = {1.0f, inf,  0.5f, nan,  1e30f, -inf, 0.25f, 0x1.000002p31f, -3e38f, 1e-3f,
                                  -nan, 2.0f, 1.0f, 0.1f, 7.0f,  8.0f, inf};
  ForEachTarget([&] {
    double worst = 0;
    const TableCase c({1}, odd, 1.0f);
    c.Run("hwy", 1);
    c.ExpectTrue(&worst);
    for (size_t i = 0; i < odd.size(); ++i) {
      EXPECT_EQ(std::isnan(c.cos.Row(0)[i]), !std::isfinite(odd[i])) << i;
      EXPECT_EQ(std::isnan(c.sin.Row(0)[i]), !std::isfinite(odd[i])) << i;
    }
    const TableCase zero({0, 3}, {inf, nan, 1.0f}, 1.25f);  // 0 * infinity too
    zero.Run("hwy", 1);
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t i = 0; i < 2; ++i) EXPECT_TRUE(std::isnan(zero.cos.Row(r)[i]) && std::isnan(zero.sin.Row(r)[i]));
    }
    EXPECT_EQ(zero.cos.Row(0)[2], 1.25f);
    EXPECT_EQ(zero.sin.Row(0)[2], 0.0f);
  });
}

// Each frequency turns by its own of three positions; equal ones give the bits of one.
TEST(RopeTable, ThreePositions) {
  Random random(53);
  SCOPED_TRACE(random.Trace());
  constexpr size_t kPairs = 37;
  const std::vector<int32_t> times = {0, 5, 900, 7}, heights = {3, 6, 901, 7}, widths = {9, 0, 31, 7};
  std::vector<float> inv_freq(kPairs);
  std::vector<uint8_t> axes(kPairs);
  for (size_t i = 0; i < kPairs; ++i) {
    inv_freq[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / kPairs));
    axes[i] = static_cast<uint8_t>(random.Below(3));
  }
  const std::vector<int32_t>* const of[] = {&times, &heights, &widths};
  ForEachTarget([&] {
    EdgeMat<float> cos(4, kPairs), sin(4, kPairs), one_cos(4, kPairs), one_sin(4, kPairs);
    RopeTableOp table = {times, inv_freq, 1.0f, cos.view(), sin.view(), heights, widths, axes};
    ASSERT_TRUE(table.Validate().ok()) << table.Validate().message();
    for (const char* kernel : {"ref", "hwy"}) {
      RunShuffled(KernelNamed<RopeTableOp>(kernel), table, random.Bits());
      for (int64_t r = 0; r < 4; ++r) {
        for (size_t i = 0; i < kPairs; ++i) {
          const float angle = static_cast<float>((*of[axes[i]])[static_cast<size_t>(r)]) * inv_freq[i];  // an f32 product
          EXPECT_NEAR(cos.Row(r)[i], std::cos(static_cast<double>(angle)), 2e-7) << kernel << " " << r << " " << i;
          EXPECT_NEAR(sin.Row(r)[i], std::sin(static_cast<double>(angle)), 2e-7) << kernel << " " << r << " " << i;
        }
      }
    }
    RunShuffled(KernelNamed<RopeTableOp>("hwy"), RopeTableOp{times, inv_freq, 1.0f, one_cos.view(), one_sin.view()}, 1);
    ExpectSameBits(cos.view().Rows(3, 1), one_cos.view().Rows(3, 1));
    ExpectSameBits(sin.view().Rows(3, 1), one_sin.view().Rows(3, 1));
    table.widths = table.widths.first(3);
    EXPECT_FALSE(table.Validate().ok());
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
  RunShuffled(KernelNamed<RopeOp>("ref"), RopeOp{RopeStyle::kRotateHalf, half.view(), 1, 20, 16, cos.view(), sin.view(), {}, 0},
              1);
  RunShuffled(KernelNamed<RopeOp>("ref"),
              RopeOp{RopeStyle::kAdjacentPair, adjacent.view(), 1, 20, 16, cos.view(), sin.view(), {}, 0}, 2);
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
  RopeCase c(random, RopeStyle::kRotateHalf, 2, 3, 12, 10, 0);
  // 2 rows x 3 heads x 5 pairs x 6
  EXPECT_EQ(TotalUseful(c.op).Flops(WorkClass::kRope), 180u);
  EXPECT_EQ(TotalUseful(c.op).TotalFlops(), 180u);
  EXPECT_EQ(TotalUseful(c.op).Bytes(ByteKind::kActivationsRead), 2u * (30 + 10) * 4);
  EXPECT_EQ(TotalUseful(c.op).Bytes(ByteKind::kActivationsWritten), 2u * 30 * 4);
  OpCounts counts = CountOf([&] { RopeRef<Counting>(c.op, 0, 6); });
  EXPECT_EQ(counts.flops, 180u);
  EXPECT_EQ(counts.special, 0u);

  const int32_t positions[] = {5, 6, 7};
  const float inv_freq[] = {1.0f, 0.5f};
  EdgeMat<float> cos(3, 2), sin(3, 2);
  const RopeTableOp table = {positions, inv_freq, 1.0f, cos.view(), sin.view()};
  EXPECT_EQ(TotalUseful(table).Flops(WorkClass::kRope), 18u);
  EXPECT_EQ(TotalUseful(table).Special(WorkClass::kRope), 12u);
  EXPECT_EQ(TotalUseful(table).Bytes(ByteKind::kActivationsRead), 20u);
  EXPECT_EQ(TotalUseful(table).Bytes(ByteKind::kActivationsWritten), 48u);
  counts = CountOf([&] { RopeTableRef<Counting>(table, 0, 3); });
  EXPECT_EQ(counts.flops, 18u);
  EXPECT_EQ(counts.special, 12u);

  ForEachTarget([&] {
    ExpectAtLeast(TotalExecuted(KernelNamed<RopeOp>("hwy"), c.op), TotalUseful(c.op));
    RopeCase whole(random, RopeStyle::kRotateHalf, 1, 1, 64, 64, 0);
    EXPECT_EQ(TotalExecuted(KernelNamed<RopeOp>("hwy"), whole.op), TotalUseful(whole.op));
    const Cost executed = TotalExecuted(KernelNamed<RopeTableOp>("hwy"), table);
    ExpectAtLeast(executed, TotalUseful(table));
    EXPECT_EQ(executed.Flops(WorkClass::kRope), 3 * HwyPadded(2) * 3);
    EXPECT_EQ(executed.Special(WorkClass::kRope), 3 * HwyPadded(2) * 2);
    const std::vector<float> frequencies(64, 0.5f);
    EdgeMat<float> c64(3, 64), s64(3, 64);
    const RopeTableOp whole_table = {positions, frequencies, 1.0f, c64.view(), s64.view()};
    EXPECT_EQ(TotalExecuted(KernelNamed<RopeTableOp>("hwy"), whole_table), TotalUseful(whole_table));
  });
}

TEST(Rope, ValidateNamesWhatIsWrong) {
  Random random(54);
  RopeCase good(random, RopeStyle::kRotateHalf, 2, 2, 8, 8, 0);
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
