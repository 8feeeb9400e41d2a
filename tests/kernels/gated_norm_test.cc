// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/gated_norm/gated_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/kernels/gated_norm/gated_norm_ref.h"
#include "tests/kernels/harness.h"

namespace tally {
namespace {

struct GatedNormCase {
  EdgeMat<float> x, gate, out;
  EdgeArray<float> weight;
  GatedNormOp op;
  GatedNormCase(int64_t rows, int64_t groups, int64_t k, bool each, Random& random)
      : x(rows, groups * k, 2),
        gate(rows, groups * k, 1),
        out(rows, groups * k, 3),
        weight(static_cast<size_t>(each ? groups * k : k)) {
    x.Fill(random, 2);
    gate.Fill(random, 3);
    random.Fill(weight.data(), static_cast<int64_t>(weight.size()));
    op.x = x.view();
    op.gate = gate.view();
    op.groups = groups;
    op.weight = VectorView(weight.data(), static_cast<int64_t>(weight.size()), 7);
    op.out = out.view();
  }
};

TEST(GatedNorm, EveryTargetAgreesWithTheFormulas) {
  ForEachTarget([] {
    Random random(131);
    SCOPED_TRACE(random.Trace());
    for (const int64_t k : {1, 3, 16, 37, 128, 517}) {
      for (int variant = 0; variant < 8; ++variant) {
        GatedNormCase c(3, 4, k, (variant & 1) != 0, random);
        c.op.gate_first = (variant & 2) != 0;
        c.op.activation = (variant & 4) != 0 ? ActivationKind::kSigmoid : ActivationKind::kSilu;
        ASSERT_TRUE(c.op.Validate().ok()) << c.op.Validate().message();
        EdgeMat<float> want(3, 4 * k), in_place(3, 4 * k);
        RunShuffled(KernelNamed<GatedNormOp>("hwy"), c.op, random.Bits());
        c.out.ExpectGapsUntouched();
        GatedNormOp other = c.op;
        other.out = want.view();
        RunShuffled(KernelNamed<GatedNormOp>("ref"), other, random.Bits());
        in_place.CopyFrom(c.op.x);
        other.x = other.out = in_place.view();
        RunShuffled(KernelNamed<GatedNormOp>("hwy"), other, random.Bits());
        ExpectSameBits(in_place.view(), c.out.view());
        for (int64_t r = 0; r < 3; ++r) {
          for (int64_t g = 0; g < 4; ++g) {
            const float *const x = c.x.Row(r) + g * k, *const z = c.gate.Row(r) + g * k;
            const auto act = [&](int64_t i) {
              const double v = static_cast<double>(z[i]);
              return (c.op.activation == ActivationKind::kSilu ? v : 1) / (1 + std::exp(-v));
            };
            double squares = 0;
            for (int64_t i = 0; i < k; ++i) squares += std::pow(static_cast<double>(x[i]) * (c.op.gate_first ? act(i) : 1), 2);
            for (int64_t i = 0; i < k; ++i) {
              const double w = static_cast<double>(c.weight[static_cast<size_t>((variant & 1) != 0 ? g * k + i : i)]);
              const double y = static_cast<double>(x[i]) * act(i) * w /
                               std::sqrt(squares / static_cast<double>(k) + static_cast<double>(c.op.eps));
              ASSERT_NEAR(static_cast<double>(c.out.Row(r)[g * k + i]), y, GatedNormTolerance(k) * std::fabs(y)) << variant;
              ASSERT_NEAR(static_cast<double>(want.Row(r)[g * k + i]), y, GatedNormTolerance(k) * std::fabs(y)) << variant;
            }
          }
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(GatedNorm, CostsAndChecksByHand) {
  Random random(132);
  GatedNormCase c(2, 3, 10, true, random);
  const Cost cost = TotalUseful(c.op);
  EXPECT_EQ(cost.Flops(WorkClass::kNorm), 6u * 41);
  EXPECT_EQ(cost.Special(WorkClass::kNorm), 12u);
  EXPECT_EQ(cost.Flops(WorkClass::kActivation), 2u * 60);
  EXPECT_EQ(cost.Special(WorkClass::kActivation), 2u * 60);
  EXPECT_EQ(cost.Bytes(ByteKind::kActivationsRead), 2u * 240);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsPacked), 120u);
  ForEachTarget([&] { ExpectAtLeast(TotalExecuted(KernelNamed<GatedNormOp>("hwy"), c.op), cost); });
  WeightTouches touches;
  c.op.Touches(touches);
  ASSERT_EQ(touches.size(), 1u);
  EXPECT_EQ(touches[0].id, 7u);
  GatedNormOp op = c.op;
  op.weight.cols = 20;
  EXPECT_FALSE(op.Validate().ok());
  op = c.op;
  op.groups = 7;
  EXPECT_FALSE(op.Validate().ok());
  op = c.op;
  op.activation = ActivationKind::kRelu;
  EXPECT_FALSE(op.Validate().ok());
  op = c.op;
  op.gate.cols = 10;
  EXPECT_FALSE(op.Validate().ok());
}

}  // namespace
}  // namespace tally
