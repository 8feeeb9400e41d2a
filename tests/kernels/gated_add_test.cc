// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/gated_add/gated_add.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/kernels/gated_add/gated_add_ref.h"
#include "tests/kernels/harness.h"

namespace tally {
namespace {

TEST(GatedAdd, HighwayAgreesWithTheReferenceAndTheFormula) {
  ForEachTarget([] {
    Random random(71);
    SCOPED_TRACE(random.Trace());
    for (int64_t d = 1; d <= 200; d += d < 70 ? 1 : 13) {
      const int64_t n = random.Between(1, 3), gap = random.Between(0, 5);
      EdgeMat<float> y(n, d, gap), gate(n, 1, gap), before(n, d), got(n, d, gap), want(n, d, gap);
      for (auto* m : {&y, &gate, &before}) m->Fill(random);
      got.CopyFrom(before.view());
      want.CopyFrom(before.view());
      RunShuffled(KernelNamed<GatedAddOp>("hwy"), GatedAddOp{y.view(), gate.view(), 1, got.view()}, random.Bits());
      RunShuffled(KernelNamed<GatedAddOp>("ref"), GatedAddOp{y.view(), gate.view(), 1, want.view()}, random.Bits());
      ExpectClose(got.view(), want.view(), [&](int64_t r, int64_t c, double) {
        const double gated = std::fabs(y.Row(r)[c] / (1 + std::exp(-static_cast<double>(gate.Row(r)[0]))));
        return 0x1p-24 * (10 * gated + 2 * std::fabs(want.Row(r)[c]));  // both sums are rounded
      });
      got.ExpectGapsUntouched();
      for (int64_t r = 0; r < n; ++r) {
        const double weight = 1 / (1 + std::exp(-static_cast<double>(gate.Row(r)[0])));
        for (int64_t c = 0; c < d; ++c) ASSERT_NEAR(got.Row(r)[c], before.Row(r)[c] + weight * y.Row(r)[c], 1e-5);
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(GatedAdd, PartsByHand) {
  Random random(72);
  EdgeMat<float> y(2, 5), gate(2, 1), out(2, 5);
  const GatedAddOp op{y.view(), gate.view(), 1, out.view()};
  EXPECT_EQ(op.Useful(op.Amounts(), 0).Flops(WorkClass::kActivation), 2u * 6);
  EXPECT_EQ(op.Useful(op.Amounts(), 0).Special(WorkClass::kActivation), 4u);
  EXPECT_EQ(op.Useful(op.Amounts(), 1).Flops(WorkClass::kResidualBias), 10u);
  ForEachTarget([&] { ExpectAtLeast(TotalExecuted(KernelNamed<GatedAddOp>("hwy"), op), TotalUseful(op)); });
  GatedAddOp wrong = op;
  wrong.gate.rows = 1;
  EXPECT_FALSE(wrong.Validate().ok());
}

}  // namespace
}  // namespace tally
