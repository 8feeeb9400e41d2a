// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/router/router.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/kernels/router/router_ref.h"
#include "engine/kernels/target.h"
#include "tests/kernels/harness.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

struct Routing {
  RouteOp op;
  EdgeMat<float> logits, weights;
  EdgeMat<int32_t> experts;
  Routing(RoutingRule rule, int64_t rows, int64_t n, int64_t k, int64_t gap = 0)
      : logits(rows, n, gap), weights(rows, k, gap), experts(rows, k, gap) {
    op.logits = logits.view(), op.experts = experts.view(), op.weights = weights.view();
    op.top_k = k, op.rule = rule;
  }
  void Run(uint64_t seed, std::string_view kernel = "ref") {
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    RunShuffled(KernelNamed<RouteOp>(kernel), op, seed);
    weights.ExpectGapsUntouched();
    experts.ExpectGapsUntouched();
  }
};

constexpr RoutingRule kRules[] = {RoutingRule::kTopKThenSoftmax, RoutingRule::kSoftmaxThenTopK,
                                  RoutingRule::kSoftmaxThenTopKRenormed};

TEST(Route, AgreesWithSortingInDoublePrecision) {
  Random random(61);
  SCOPED_TRACE(random.Trace());
  for (RoutingRule rule : kRules) {
    for (int64_t n : {1, 2, 7, 32, 128}) {
      for (int64_t k : {int64_t{1}, int64_t{2}, int64_t{4}, n}) {
        if (k > n) continue;
        SCOPED_TRACE("experts " + std::to_string(n) + ", k " + std::to_string(k));
        Routing c(rule, 5, n, k, random.Between(0, 3));
        c.logits.Fill(random, 3);
        for (int64_t i = 0; i < n; ++i) c.logits.Row(4)[i] = static_cast<float>(random.Below(3));  // many ties
        c.Run(random.Bits());
        for (int64_t r = 0; r < 5; ++r) {
          const float* l = c.logits.Row(r);
          std::vector<int32_t> order(static_cast<size_t>(n));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return l[a] > l[b]; });
          double all = 0, chosen = 0;
          for (int64_t i = 0; i < n; ++i) all += std::exp(static_cast<double>(l[i]));
          for (int64_t s = 0; s < k; ++s) chosen += std::exp(static_cast<double>(l[order[static_cast<size_t>(s)]]));
          const double denominator = rule == RoutingRule::kSoftmaxThenTopK ? all : chosen;
          for (int64_t s = 0; s < k; ++s) {
            ASSERT_EQ(c.experts.Row(r)[s], order[static_cast<size_t>(s)]) << "row " << r << ", slot " << s;
            const double want = std::exp(static_cast<double>(l[order[static_cast<size_t>(s)]])) / denominator;
            ASSERT_NEAR(c.weights.Row(r)[s], want, (static_cast<double>(n) + 16) * 0x1p-24 * want);
          }
        }
      }
    }
  }
}

// Sigmoids, the bias of the choice, groups, scale and experts' own scales, by sorting in double precision.
TEST(Route, GroupsBiasAndScale) {
  const auto check = [](std::string_view kernel) {
    Random random(67);
    SCOPED_TRACE(random.Trace());
    for (const RoutingRule rule : {RoutingRule::kSigmoidThenTopK, RoutingRule::kSigmoidThenTopKRenormed,
                                   RoutingRule::kTopKThenSigmoid, RoutingRule::kSoftmaxThenTopK}) {
      for (const auto& [n, groups, kept, best, k] :
           {std::array<int64_t, 5>{24, 1, 1, 1, 5}, {24, 4, 2, 2, 5}, {40, 8, 3, 1, 7}, {18, 6, 6, 3, 4}}) {
        if (best > 1 && !SigmoidOfAll(rule)) continue;
        Routing c(rule, 6, n, k, random.Between(0, 3));
        c.logits.Fill(random, 2);
        AlignedBuffer<float> bias;
        ASSERT_TRUE(bias.Resize(static_cast<size_t>(n)));
        random.Fill(bias.data(), bias.size(), 0.5f);
        const bool biased = ScoresAll(rule) && n != 18;
        if (biased) c.op.bias = VectorView(bias.data(), n, 3);
        const bool own = n == 18;  // the same numbers, in another role
        if (own) c.op.expert_scale = VectorView(bias.data(), n, 4);
        c.op.groups = groups, c.op.kept_groups = kept, c.op.group_best = best, c.op.scale = 2.5f;
        c.op.sum_eps = n == 40 ? 0.25f : 0;
        c.Run(random.Bits(), kernel);
        for (int64_t r = 0; r < 6; ++r) {
          std::vector<double> score(static_cast<size_t>(n)), value(score);
          double all = 0;
          for (int64_t i = 0; i < n; ++i) all += std::exp(static_cast<double>(c.logits.Row(r)[i]));
          for (size_t i = 0; i < score.size(); ++i) {
            const double x = c.logits.Row(r)[i];
            value[i] = rule == RoutingRule::kSoftmaxThenTopK ? std::exp(x) / all : 1 / (1 + std::exp(-x));
            score[i] = value[i] + (biased ? bias[i] : 0);
          }
          const auto by = [](const std::vector<double>& of) {
            std::vector<int32_t> order(of.size());
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return of[a] > of[b]; });
            return order;
          };
          std::vector<double> of_group;
          for (int64_t g = 0; g < groups; ++g) {
            std::vector<double> in(score.begin() + g * n / groups, score.begin() + (g + 1) * n / groups);
            std::sort(in.rbegin(), in.rend());
            of_group.push_back(std::accumulate(in.begin(), in.begin() + best, 0.0));
          }
          const std::vector<int32_t> groups_by = by(of_group);
          for (int64_t g = kept; g < groups; ++g) {
            for (int64_t i = 0; i < n / groups; ++i) score[static_cast<size_t>(groups_by[g] * n / groups + i)] = -INFINITY;
          }
          const std::vector<int32_t> chosen = by(score);
          double sum = 0;
          for (int64_t s = 0; s < k; ++s) sum += value[chosen[s]];
          for (int64_t s = 0; s < k; ++s) {
            ASSERT_EQ(c.experts.Row(r)[s], chosen[s]) << "row " << r << ", slot " << s;
            const double want = 2.5 * value[chosen[s]] / (Renormed(rule) ? sum + static_cast<double>(c.op.sum_eps) : 1) *
                                (own ? bias[chosen[s]] : 1);
            ASSERT_NEAR(c.weights.Row(r)[s], want, 3 * RouteTolerance(c.op) * std::fabs(want));
          }
        }
      }
    }
  };
  check("ref");
  ForEachTarget([&] { check("hwy"); });
}

// Rows of ordinary logits, of ties, of ties among odd values, and of a single NaN or infinity.
void FillLogits(Random& random, Mat<float> logits) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const float odd[] = {nan, -nan, inf, -inf, 0.0f, -0.0f, 1, -1, 0x1p-149f, -0x1p-149f, 3e38f, -3e38f};
  for (int64_t r = 0; r < logits.rows; ++r) {
    float* row = logits.Row(r);
    random.Fill(row, logits.cols, r == 0 ? 3.0f : 40.0f);
    for (int64_t i = 0; i < logits.cols; ++i) {
      if (r == 2) row[i] = static_cast<float>(random.Below(3)) - 1.0f;
      if (r == 3) row[i] = random.Below(2) == 0 ? 0.0f : -0.0f;
      if (r == 4) row[i] = odd[random.Below(std::size(odd))];
      if (r == 5) row[i] = odd[4 + random.Below(std::size(odd) - 4)];  // no NaN, no infinity
    }
    if (r == 6) row[random.Below(static_cast<uint64_t>(logits.cols))] = -nan;
    if (r == 7) row[random.Below(static_cast<uint64_t>(logits.cols))] = -inf;
  }
}

TEST(Route, HighwayChoosesAsTheReference) {
  ForEachTarget([] {
    Random random(65);
    SCOPED_TRACE(random.Trace());
    for (RoutingRule rule : kRules) {
      for (int64_t n = 1; n <= 257; n += n < 36 ? 1 : 17) {
        for (int64_t k : {int64_t{1}, int64_t{2}, int64_t{4}, (n + 1) / 2, n}) {
          if (k > n) continue;
          SCOPED_TRACE("rule " + std::to_string(static_cast<int>(rule)) + ", experts " + std::to_string(n) + ", k " +
                       std::to_string(k));
          Routing want(rule, 8, n, k), got(rule, 8, n, k, random.Between(0, 5));
          FillLogits(random, want.logits.view());
          got.logits.CopyFrom(want.logits.view());
          want.Run(random.Bits());
          got.Run(random.Bits(), "hwy");
          for (int64_t r = 0; r < 8; ++r) {
            for (int64_t s = 0; s < k; ++s) {
              ASSERT_EQ(got.experts.Row(r)[s], want.experts.Row(r)[s]) << "row " << r << ", slot " << s;
            }
          }
          const double softmax = static_cast<double>(rule == RoutingRule::kTopKThenSoftmax ? k : n);
          ExpectClose(got.weights.view(), want.weights.view(),
                      [&](int64_t, int64_t, double w) { return RouteTolerance(want.op) * w + softmax * 0x1p-146; });
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST(Route, OddLogitsNeitherCrashNorRepeat) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> rows = {{nan, nan, nan, nan, nan}, {-inf, -inf, -inf, -inf, -inf},
                                                {1, nan, 2, nan, 3},       {inf, inf, 0, -inf, nan},
                                                {-0.0f, 0.0f, 0, 0, 0},    {-1, 0, -0.0f, -nan, 0x1p-149f}};
  const std::vector<std::vector<int32_t>> want = {{0, 1, 2}, {0, 1, 2}, {1, 3, 4}, {4, 0, 1}, {0, 1, 2}, {3, 4, 1}};
  auto check = [&](RoutingRule rule, std::string_view kernel) {
    Routing c(rule, 6, 5, 3);
    for (int64_t r = 0; r < 6; ++r) {
      for (int64_t i = 0; i < 5; ++i) c.logits.Row(r)[i] = rows[static_cast<size_t>(r)][static_cast<size_t>(i)];
    }
    c.Run(7, kernel);
    for (int64_t r = 0; r < 6; ++r) {
      for (int64_t s = 0; s < 3; ++s) {
        EXPECT_EQ(c.experts.Row(r)[s], want[static_cast<size_t>(r)][static_cast<size_t>(s)]) << "row " << r << ", slot " << s;
      }
    }
    EXPECT_TRUE(std::isnan(c.weights.Row(2)[0]));  // a NaN is noticed, not passed over
    EXPECT_FALSE(std::isnan(c.weights.Row(4)[0]));
    EXPECT_TRUE(std::isnan(c.weights.Row(5)[0]));
  };
  for (RoutingRule rule : kRules) check(rule, "ref");
  ForEachTarget([&] {
    for (RoutingRule rule : kRules) check(rule, "hwy");
  });
}

TEST(Route, UsefulByHandAndByCounting) {
  Random random(62);
  // 2 rows, 5 experts, k 3: top-k 15 compares; softmax over m: 3 m, m exps and m divides.
  const uint64_t flops[] = {2 * (15 + 9), 2 * (15 + 15), 2 * (15 + 15 + 2)}, special[] = {2 * 6, 2 * 10, 2 * (10 + 3)};
  for (size_t i = 0; i < 3; ++i) {
    Routing c(kRules[i], 2, 5, 3);
    c.logits.Fill(random);
    EXPECT_EQ(TotalUseful(c.op).Flops(WorkClass::kRouter), flops[i]);
    EXPECT_EQ(TotalUseful(c.op).Special(WorkClass::kRouter), special[i]);
    EXPECT_EQ(TotalUseful(c.op).Bytes(ByteKind::kActivationsRead), 40u);
    EXPECT_EQ(TotalUseful(c.op).Bytes(ByteKind::kActivationsWritten), 48u);
    AlignedBuffer<uint8_t> scratch;
    ASSERT_TRUE(scratch.Resize(RouteScratchBytes(c.op)));
    const OpCounts counts = CountOf([&] { RouteRef<Counting>(c.op, 0, 2, scratch.span()); });
    EXPECT_EQ(counts.flops, TotalUseful(c.op).TotalFlops());
    EXPECT_EQ(counts.special, TotalUseful(c.op).TotalSpecial());
    ForEachTarget([&] {
      // 5 experts and 3 slots in whole vectors: the keys, a pass a slot with its reduction, then the softmax.
      const uint64_t lanes = static_cast<uint64_t>(HwyF32Lanes()), x = HwyPadded(5), k = HwyPadded(3), m = i == 0 ? k : x;
      const Cost executed = TotalExecuted(KernelNamed<RouteOp>("hwy"), c.op);
      ExpectAtLeast(executed, TotalUseful(c.op));
      EXPECT_EQ(executed.Flops(WorkClass::kRouter), 2 * (x + 3 * (x + 2 * lanes) + 2 * m + (i == 2 ? k - 1 : 0)));
      EXPECT_EQ(executed.Special(WorkClass::kRouter), 2 * (2 * m + (i == 2 ? k : 0)));
    });
  }
}

TEST(Route, ValidateNamesWhatIsWrong) {
  Routing c(RoutingRule::kTopKThenSoftmax, 2, 4, 2);
  RouteOp op = c.op;
  op.top_k = 5;
  EXPECT_FALSE(op.Validate().ok());
  op.top_k = 0;
  EXPECT_FALSE(op.Validate().ok());
  op = c.op;
  op.experts.cols = 3;
  EXPECT_FALSE(op.Validate().ok());
}

struct Combining {
  MoeCombineOp op;
  EdgeMat<float> y, weights, out;
  Combining(Random& random, int64_t n, int64_t k, int64_t d, int64_t gap) : y(n * k, d, gap), weights(n, k, gap), out(n, d, gap) {
    y.Fill(random);
    weights.Fill(random);
    out.Fill(random);
    op.y = y.view(), op.weights = weights.view(), op.out = out.view();
  }
};

TEST(MoeCombine, HighwayAgreesWithTheReference) {
  ForEachTarget([] {
    Random random(63);
    SCOPED_TRACE(random.Trace());
    for (int64_t d = 1; d <= 200; d += d < 70 ? 1 : 13) {
      const int64_t n = random.Between(1, 3), k = random.Between(1, 9), gap = random.Between(0, 5);
      SCOPED_TRACE("d " + std::to_string(d) + ", k " + std::to_string(k));
      Combining c(random, n, k, d, gap);
      ASSERT_TRUE(c.op.Validate().ok()) << c.op.Validate().message();
      EdgeMat<float> before(n, d), got(n, d, gap);
      before.CopyFrom(c.op.out);
      got.CopyFrom(c.op.out);
      RunShuffled(KernelNamed<MoeCombineOp>("ref"), c.op, random.Bits());
      MoeCombineOp hwy = c.op;
      hwy.out = got.view();
      RunShuffled(KernelNamed<MoeCombineOp>("hwy"), hwy, random.Bits());
      ExpectClose(got.view(), c.out.view(), [&](int64_t r, int64_t col, double) {
        double sum = std::fabs(before.Row(r)[col]);
        for (int64_t s = 0; s < k; ++s) sum += std::fabs(static_cast<double>(c.weights.Row(r)[s]) * c.y.Row(r * k + s)[col]);
        return MoeCombineTolerance(k) * sum;
      });
      got.ExpectGapsUntouched();
      for (int64_t r = 0; r < n; ++r) {  // and the formula
        for (int64_t col = 0; col < d; ++col) {
          double want = before.Row(r)[col];
          for (int64_t s = 0; s < k; ++s) want += static_cast<double>(c.weights.Row(r)[s]) * c.y.Row(r * k + s)[col];
          ASSERT_NEAR(got.Row(r)[col], want, 1e-5);
        }
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(MoeCombine, UsefulByHandAndByCounting) {
  Random random(64);
  Combining c(random, 2, 3, 5, 0);
  EXPECT_EQ(TotalUseful(c.op).Flops(WorkClass::kResidualBias), 2u * 5 * (2 * 3 + 1));
  EXPECT_EQ(TotalUseful(c.op).Bytes(ByteKind::kActivationsRead), 4u * (30 + 6 + 10));
  EXPECT_EQ(TotalUseful(c.op).Bytes(ByteKind::kActivationsWritten), 40u);
  const OpCounts counts = CountOf([&] { MoeCombineRef<Counting>(c.op, 0, 2); });
  EXPECT_EQ(counts.flops, TotalUseful(c.op).TotalFlops());
  EXPECT_EQ(counts.special, 0u);
  ForEachTarget([&] {
    ExpectAtLeast(TotalExecuted(KernelNamed<MoeCombineOp>("hwy"), c.op), TotalUseful(c.op));
    Combining whole(random, 1, 2, 64, 0);
    EXPECT_EQ(TotalExecuted(KernelNamed<MoeCombineOp>("hwy"), whole.op), TotalUseful(whole.op));
  });
  MoeCombineOp wrong = c.op;
  wrong.y.rows = 5;
  EXPECT_FALSE(wrong.Validate().ok());
}

}  // namespace
}  // namespace tally
