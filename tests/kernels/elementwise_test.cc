// SPDX-License-Identifier: Apache-2.0
// ElementwiseOp, ScaleRowsOp and TemperatureOp; GatedAddOp without a gate.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/kernels/elementwise/elementwise.h"
#include "engine/kernels/elementwise/elementwise_ref.h"
#include "engine/kernels/gated_add/gated_add.h"
#include "engine/kernels/scale_rows/scale_rows.h"
#include "tests/kernels/harness.h"

namespace tally {
namespace {

TEST(Elementwise, HighwayAgreesWithTheReferenceAndTheFormula) {
  ForEachTarget([] {
    Random random(91);
    SCOPED_TRACE(random.Trace());
    for (const int64_t d : {1, 3, 16, 37, 4096, 4100, 9000}) {
      for (const auto& [scale, limit, cap] : {std::array{1.0f, 0.0f, 30.0f}, {0.0625f, 0.5f, 0.0f}, {0.5f, 4.0f, 3.0f}}) {
        EdgeMat<float> before(2, d), got(2, d, 3), want(2, d, 3);
        before.Fill(random, 20);
        got.CopyFrom(before.view());
        want.CopyFrom(before.view());
        RunShuffled(KernelNamed<ElementwiseOp>("hwy"), ElementwiseOp{got.view(), scale, limit, cap}, random.Bits());
        RunShuffled(KernelNamed<ElementwiseOp>("ref"), ElementwiseOp{want.view(), scale, limit, cap}, random.Bits());
        ExpectClose(got.view(), want.view(), [&](int64_t, int64_t, double w) { return kElementwiseTolerance * std::fabs(w); });
        got.ExpectGapsUntouched();
        for (int64_t r = 0; r < 2; ++r) {
          for (int64_t c = 0; c < d; ++c) {
            double x = static_cast<double>(scale) * before.Row(r)[c];
            if (limit != 0) x = std::clamp(x, -static_cast<double>(limit), static_cast<double>(limit));
            const double y = cap != 0 ? cap * std::tanh(x / cap) : x;
            ASSERT_NEAR(got.Row(r)[c], y, 1e-5);
          }
        }
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(Elementwise, MultipliesByAStoredNumber) {
  ForEachTarget([] {
    Random random(95);
    SCOPED_TRACE(random.Trace());
    const float factor = 0.375f;
    for (const int64_t d : {1, 37, 4100}) {
      EdgeMat<float> before(2, d), got(2, d, 3), want(2, d, 3);
      before.Fill(random, 4);
      got.CopyFrom(before.view());
      want.CopyFrom(before.view());
      const auto op = [&](Mat<float> x) { return ElementwiseOp{.x = x, .factor = VectorView(&factor, 1, 3)}; };
      ASSERT_TRUE(op(got.view()).Validate().ok());
      RunShuffled(KernelNamed<ElementwiseOp>("hwy"), op(got.view()), random.Bits());
      RunShuffled(KernelNamed<ElementwiseOp>("ref"), op(want.view()), random.Bits());
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t c = 0; c < d; ++c) {
          ASSERT_EQ(got.Row(r)[c], factor * before.Row(r)[c]);
          ASSERT_EQ(want.Row(r)[c], got.Row(r)[c]);
        }
      }
      got.ExpectGapsUntouched();
    }
  });
  const std::vector<float> two = {1, 2};
  AlignedBuffer<float> x;
  ASSERT_TRUE(x.Resize(4));
  EXPECT_FALSE((ElementwiseOp{.x = {x.data(), 1, 4}, .factor = VectorView(two.data(), 2, 3)}).Validate().ok());
}

TEST(Elementwise, GatesAsTheReferenceDoes) {
  ForEachTarget([] {
    Random random(94);
    SCOPED_TRACE(random.Trace());
    for (const int64_t d : {1, 37, 4100}) {
      for (const ActivationKind kind : {ActivationKind::kSilu, ActivationKind::kGeluTanh, ActivationKind::kSwigluOai,
                                        ActivationKind::kSigmoid, ActivationKind::kSwigluLimited}) {
        EdgeMat<float> before(2, d), up(2, d, 1), got(2, d, 3), want(2, d, 3);
        before.Fill(random, 4);
        up.Fill(random, 4);
        got.CopyFrom(before.view());
        want.CopyFrom(before.view());
        const auto op = [&](Mat<float> x) {
          return ElementwiseOp{.x = x, .up = up.view(), .activation = kind, .swiglu_limit = 1.5f};
        };
        ASSERT_TRUE(op(got.view()).Validate().ok());
        RunShuffled(KernelNamed<ElementwiseOp>("hwy"), op(got.view()), random.Bits());
        RunShuffled(KernelNamed<ElementwiseOp>("ref"), op(want.view()), random.Bits());
        // The tails of the activations cancel: an error of the largest value's size.
        ExpectClose(got.view(), want.view(), [&](int64_t, int64_t, double) { return kElementwiseTolerance * 32; });
        got.ExpectGapsUntouched();
        if (kind == ActivationKind::kSwigluLimited) {
          for (int64_t c = 0; c < d; ++c) {
            const double x = before.Row(1)[c], u = up.Row(1)[c];
            ASSERT_NEAR(got.Row(1)[c], std::min(x / (1 + std::exp(-x)), 1.5) * std::clamp(u, -1.5, 1.5), 1e-5);
          }
        }
        if (kind != ActivationKind::kSilu && kind != ActivationKind::kSigmoid) continue;
        for (int64_t c = 0; c < d; ++c) {
          const double x = before.Row(1)[c], factor = kind == ActivationKind::kSilu ? x : 1;
          ASSERT_NEAR(got.Row(1)[c], factor / (1 + std::exp(-x)) * up.Row(1)[c], 1e-5);
        }
      }
    }
  });
}

// SiLU and xIELU alone, the latter's alphas told or stored.
TEST(Elementwise, ActivatesAsDefined) {
  const float stored_n = 0.2f, stored_p = 0.8f;
  ForEachTarget([&] {
    Random random(95);
    SCOPED_TRACE(random.Trace());
    for (const int64_t d : {1, 37, 4100}) {
      EdgeMat<float> before(2, d), got(2, d, 3), want(2, d, 3), silu(2, d);
      before.Fill(random, 4);
      before.Row(0)[0] = -5e-7f;  // between eps and 0
      for (auto* m : {&got, &want, &silu}) m->CopyFrom(before.view());
      ElementwiseOp op{.x = got.view(), .activation = ActivationKind::kXielu, .xielu = {.alpha_n = 0.7f, .alpha_p = 0.8f}};
      ASSERT_TRUE(op.Validate().ok());
      RunShuffled(KernelNamed<ElementwiseOp>("hwy"), op, random.Bits());
      op = {.x = want.view(),
            .activation = ActivationKind::kXielu,
            .alpha_n = VectorView(&stored_n, 1, 3),
            .alpha_p = VectorView(&stored_p, 1, 4)};
      ASSERT_TRUE(op.Validate().ok());
      RunShuffled(KernelNamed<ElementwiseOp>("ref"), op, random.Bits());
      RunShuffled(KernelNamed<ElementwiseOp>("hwy"), ElementwiseOp{.x = silu.view(), .activation = ActivationKind::kSilu},
                  random.Bits());
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t c = 0; c < d; ++c) {
          const double x = before.Row(r)[c];
          const double xielu = 0.5 * x + (x > 0 ? 0.8 * x * x : 0.7 * (std::expm1(std::min(x, -1e-6)) - x));
          ASSERT_NEAR(got.Row(r)[c], xielu, 4e-7 * (1 + x * x)) << x;
          ASSERT_NEAR(want.Row(r)[c], xielu, 4e-7 * (1 + x * x)) << x;
          ASSERT_NEAR(silu.Row(r)[c], x / (1 + std::exp(-x)), 4e-7 * (1 + std::fabs(x))) << x;
        }
      }
      got.ExpectGapsUntouched();
    }
  });
  AlignedBuffer<float> x;
  ASSERT_TRUE(x.Resize(4));
  const Mat<float> m(x.data(), 1, 4);
  EXPECT_FALSE((ElementwiseOp{.x = m, .activation = ActivationKind::kSwigluLimited}).Validate().ok());
  EXPECT_FALSE((ElementwiseOp{.x = m, .up = m, .activation = ActivationKind::kXielu}).Validate().ok());
  EXPECT_FALSE(
      (ElementwiseOp{.x = m, .activation = ActivationKind::kXielu, .alpha_n = VectorView(&stored_n, 1, 3)}).Validate().ok());
}

TEST(ScaleRows, EveryTargetGivesTheProducts) {
  ForEachTarget([] {
    Random random(92);
    for (const int64_t d : {1, 7, 16, 70}) {
      EdgeMat<float> x(3, d, 2), weights(3, 2, 1), out(6, d, 1);
      for (auto* m : {&x, &weights}) m->Fill(random);
      const ScaleRowsOp op{x.view(), weights.view(), out.view()};
      ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
      RunShuffled(KernelNamed<ScaleRowsOp>("hwy"), op, random.Bits());
      for (int64_t t = 0; t < 6; ++t) {
        for (int64_t c = 0; c < d; ++c) ASSERT_EQ(out.Row(t)[c], weights.Row(t / 2)[t % 2] * x.Row(t / 2)[c]);
      }
      EdgeMat<float> heads(3, 2 * d, 1);  // a factor for each half of a row
      heads.Fill(random);
      EdgeMat<float> before(3, 2 * d, 1);
      before.CopyFrom(heads.view());
      const ScaleRowsOp halves{.x = heads.view(), .weights = weights.view(), .out = heads.view(), .groups = 2};
      ASSERT_TRUE(halves.Validate().ok()) << halves.Validate().message();
      RunShuffled(KernelNamed<ScaleRowsOp>("hwy"), halves, random.Bits());
      for (int64_t t = 0; t < 3; ++t) {
        for (int64_t c = 0; c < 2 * d; ++c) ASSERT_EQ(heads.Row(t)[c], weights.Row(t)[c / d] * before.Row(t)[c]);
      }
      weights.Row(1)[0] = 30;
      const ScaleRowsOp gated{.x = before.view(), .weights = weights.view(), .out = heads.view(), .groups = 2, .softplus = true};
      RunShuffled(KernelNamed<ScaleRowsOp>("hwy"), gated, random.Bits());
      for (int64_t t = 0; t < 3; ++t) {
        for (int64_t c = 0; c < 2 * d; ++c) {
          const double want = std::log1p(std::exp(static_cast<double>(weights.Row(t)[c / d]))) * before.Row(t)[c];
          ASSERT_NEAR(heads.Row(t)[c], want, 5e-7 * std::fabs(want));
        }
      }
    }
  });
}

TEST(Temperature, GrowsByPeriods) {
  const std::vector<int32_t> positions = {0, 6, 7, 8, 14, 15, 16, 100};
  for (const float offset : {0.0f, 1.0f}) {
    EdgeMat<float> out(8, 1);
    const TemperatureOp op{.positions = positions, .scale = 0.1f, .offset = offset, .floor = 8, .out = out.view()};
    RunShuffled(KernelNamed<TemperatureOp>("ref"), op, 1);
    for (size_t i = 0; i < positions.size(); ++i) {
      const double periods = std::floor((positions[i] + static_cast<double>(offset)) / 8);
      EXPECT_NEAR(out.Row(static_cast<int64_t>(i))[0], 1 + 0.1 * std::log1p(periods), 1e-6);
    }
  }
}

TEST(GatedAdd, WithoutAGateTheScaleWeighs) {
  ForEachTarget([] {
    Random random(93);
    EdgeMat<float> y(2, 37), before(2, 37), out(2, 37);
    for (auto* m : {&y, &before}) m->Fill(random);
    out.CopyFrom(before.view());
    const GatedAddOp op{.y = y.view(), .gate = {}, .scale = 0.22f, .out = out.view()};
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    RunShuffled(KernelNamed<GatedAddOp>("hwy"), op, random.Bits());
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t c = 0; c < 37; ++c) ASSERT_EQ(out.Row(r)[c], before.Row(r)[c] + 0.22f * y.Row(r)[c]);
    }
  });
}

}  // namespace
}  // namespace tally
