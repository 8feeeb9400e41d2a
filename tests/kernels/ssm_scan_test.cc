// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/ssm_scan/ssm_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "engine/kernels/ssm_scan/ssm_scan_ref.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/states.h"

namespace tally {
namespace {

using ScanSequences = StateSequences<SsmScanOp>;

struct ScanCase {
  int64_t heads, groups, state_dim, head_dim;
  bool skips = true, strong = false;
  uint64_t seed = 1;
  std::shared_ptr<EdgeArray<float>> skip = std::make_shared<EdgeArray<float>>(static_cast<size_t>(heads));

  SsmScanOp Op() const {
    SsmScanOp op;
    op.heads = heads;
    op.groups = groups;
    Random(seed).Fill(skip->data(), heads);
    if (skips) op.skip = VectorView(skip->data(), heads, 5);
    op.layout = {.recurrence = SsmScanOp::StateOf(heads, state_dim, head_dim),
                 .replay = SsmScanOp::ReplayOf(heads, groups, state_dim, head_dim)};
    return op;
  }
  std::unique_ptr<ScanSequences> Make(int64_t sequences, int64_t positions) const {
    auto s =
        std::make_unique<ScanSequences>(Op(),
                                        std::vector<std::pair<ScanSequences::Input, int64_t>>{{&SsmScanOp::x, heads * head_dim},
                                                                                              {&SsmScanOp::b, groups * state_dim},
                                                                                              {&SsmScanOp::c, groups * state_dim},
                                                                                              {&SsmScanOp::step, heads},
                                                                                              {&SsmScanOp::decay, heads}},
                                        heads * head_dim, sequences, positions);
    Random random(seed + 1);
    for (int64_t r = 0; r < sequences * positions; ++r) {
      random.Fill(s->input(&SsmScanOp::x).Row(r), heads * head_dim);
      random.Fill(s->input(&SsmScanOp::b).Row(r), groups * state_dim);
      random.Fill(s->input(&SsmScanOp::c).Row(r), groups * state_dim);
      for (int64_t h = 0; h < heads; ++h) {
        const float log = strong ? random.Uniform(-70, 0) : random.Uniform(-0.5f, 0);
        s->input(&SsmScanOp::decay).Row(r)[h] = log < -60 ? 0 : std::exp(log);
        s->input(&SsmScanOp::step).Row(r)[h] = random.Uniform(0.01f, 0.5f);
      }
    }
    return s;
  }
};

const std::vector<ScanCase>& ScanCases() {
  static const std::vector<ScanCase> cases = {{.heads = 4, .groups = 2, .state_dim = 16, .head_dim = 20},
                                              {.heads = 2, .groups = 1, .state_dim = 8, .head_dim = 8, .skips = false},
                                              {.heads = 1, .groups = 1, .state_dim = 1, .head_dim = 1},
                                              {.heads = 3, .groups = 3, .state_dim = 37, .head_dim = 101},
                                              {.heads = 4, .groups = 1, .state_dim = 128, .head_dim = 64, .strong = true}};
  return cases;
}

std::string NameOfCase(const ScanCase& c) {
  return std::to_string(c.heads) + " heads of " + std::to_string(c.state_dim) + " x " + std::to_string(c.head_dim);
}

// The formulas in f64, of one sequence: [rows, heads P].
std::vector<double> ScanFormulas(const ScanCase& c, const ScanSequences& s, int64_t first_row, int64_t rows) {
  std::vector<double> out(static_cast<size_t>(rows * c.heads * c.head_dim));
  const auto at = [&](ScanSequences::Input member, int64_t t, int64_t i) {
    return static_cast<double>(s.input(member).Row(first_row + t)[i]);
  };
  for (int64_t h = 0; h < c.heads; ++h) {
    const int64_t g = h / (c.heads / c.groups);
    std::vector<double> S(static_cast<size_t>(c.state_dim * c.head_dim));
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t p = 0; p < c.head_dim; ++p) {
        const double x = at(&SsmScanOp::x, t, h * c.head_dim + p);
        double y = c.skips ? static_cast<double>((*c.skip)[static_cast<size_t>(h)]) * x : 0;
        for (int64_t d = 0; d < c.state_dim; ++d) {
          double& e = S[static_cast<size_t>(d * c.head_dim + p)];
          e = at(&SsmScanOp::decay, t, h) * e + at(&SsmScanOp::b, t, g * c.state_dim + d) * at(&SsmScanOp::step, t, h) * x;
          y += e * at(&SsmScanOp::c, t, g * c.state_dim + d);
        }
        out[static_cast<size_t>((t * c.heads + h) * c.head_dim + p)] = y;
      }
    }
  }
  return out;
}

TEST(SsmScan, EveryTargetAgreesWithTheFormulas) {
  constexpr int64_t kRows = 50;
  ForEachTarget([] {
    for (const ScanCase& c : ScanCases()) {
      SCOPED_TRACE(NameOfCase(c));
      const auto got = c.Make(2, kRows), want = c.Make(2, kRows);
      got->Run("hwy", 23, 1);
      want->Run("ref", 23, 1);
      for (int64_t s = 0; s < 2; ++s) {
        const std::vector<double> exact = ScanFormulas(c, *want, s * kRows, kRows);
        double most = 0;
        for (const double x : exact) most = std::max(most, std::fabs(x));
        const double allowed = SsmScanTolerance(c.state_dim, kRows) * most;
        for (int64_t t = 0; t < kRows; ++t) {
          for (int64_t i = 0; i < c.heads * c.head_dim; ++i) {
            const double x = exact[static_cast<size_t>(t * c.heads * c.head_dim + i)];
            ASSERT_NEAR(static_cast<double>(want->out().Row(s * kRows + t)[i]), x, allowed) << "row " << t << ", column " << i;
            ASSERT_NEAR(static_cast<double>(got->out().Row(s * kRows + t)[i]), x, allowed) << "row " << t << ", column " << i;
          }
        }
      }
    }
  });
}

TEST(SsmScan, BitsDoNotDependOnTheCut) {
  ForEachTarget([] {
    Random random(111);
    SCOPED_TRACE(random.Trace());
    for (const ScanCase& c : ScanCases()) {
      SCOPED_TRACE(NameOfCase(c));
      ExpectBitsDoNotDependOnTheCut([&] { return c.Make(2, 75); }, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(SsmScan, StrongDecaysLeaveNoSubnormals) {
  ForEachTarget([] {
    const auto s = ScanCases()[4].Make(1, 40);
    s->Run("hwy", 40, 1);
    s->ExpectFiniteState(0);
  });
}

TEST(SsmScan, RowsAndStatesAreLaidOutAsTheHeaderSays) {
  const ScanCase c{.heads = 4, .groups = 2, .state_dim = 5, .head_dim = 67};
  const auto s = c.Make(1, 1);
  const StepPart part{.sequence = 0, .rows = 1};
  s->Step("hwy", {&part, 1}, 1);
  const float* const row = reinterpret_cast<const float*>(s->block(0, 0));
  const float* const state = reinterpret_cast<const float*>(s->last(0).state);
  const auto at = [&](ScanSequences::Input member, int64_t i) { return s->input(member).Row(0)[i]; };
  for (int64_t i = 0; i < 2 * 5; ++i) ASSERT_EQ(row[i], at(&SsmScanOp::b, i));
  for (int64_t h = 0; h < 4; ++h) {
    ASSERT_EQ(row[2 * 5 + 4 * 67 + h], at(&SsmScanOp::decay, h));
    for (int64_t p = 0; p < 67; ++p) {
      const float u = row[2 * 5 + h * 67 + p];
      ASSERT_EQ(u, at(&SsmScanOp::step, h) * at(&SsmScanOp::x, h * 67 + p));
      for (int64_t d = 0; d < 5; ++d) {
        const int64_t e = h * 5 * 67 + (p < 64 ? d * 64 + p : 5 * 64 + d * 3 + p - 64);
        ASSERT_EQ(state[e], at(&SsmScanOp::b, h / 2 * 5 + d) * u) << "head " << h << ", " << d << ", " << p;
      }
    }
  }
  for (int64_t i = 2 * 5 + 4 * 68; i < SsmScanOp::ReplayOf(4, 2, 5, 67); ++i) ASSERT_EQ(row[i], 0);
  for (int64_t i = 4 * 5 * 67; i < SsmScanOp::StateOf(4, 5, 67); ++i) ASSERT_EQ(state[i], 0);
}

TEST(SsmScan, CostsAndChecksByHand) {
  const ScanCase c{.heads = 4, .groups = 2, .state_dim = 16, .head_dim = 20};
  SsmScanOp op = c.Op();
  EdgeMat<float> x(3, 80), b(3, 32), rates(3, 4), out(3, 80);
  op.x = x.view();
  op.b = op.c = b.view();
  op.step = op.decay = rates.view();
  op.out = out.view();
  EdgeArray<uint8_t> states(4 * op.layout.state_bytes()), rows(op.layout.rows_bytes());
  std::vector<uint8_t*> blocks(2, rows.data());
  std::vector<StateTable> tables(2);
  for (size_t i = 0; i < 2; ++i) {
    tables[i] = {.from = states.data() + 2 * i * op.layout.state_bytes(),
                 .to = states.data() + (2 * i + 1) * op.layout.state_bytes(),
                 .rows = blocks.data(),
                 .count = 2};
  }
  tables[1].at = 35;
  const std::vector<StateRun> runs = {{0, 0, 0, 2}, {1, 40, 2, 1}};
  const std::vector<int32_t> order = {0, 2, 1};
  op.runs = {runs, order};
  op.states = tables;
  EXPECT_TRUE(op.Validate().ok()) << op.Validate().message();
  const Cost cost = TotalUseful(op);
  EXPECT_EQ(cost.Flops(WorkClass::kRecurrence), 3u * 4 * (5 * 16 * 20 + 3 * 20));
  EXPECT_EQ(cost.Bytes(ByteKind::kStateRead), 2u * 4 * 16 * 20 * 4);
  EXPECT_EQ(cost.Bytes(ByteKind::kStateWritten), 2u * 4 * 16 * 20 * 4);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsPacked), 4u * 4);
  EXPECT_EQ(op.Amounts()[Amount::kReplayed], 5u);
  const Cost ref = TotalExecuted(KernelNamed<SsmScanOp>("ref"), op);
  EXPECT_EQ(ref.Flops(WorkClass::kRecurrence) - cost.Flops(WorkClass::kRecurrence), 5u * 4 * 3 * 16 * 20);
  ForEachTarget([&] { ExpectAtLeast(TotalExecuted(KernelNamed<SsmScanOp>("hwy"), op), cost); });
  WeightTouches touches;
  op.Touches(touches);
  ASSERT_EQ(touches.size(), 1u);
  EXPECT_EQ(touches[0].id, 5u);

  SsmScanOp other = op;
  other.layout.replay += 16;
  EXPECT_FALSE(other.Validate().ok());
  other = op;
  other.groups = 3;
  EXPECT_FALSE(other.Validate().ok());
  other = op;
  other.skip.cols = 3;
  EXPECT_FALSE(other.Validate().ok());
  other = op;
  other.c.cols = 16;
  EXPECT_FALSE(other.Validate().ok());
  blocks[1] = nullptr;  // where positions 35 to 39 are
  EXPECT_FALSE(op.Validate().ok());
}

}  // namespace
}  // namespace tally
