// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/rates/rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/kernels/rates/rates_ref.h"
#include "tests/kernels/harness.h"

namespace tally {
namespace {

struct RatesCase {
  EdgeMat<float> x, beta, decay;
  EdgeArray<float> bias, a;
  RatesOp op;
  RatesCase(int64_t rows, int64_t heads, Random& random)
      : x(rows, heads, 2),
        beta(rows, heads, 1),
        decay(rows, heads, 3),
        bias(static_cast<size_t>(heads)),
        a(static_cast<size_t>(heads)) {
    x.Fill(random, 8);
    beta.Fill(random, 4);
    random.Fill(bias.data(), heads, 4);
    for (int64_t h = 0; h < heads; ++h) a[static_cast<size_t>(h)] = -std::exp(random.Uniform(-1, 3));
    op.x = x.view();
    op.bias = VectorView(bias.data(), heads, 1);
    op.a = VectorView(a.data(), heads, 2);
    op.beta = beta.view();
    op.decay = decay.view();
  }
};

// Against f64: the step, the decay and beta of element (r, h) as it was before.
void ExpectRates(const RatesCase& c, const EdgeMat<float>& x, const EdgeMat<float>& beta, int64_t r, int64_t h) {
  const double y = static_cast<double>(x.Row(r)[h] + c.bias[static_cast<size_t>(h)]);
  double s = y > 20 ? y : std::log1p(std::exp(y));
  if (c.op.least > 0) s = std::max(s, static_cast<double>(c.op.least));
  s = std::min(s, static_cast<double>(c.op.most));
  ASSERT_NEAR(static_cast<double>(c.x.Row(r)[h]), s, kRatesTolerance * s) << y;
  const double exponent = static_cast<double>(c.a[static_cast<size_t>(h)]) * s, got = static_cast<double>(c.decay.Row(r)[h]);
  if (exponent < -60.001) {
    ASSERT_EQ(got, 0);
  }
  if (exponent > -59.999) {
    ASSERT_NEAR(got, std::exp(exponent), kRatesTolerance * (std::fabs(exponent) + 0.5) * std::exp(exponent));
  }
  const double b = 1 / (1 + std::exp(-static_cast<double>(beta.Row(r)[h])));
  ASSERT_NEAR(static_cast<double>(c.beta.Row(r)[h]), b, kRatesTolerance * b);
}

TEST(Rates, EveryTargetAgreesWithTheFormulas) {
  ForEachTarget([] {
    Random random(121);
    SCOPED_TRACE(random.Trace());
    for (const int64_t heads : {1, 7, 16, 33, 128}) {
      for (const bool bounded : {false, true}) {
        for (const char* kernel : {"ref", "hwy"}) {
          RatesCase c(9, heads, random);
          if (bounded) c.op.least = 0.001f, c.op.most = 0.1f;
          EdgeMat<float> x(9, heads), beta(9, heads);
          x.CopyFrom(c.x.view());
          beta.CopyFrom(c.beta.view());
          ASSERT_TRUE(c.op.Validate().ok()) << c.op.Validate().message();
          RunShuffled(KernelNamed<RatesOp>(kernel), c.op, random.Bits());
          for (int64_t r = 0; r < 9; ++r) {
            for (int64_t h = 0; h < heads; ++h) ExpectRates(c, x, beta, r, h);
          }
          for (const EdgeMat<float>* m : {&c.x, &c.beta, &c.decay}) m->ExpectGapsUntouched();
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

// From where log(1 + exp) rounds to exp, through 20, to where exp overflows.
TEST(Rates, SoftplusEverywhere) {
  ForEachTarget([] {
    Random random(122);
    constexpr int64_t kHeads = 4096;
    RatesCase c(1, kHeads, random);
    EdgeMat<float> x(1, kHeads), beta(1, kHeads);
    for (int64_t h = 0; h < kHeads; ++h) {
      c.x.Row(0)[h] = -87 + 190 * static_cast<float>(h) / kHeads;
      c.bias[static_cast<size_t>(h)] = 0;
    }
    x.CopyFrom(c.x.view());
    beta.CopyFrom(c.beta.view());
    RunShuffled(KernelNamed<RatesOp>("hwy"), c.op, 1);
    for (int64_t h = 0; h < kHeads; ++h) ExpectRates(c, x, beta, 0, h);
  });
}

// A bias and a decay for each of K elements of a head, with and without a bound.
TEST(Rates, ElementsOfHeads) {
  ForEachTarget([] {
    Random random(125);
    SCOPED_TRACE(random.Trace());
    constexpr int64_t kRows = 5, kHeads = 3;
    for (const int64_t dim : {1, 16, 37, 128}) {
      for (const float bound : {0.0f, -5.0f}) {
        for (const char* kernel : {"ref", "hwy"}) {
          RatesCase c(kRows, kHeads * dim, random);
          EdgeMat<float> x(kRows, kHeads * dim), beta(kRows, kHeads, 2), was(kRows, kHeads);
          x.CopyFrom(c.x.view());
          beta.Fill(random, 4);
          was.CopyFrom(beta.view());
          c.op.a.cols = kHeads;
          c.op.a.stored_row_bytes = c.op.a.slice_stride = c.op.a.panel_stride = kHeads * 4;
          for (int64_t h = 0; h < kHeads && bound != 0; ++h) c.a[static_cast<size_t>(h)] *= -1;
          c.op.beta = beta.view();
          c.op.bound = bound;
          ASSERT_TRUE(c.op.Validate().ok()) << c.op.Validate().message();
          RunShuffled(KernelNamed<RatesOp>(kernel), c.op, random.Bits());
          for (int64_t r = 0; r < kRows; ++r) {
            for (int64_t i = 0; i < kHeads * dim; ++i) {
              const double y = static_cast<double>(x.Row(r)[i] + c.bias[static_cast<size_t>(i)]),
                           a = static_cast<double>(c.a[static_cast<size_t>(i / dim)]);
              const double s = bound != 0 ? 1 / (1 + std::exp(-a * y)) : y > 20 ? y : std::log1p(std::exp(y));
              const double exponent = bound != 0 ? static_cast<double>(bound) * s : a * s;
              // The product A y is rounded before the sigmoid.
              const double slack = bound != 0 ? 1 + std::fabs(a * y) / 8 : 1;
              const double got = static_cast<double>(c.decay.Row(r)[i]), want = exponent < -60 ? 0 : std::exp(exponent);
              if (std::fabs(exponent + 60) < 0.001) continue;
              ASSERT_NEAR(static_cast<double>(c.x.Row(r)[i]), s, slack * kRatesTolerance * s + 0x1p-120) << a * y;
              ASSERT_NEAR(got, want, slack * kRatesTolerance * (std::fabs(exponent) + 0.5) * want) << exponent;
            }
            for (int64_t h = 0; h < kHeads; ++h) {
              const double b = 1 / (1 + std::exp(-static_cast<double>(was.Row(r)[h])));
              ASSERT_NEAR(static_cast<double>(beta.Row(r)[h]), b, kRatesTolerance * b);
            }
          }
          for (const EdgeMat<float>* m : {&c.x, &beta, &c.decay}) m->ExpectGapsUntouched();
        }
      }
    }
  });
}

TEST(Rates, NanStaysInItsHead) {
  ForEachTarget([] {
    Random random(123);
    RatesCase c(1, 5, random);
    c.x.Row(0)[3] = std::numeric_limits<float>::quiet_NaN();
    c.op.least = 0.1f, c.op.most = 1;
    RunShuffled(KernelNamed<RatesOp>("hwy"), c.op, 1);
    for (int64_t h = 0; h < 5; ++h) {
      EXPECT_EQ(std::isnan(c.x.Row(0)[h]), h == 3);
      EXPECT_EQ(std::isnan(c.decay.Row(0)[h]), h == 3);
      EXPECT_FALSE(std::isnan(c.beta.Row(0)[h]));
    }
  });
}

TEST(Rates, CostsAndChecksByHand) {
  Random random(124);
  RatesCase c(2, 5, random);
  Cost cost = TotalUseful(c.op);
  EXPECT_EQ(cost.Flops(WorkClass::kResidualBias), 10u);
  EXPECT_EQ(cost.Flops(WorkClass::kActivation), 30u);
  EXPECT_EQ(cost.Special(WorkClass::kActivation), 50u);
  EXPECT_EQ(cost.Bytes(ByteKind::kActivationsRead), 80u);
  EXPECT_EQ(cost.Bytes(ByteKind::kActivationsWritten), 120u);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsPacked), 40u);
  ForEachTarget([&] { ExpectAtLeast(TotalExecuted(KernelNamed<RatesOp>("hwy"), c.op), cost); });
  RatesOp op = c.op;
  op.least = 0.1f;
  EXPECT_EQ(TotalUseful(op).Flops(WorkClass::kActivation), 40u);
  op.most = 0.01f;
  EXPECT_FALSE(op.Validate().ok());
  op = c.op;
  op.a.cols = 4;
  EXPECT_FALSE(op.Validate().ok());
  op = c.op;
  op.decay.cols = 4;
  EXPECT_FALSE(op.Validate().ok());
  op = c.op;
  op.beta = {};
  EXPECT_TRUE(op.Validate().ok());
  op.bound = -5;
  EXPECT_TRUE(op.Validate().ok());
  EXPECT_EQ(TotalUseful(op).Flops(WorkClass::kActivation), 30u);
  EXPECT_EQ(TotalUseful(op).Special(WorkClass::kActivation), 30u);
  op.most = 1;
  EXPECT_FALSE(op.Validate().ok());
}

}  // namespace
}  // namespace tally
