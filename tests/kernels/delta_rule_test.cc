// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/delta_rule/delta_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "engine/kernels/delta_rule/delta_rule_ref.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/states.h"

namespace tally {
namespace {

using DeltaSequences = StateSequences<DeltaRuleOp>;

enum class DeltaDecays : uint8_t { kOrdinary, kStrong };

struct DeltaCase {
  int64_t key_heads, value_heads, k_dim, v_dim;
  bool tiled = false;
  DeltaDecays decays = DeltaDecays::kOrdinary;
  bool channel_decay = false;
  uint64_t seed = 1;

  int64_t decay_dim() const { return channel_decay ? k_dim : 1; }
  DeltaRuleOp Op() const {
    DeltaRuleOp op;
    op.channel_decay = channel_decay;
    op.key_heads = key_heads;
    op.value_heads = value_heads;
    op.tiled = tiled;
    op.q_scale = 1 / std::sqrt(static_cast<float>(k_dim));
    op.layout = {.recurrence = DeltaRuleOp::StateOf(value_heads, k_dim, v_dim),
                 .replay = DeltaRuleOp::ReplayOf(key_heads, value_heads, k_dim, v_dim, decay_dim())};
    return op;
  }
  std::unique_ptr<DeltaSequences> Make(int64_t sequences, int64_t positions) const {
    auto s = std::make_unique<DeltaSequences>(
        Op(),
        std::vector<std::pair<DeltaSequences::Input, int64_t>>{{&DeltaRuleOp::q, key_heads * k_dim},
                                                               {&DeltaRuleOp::k, key_heads * k_dim},
                                                               {&DeltaRuleOp::v, value_heads * v_dim},
                                                               {&DeltaRuleOp::decay, value_heads * decay_dim()},
                                                               {&DeltaRuleOp::beta, value_heads}},
        value_heads * v_dim, sequences, positions);
    Random random(seed);
    for (int64_t r = 0; r < sequences * positions; ++r) {
      for (const DeltaSequences::Input member : {&DeltaRuleOp::q, &DeltaRuleOp::k}) {
        for (int64_t h = 0; h < key_heads; ++h) {
          float* const x = s->input(member).Row(r) + h * k_dim;
          random.Fill(x, k_dim);
          double squares = 1e-6;
          for (int64_t d = 0; d < k_dim; ++d) squares += static_cast<double>(x[d]) * static_cast<double>(x[d]);
          for (int64_t d = 0; d < k_dim; ++d) x[d] /= static_cast<float>(std::sqrt(squares));
        }
      }
      random.Fill(s->input(&DeltaRuleOp::v).Row(r), value_heads * v_dim);
      for (int64_t i = 0; i < value_heads * decay_dim(); ++i) {
        const float log = decays == DeltaDecays::kOrdinary ? random.Uniform(-0.5f, 0) : random.Uniform(-70, 0);
        s->input(&DeltaRuleOp::decay).Row(r)[i] = log < -60 ? 0 : std::exp(log);
      }
      for (int64_t h = 0; h < value_heads; ++h) s->input(&DeltaRuleOp::beta).Row(r)[h] = random.Uniform(0, 1);
    }
    return s;
  }
};

constexpr DeltaCase kDeltaCases[] = {
    {.key_heads = 2, .value_heads = 4, .k_dim = 16, .v_dim = 20},
    {.key_heads = 2, .value_heads = 6, .k_dim = 8, .v_dim = 8, .tiled = true},
    {.key_heads = 1, .value_heads = 1, .k_dim = 1, .v_dim = 1},
    {.key_heads = 3, .value_heads = 3, .k_dim = 37, .v_dim = 101},
    {.key_heads = 1, .value_heads = 2, .k_dim = 128, .v_dim = 128, .decays = DeltaDecays::kStrong},
    {.key_heads = 2, .value_heads = 2, .k_dim = 16, .v_dim = 20, .channel_decay = true},
    {.key_heads = 1, .value_heads = 3, .k_dim = 37, .v_dim = 101, .channel_decay = true},
    {.key_heads = 2, .value_heads = 4, .k_dim = 1, .v_dim = 3, .tiled = true, .channel_decay = true},
    {.key_heads = 1, .value_heads = 1, .k_dim = 128, .v_dim = 128, .decays = DeltaDecays::kStrong, .channel_decay = true}};

// The formulas in f64, of one sequence: [rows, value_heads V].
std::vector<double> DeltaFormulas(const DeltaCase& c, const DeltaSequences& s, int64_t first_row, int64_t rows) {
  const DeltaRuleOp op = c.Op();
  std::vector<double> out(static_cast<size_t>(rows * c.value_heads * c.v_dim));
  const auto at = [&](DeltaSequences::Input member, int64_t t, int64_t i) {
    return static_cast<double>(s.input(member).Row(first_row + t)[i]);
  };
  for (int64_t h = 0; h < c.value_heads; ++h) {
    const int64_t kh = c.tiled ? h % c.key_heads : h / (c.value_heads / c.key_heads);
    std::vector<double> S(static_cast<size_t>(c.k_dim * c.v_dim));
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t v = 0; v < c.v_dim; ++v) {
        double a = 0, b = 0;
        for (int64_t d = 0; d < c.k_dim; ++d) {
          double& e = S[static_cast<size_t>(d * c.v_dim + v)];
          e *= at(&DeltaRuleOp::decay, t, c.channel_decay ? h * c.k_dim + d : h);
          a += e * at(&DeltaRuleOp::k, t, kh * c.k_dim + d);
        }
        const double u = at(&DeltaRuleOp::beta, t, h) * (at(&DeltaRuleOp::v, t, h * c.v_dim + v) - a);
        for (int64_t d = 0; d < c.k_dim; ++d) {
          double& e = S[static_cast<size_t>(d * c.v_dim + v)];
          e += at(&DeltaRuleOp::k, t, kh * c.k_dim + d) * u;
          b += e * at(&DeltaRuleOp::q, t, kh * c.k_dim + d) * static_cast<double>(op.q_scale);
        }
        out[static_cast<size_t>((t * c.value_heads + h) * c.v_dim + v)] = b;
      }
    }
  }
  return out;
}

TEST(DeltaRule, EveryTargetAgreesWithTheFormulas) {
  constexpr int64_t kRows = 50;
  ForEachTarget([] {
    for (const DeltaCase& c : kDeltaCases) {
      SCOPED_TRACE(std::to_string(c.value_heads) + " heads of " + std::to_string(c.k_dim) + " x " + std::to_string(c.v_dim));
      const auto got = c.Make(2, kRows), want = c.Make(2, kRows);
      got->Run("hwy", 23, 1);
      want->Run("ref", 23, 1);
      for (int64_t s = 0; s < 2; ++s) {
        const std::vector<double> exact = DeltaFormulas(c, *want, s * kRows, kRows);
        double most = 0;
        for (const double x : exact) most = std::max(most, std::fabs(x));
        const double allowed = DeltaRuleTolerance(c.k_dim, kRows) * most;
        for (int64_t t = 0; t < kRows; ++t) {
          for (int64_t i = 0; i < c.value_heads * c.v_dim; ++i) {
            const double x = exact[static_cast<size_t>(t * c.value_heads * c.v_dim + i)];
            ASSERT_NEAR(static_cast<double>(want->out().Row(s * kRows + t)[i]), x, allowed) << "row " << t << ", column " << i;
            ASSERT_NEAR(static_cast<double>(got->out().Row(s * kRows + t)[i]), x, allowed) << "row " << t << ", column " << i;
          }
        }
      }
    }
  });
}

TEST(DeltaRule, BitsDoNotDependOnTheCut) {
  ForEachTarget([] {
    Random random(101);
    SCOPED_TRACE(random.Trace());
    for (const DeltaCase& c : kDeltaCases) {
      SCOPED_TRACE(std::to_string(c.value_heads) + " heads of " + std::to_string(c.k_dim) + " x " + std::to_string(c.v_dim));
      ExpectBitsDoNotDependOnTheCut([&] { return c.Make(2, 75); }, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST(DeltaRule, StrongDecaysLeaveNoSubnormals) {
  ForEachTarget([] {
    for (DeltaCase c : kDeltaCases) {
      for (const uint64_t seed : {1, 2, 3}) {
        if (c.decays != DeltaDecays::kStrong) continue;
        c.seed = seed;
        const auto s = c.Make(1, 40);
        s->Run("hwy", 40, seed);
        s->ExpectFiniteState(0);
      }
    }
  });
}

// With u = beta v after a decay of 0: what a row keeps, and where.
TEST(DeltaRule, RowsAndStatesAreLaidOutAsTheHeaderSays) {
  const DeltaCase c{.key_heads = 2, .value_heads = 4, .k_dim = 5, .v_dim = 67};
  for (const bool tiled : {false, true}) {
    DeltaCase other = c;
    other.tiled = other.channel_decay = tiled;
    const int64_t decays = other.decay_dim();
    const auto s = other.Make(1, 1);
    const StepPart part{.sequence = 0, .rows = 1};
    s->Step("hwy", {&part, 1}, 1);
    const float* const row = reinterpret_cast<const float*>(s->block(0, 0));
    const float* const state = reinterpret_cast<const float*>(s->last(0).state);
    const auto at = [&](DeltaSequences::Input member, int64_t i) { return s->input(member).Row(0)[i]; };
    for (int64_t i = 0; i < 2 * 5; ++i) ASSERT_EQ(row[i], at(&DeltaRuleOp::k, i));
    for (int64_t h = 0; h < 4; ++h) {
      const int64_t kh = tiled ? h % 2 : h / 2;
      for (int64_t i = h * decays; i < (h + 1) * decays; ++i) ASSERT_EQ(row[2 * 5 + 4 * 67 + i], at(&DeltaRuleOp::decay, i));
      for (int64_t v = 0; v < 67; ++v) {
        const float u = row[2 * 5 + h * 67 + v];
        ASSERT_EQ(u, at(&DeltaRuleOp::beta, h) * at(&DeltaRuleOp::v, h * 67 + v));
        for (int64_t d = 0; d < 5; ++d) {
          const int64_t e = h * 5 * 67 + (v < 64 ? d * 64 + v : 5 * 64 + d * 3 + v - 64);
          ASSERT_EQ(state[e], at(&DeltaRuleOp::k, kh * 5 + d) * u) << "head " << h << ", " << d << ", " << v;
        }
      }
    }
    for (int64_t i = 2 * 5 + 4 * (67 + decays); i < DeltaRuleOp::ReplayOf(2, 4, 5, 67, decays); ++i) ASSERT_EQ(row[i], 0);
    for (int64_t i = 4 * 5 * 67; i < DeltaRuleOp::StateOf(4, 5, 67); ++i) ASSERT_EQ(state[i], 0);
  }
}

TEST(DeltaRule, RefusesWhatItCannotRead) {
  const DeltaCase c{.key_heads = 2, .value_heads = 4, .k_dim = 16, .v_dim = 20};
  DeltaRuleOp op = c.Op();
  EdgeMat<float> k(1, 32), v(1, 80), rates(1, 4), out(1, 80);
  op.q = op.k = k.view();
  op.v = v.view();
  op.decay = op.beta = rates.view();
  op.out = out.view();
  EdgeArray<uint8_t> from(op.layout.state_bytes()), to(op.layout.state_bytes()), rows(op.layout.rows_bytes());
  std::vector<uint8_t*> blocks = {rows.data(), rows.data()};
  StateTable table{.from = from.data(), .at = 40, .to = to.data(), .rows = blocks.data(), .count = 2};
  const StateRun run{0, 40, 0, 1};
  const std::vector<int32_t> order = {0};
  op.runs = {{&run, 1}, order};
  op.states = {&table, 1};
  EXPECT_TRUE(op.Validate().ok()) << op.Validate().message();
  table.at = 20;
  EXPECT_TRUE(op.Validate().ok());
  blocks[0] = nullptr;
  EXPECT_FALSE(op.Validate().ok());
  table.at = 32;
  EXPECT_TRUE(op.Validate().ok());
  table.at = 41;
  EXPECT_FALSE(op.Validate().ok());
  table.at = 40;
  table.count = 1;
  EXPECT_FALSE(op.Validate().ok());
  table.count = 2;
  table.to = nullptr;
  EXPECT_FALSE(op.Validate().ok());
  table.to = to.data();
  DeltaRuleOp other = op;
  other.layout.recurrence += 16;
  EXPECT_FALSE(other.Validate().ok());
  other = op;
  other.key_heads = 3;
  EXPECT_FALSE(other.Validate().ok());
  other = op;
  other.beta.cols = 3;
  EXPECT_FALSE(other.Validate().ok());
  other = op;
  other.channel_decay = true;
  other.layout.replay = DeltaRuleOp::ReplayOf(2, 4, 16, 20, 16);
  EXPECT_FALSE(other.Validate().ok());
  EXPECT_TRUE(op.Validate().ok());
}

TEST(DeltaRule, CostsByHand) {
  const DeltaCase c{.key_heads = 2, .value_heads = 4, .k_dim = 16, .v_dim = 20};
  DeltaRuleOp op = c.Op();
  EdgeMat<float> k(3, 32), v(3, 80), rates(3, 4), out(3, 80);
  op.q = op.k = k.view();
  op.v = v.view();
  op.decay = op.beta = rates.view();
  op.out = out.view();
  std::vector<StateTable> tables(2);
  tables[1].at = 35;
  const std::vector<StateRun> runs = {{0, 0, 0, 2}, {1, 40, 2, 1}};
  const std::vector<int32_t> order = {0, 2, 1};
  op.runs = {runs, order};
  op.states = tables;
  const Cost cost = TotalUseful(op);
  EXPECT_EQ(cost.Flops(WorkClass::kRecurrence), 3u * 4 * (7 * 16 * 20 + 6 * 20 + 3 * 16));
  EXPECT_EQ(cost.Bytes(ByteKind::kStateRead), 2u * 4 * 16 * 20 * 4);
  EXPECT_EQ(cost.Bytes(ByteKind::kStateWritten), 2u * 4 * 16 * 20 * 4);
  EXPECT_EQ(op.Amounts()[Amount::kReplayed], 5u);
  std::vector<CostAmounts> amounts(2);
  op.AddRowAmounts(std::vector<uint32_t>{0, 1, 0}, amounts);
  EXPECT_EQ(amounts[0][Amount::kReplayed], 0u);
  EXPECT_EQ(amounts[1][Amount::kReplayed], 5u);
  EXPECT_EQ(amounts[0][Amount::kRuns] + amounts[1][Amount::kRuns], 2u);
  const Cost ref = TotalExecuted(KernelNamed<DeltaRuleOp>("ref"), op);
  EXPECT_EQ(ref.Flops(WorkClass::kRecurrence) - cost.Flops(WorkClass::kRecurrence), 5u * 4 * 3 * 16 * 20);
  ForEachTarget([&] { ExpectAtLeast(TotalExecuted(KernelNamed<DeltaRuleOp>("hwy"), op), cost); });
  EdgeMat<float> decays(3, 64);
  op.channel_decay = true;
  op.decay = decays.view();
  EXPECT_EQ(TotalUseful(op).Flops(WorkClass::kRecurrence), 3u * 4 * (7 * 16 * 20 + 4 * 20 + 5 * 16));
  EXPECT_EQ(TotalUseful(op).Bytes(ByteKind::kActivationsRead), cost.Bytes(ByteKind::kActivationsRead) + 3u * (64 - 4) * 4);
  ForEachTarget([&] { ExpectAtLeast(TotalExecuted(KernelNamed<DeltaRuleOp>("hwy"), op), TotalUseful(op)); });
}

}  // namespace
}  // namespace tally
