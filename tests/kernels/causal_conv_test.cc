// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/causal_conv/causal_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "engine/kernels/causal_conv/causal_conv_ref.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/states.h"

namespace tally {
namespace {

using ConvSequences = StateSequences<CausalConvOp>;

// A convolution's weights, and sequences of random inputs.
struct ConvCase {
  int64_t taps, d;
  bool gated;
  EdgeArray<float> weights, bias;
  CausalConvOp op;
  uint64_t seed;

  ConvCase(int64_t n_taps, int64_t channels, bool silu, bool with_bias, bool with_gate, Random& random)
      : taps(n_taps),
        d(channels),
        gated(with_gate),
        weights(static_cast<size_t>(n_taps * channels)),
        bias(static_cast<size_t>(channels)),
        seed(random.Bits()) {
    random.Fill(weights.data(), taps * d);
    random.Fill(bias.data(), d);
    op.taps = VectorView(weights.data(), d);
    op.taps.slices = taps;
    if (with_bias) op.bias = VectorView(bias.data(), d);
    op.activation = silu ? ActivationKind::kSilu : ActivationKind::kNone;
    op.layout = {.recurrence = 16, .replay = 32, .taps = taps, .channels = d};
  }
  std::unique_ptr<ConvSequences> Make(int64_t sequences, int64_t positions) const {
    std::vector<std::pair<ConvSequences::Input, int64_t>> inputs = {{&CausalConvOp::x, d}};
    if (gated) inputs.emplace_back(&CausalConvOp::gate, d);
    auto s = std::make_unique<ConvSequences>(op, inputs, d, sequences, positions);
    Random random(seed);
    for (const auto& [member, cols] : inputs) {
      for (int64_t r = 0; r < sequences * positions; ++r) random.Fill(s->input(member).Row(r), cols);
    }
    return s;
  }
};

// The formula in f64 for element (position, i) of a sequence, and what may be lost.
struct ConvExpected {
  double value, allowed;
  ConvExpected(const ConvCase& c, const ConvSequences& s, int64_t first_row, int64_t position, int64_t i) {
    double sum = 0, most = 0;
    for (int64_t k = 0; k < c.taps; ++k) {
      const int64_t p = position - c.taps + 1 + k;
      if (p < 0) continue;
      const double product = static_cast<double>(c.weights[static_cast<size_t>(k * c.d + i)]) *
                             static_cast<double>(s.input(&CausalConvOp::x).Row(first_row + p)[i]);
      sum += product;
      most += std::fabs(product);
    }
    if (!c.op.bias.empty()) {
      sum += static_cast<double>(c.bias[static_cast<size_t>(i)]);
      most += std::fabs(static_cast<double>(c.bias[static_cast<size_t>(i)]));
    }
    allowed = CausalConvTolerance(c.taps) * most;
    value = sum;
    if (c.op.activation == ActivationKind::kSilu) {
      value = sum / (1 + std::exp(-sum));
      allowed = 1.1 * allowed + 0x1p-21 * std::fabs(value);
    }
    if (!c.gated) return;
    const double gate = static_cast<double>(s.input(&CausalConvOp::gate).Row(first_row + position)[i]);
    value *= gate;
    allowed *= std::fabs(gate);
  }
};

// Two ops that convolve some channels each leave what one does.
TEST(CausalConv, SomeOfTheChannels) {
  ForEachTarget([] {
    Random random(117);
    constexpr int64_t kRows = 5, kTaps = 4, kAll = 90;
    EdgeMat<float> x(kRows, kAll), out(kRows, kAll), parts(kRows, kAll);
    x.Fill(random, 1);
    const ConvCase c(kTaps, kAll, true, false, false, random);
    const StateLayout& layout = c.op.layout;
    const StateRun run{0, 1, 0, kRows};
    const std::vector<int32_t> order = {0, 1, 2, 3, 4};
    EdgeArray<uint8_t> from(layout.state_bytes());
    random.Fill(reinterpret_cast<float*>(from.data()), layout.state_floats());
    std::vector<std::vector<uint8_t>> states(2, std::vector<uint8_t>(layout.state_bytes())),
        rows(2, std::vector<uint8_t>(layout.rows_bytes()));
    for (const size_t cut : {0, 1}) {
      uint8_t* block = rows[cut].data();
      const StateTable table{.from = from.data(), .at = 1, .to = states[cut].data(), .rows = &block, .count = 1};
      for (int64_t first = 0, cols = cut == 0 ? kAll : 37; first < kAll; first += cols, cols = kAll - first) {
        CausalConvOp op = c.op;
        std::vector<float> weights;
        for (int64_t k = 0; k < kTaps; ++k) {
          const float* const tap = c.weights.data() + k * kAll + first;
          weights.insert(weights.end(), tap, tap + cols);
        }
        op.taps = VectorView(weights.data(), cols);
        op.taps.slices = kTaps;
        op.first_channel = first;
        op.x = x.view().Cols(first, cols);
        op.out = (cut == 0 ? out : parts).view().Cols(first, cols);
        op.runs = {{&run, 1}, order};
        op.states = {&table, 1};
        ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
        RunShuffled(KernelNamed<CausalConvOp>("hwy"), op, 1);
        op.first_channel = kAll;
        EXPECT_FALSE(op.Validate().ok());
      }
    }
    EXPECT_EQ(states[0], states[1]);
    EXPECT_EQ(rows[0], rows[1]);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kAll; ++i) ASSERT_EQ(out.Row(r)[i], parts.Row(r)[i]);
    }
  });
}

TEST(CausalConv, EveryTargetAgreesWithTheFormula) {
  ForEachTarget([] {
    Random random(81);
    SCOPED_TRACE(random.Trace());
    constexpr int64_t kPositions = 12;
    for (int64_t d = 1; d <= 700; d += d < 40 ? 1 : d < 200 ? 23 : 157) {
      for (const int64_t taps : {1, 2, 3, 4}) {
        const ConvCase c(taps, d, taps == 4, d % 2 == 0, d % 3 != 0, random);
        const auto got = c.Make(2, kPositions), want = c.Make(2, kPositions);
        got->Run("hwy", 5, random.Bits());
        want->Run("ref", 5, random.Bits());
        for (int64_t r = 0; r < 2 * kPositions; ++r) {
          for (int64_t i = 0; i < d; ++i) {
            const ConvExpected e(c, *want, r / kPositions * kPositions, r % kPositions, i);
            ASSERT_NEAR(static_cast<double>(want->out().Row(r)[i]), e.value, e.allowed) << "row " << r << ", column " << i;
            ASSERT_NEAR(static_cast<double>(got->out().Row(r)[i]), static_cast<double>(want->out().Row(r)[i]), 2 * e.allowed);
          }
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(CausalConv, BitsDoNotDependOnTheCut) {
  ForEachTarget([] {
    Random random(82);
    SCOPED_TRACE(random.Trace());
    for (const int64_t taps : {1, 3, 4, 16}) {
      for (const int64_t d : {5, 37, 300}) {
        SCOPED_TRACE(std::to_string(taps) + " taps of " + std::to_string(d));
        const ConvCase c(taps, d, d != 5, true, d == 37, random);
        // The recurrence's part is not the convolution's: it stays as it was.
        ExpectBitsDoNotDependOnTheCut([&] { return c.Make(2, 75); }, random);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(CausalConv, KeepsInputsInRowsAndTails) {
  Random random(85);
  const ConvCase c(4, 70, true, false, false, random);
  const auto s = c.Make(1, 40);
  const StepPart part{.sequence = 0, .rows = 40, .mid_at = 2};
  s->Step("hwy", {&part, 1}, 1);
  const Mat<float> x = s->input(&CausalConvOp::x);
  const auto tail = [&](const ConvSequences::Known& known, int64_t k) {
    return reinterpret_cast<const float*>(known.state) + c.op.layout.recurrence + k * c.d;
  };
  for (int64_t i = 0; i < c.d; ++i) {
    for (int64_t k = 0; k < 3; ++k) {
      ASSERT_EQ(tail(s->last(0), k)[i], x.Row(37 + k)[i]);
      ASSERT_EQ(tail(s->mid(0), k)[i], k == 0 ? 0 : x.Row(k - 1)[i]);  // positions -1, 0, 1
    }
    for (int64_t p = 0; p < 40; ++p) {
      const float* const row = reinterpret_cast<const float*>(s->block(0, p / 32)) + p % 32 * c.op.layout.row_floats();
      ASSERT_EQ(row[i], x.Row(p)[i]);
    }
  }
}

TEST(CausalConv, CostsByHand) {
  EdgeArray<float> weights(15), bias(5);
  EdgeMat<float> x(3, 5), gate(3, 5), out(3, 5);
  const std::vector<StateRun> runs = {{0, 0, 0, 2}, {1, 130, 2, 1}};
  const std::vector<int32_t> order = {0, 2, 1};
  CausalConvOp op;
  op.x = x.view();
  op.taps = VectorView(weights.data(), 5);
  op.taps.slices = 3;
  op.bias = VectorView(bias.data(), 5, 1);
  op.activation = ActivationKind::kSilu;
  op.gate = gate.view();
  op.layout = {.taps = 3, .channels = 5};
  op.runs = {runs, order};
  op.out = out.view();
  const Cost cost = TotalUseful(op);
  EXPECT_EQ(cost.Flops(WorkClass::kLinear), 3u * 2 * 3 * 5);
  EXPECT_EQ(cost.Flops(WorkClass::kResidualBias), 3u * 5);
  EXPECT_EQ(cost.Flops(WorkClass::kActivation), 3u * 2 * 5);
  EXPECT_EQ(cost.Special(WorkClass::kActivation), 3u * 2 * 5);
  EXPECT_EQ(cost.Bytes(ByteKind::kStateRead), 2u * 2 * 5 * 4);
  EXPECT_EQ(cost.Bytes(ByteKind::kStateWritten), 2u * 2 * 5 * 4);
  EXPECT_EQ(cost.Bytes(ByteKind::kWeightsPacked), 4u * 5 * 4);
  std::vector<CostAmounts> amounts(2);
  op.AddRowAmounts(std::vector<uint32_t>{0, 1, 1}, amounts);
  EXPECT_EQ(amounts[0][Amount::kRows], 1u);
  EXPECT_EQ(amounts[1][Amount::kRows], 2u);
  EXPECT_EQ(amounts[0][Amount::kRuns], 1u);
  EXPECT_EQ(amounts[1][Amount::kRuns], 1u);
  ForEachTarget([&] { ExpectAtLeast(TotalExecuted(KernelNamed<CausalConvOp>("hwy"), op), TotalUseful(op)); });
  WeightTouches touches;
  op.Touches(touches);
  EXPECT_EQ(touches.size(), 4u);
}

TEST(CausalConv, RefusesWhatItCannotRead) {
  EdgeArray<float> weights(15);
  EdgeMat<float> x(2, 5), out(2, 5);
  const StateLayout layout{.recurrence = 0, .replay = 16, .taps = 3, .channels = 5};
  EdgeArray<uint8_t> from(layout.state_bytes()), to(layout.state_bytes()), rows(layout.rows_bytes());
  std::vector<uint8_t*> blocks = {rows.data(), nullptr};
  StateTable table{.from = from.data(), .at = 32, .to = to.data(), .rows = blocks.data(), .count = 2};
  StateRun run{0, 33, 0, 2};
  std::vector<int32_t> order = {1, 0};
  CausalConvOp op;
  op.x = x.view();
  op.taps = VectorView(weights.data(), 5);
  op.taps.slices = 3;
  op.layout = layout;
  op.runs = {{&run, 1}, order};
  op.states = {&table, 1};
  op.out = out.view();
  EXPECT_FALSE(op.Validate().ok());  // position 32 is in a block that is not kept
  run.position = 32;
  EXPECT_TRUE(op.Validate().ok()) << op.Validate().message();
  table.to = from.data();
  EXPECT_TRUE(op.Validate().ok());
  table.at = 31;
  EXPECT_FALSE(op.Validate().ok());  // from which position 31 would be done again
  table.to = to.data();
  EXPECT_TRUE(op.Validate().ok());
  table.from = nullptr;
  EXPECT_FALSE(op.Validate().ok());
  table.from = from.data();
  table.mid = from.data();
  table.mid_at = 34;
  EXPECT_FALSE(op.Validate().ok());  // not within the step
  table.mid_at = 33;
  EXPECT_TRUE(op.Validate().ok());
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{0, 0}, {0, 2}, {0}}) {
    op.runs.order = wrong;
    EXPECT_FALSE(op.Validate().ok());
  }
  op.runs.order = order;
  run.rows = 1;
  EXPECT_FALSE(op.Validate().ok());
  run.rows = 2;
  op.layout.taps = 4;
  EXPECT_FALSE(op.Validate().ok());
  op.layout.taps = 3;
  op.activation = ActivationKind::kRelu;
  EXPECT_FALSE(op.Validate().ok());
}

}  // namespace
}  // namespace tally
