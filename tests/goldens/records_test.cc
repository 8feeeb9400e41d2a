// SPDX-License-Identifier: Apache-2.0
// The records that the engine delivers as it runs: they are the ledger's charges, op by op.
#include <gtest/gtest.h>

#include <array>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/recipe/recipe.h"
#include "tests/goldens/checkpoints.h"
#include "tests/support/charges.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

class RecordsOf : public testing::TestWithParam<std::string> {};

// A ledger that is charged with the records alone ends as the engine's own.
TEST_P(RecordsOf, AddUpToTheLedger) {
  EngineOptions load = SmallOptions();
  load.sequences = 2;
  const Opened opened = Open(GetParam(), load);
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  Ledger rebuilt;
  rebuilt.SetWeights(engine.ledger().weights());
  std::array<uint64_t, kPhases> more_parts{};  // records of parts after the first
  uint64_t records = 0, next_index = 0, last_step = 0, last_end = 0;
  std::vector<SequenceRows> sequences;
  engine.probe().SetRecorder([&](const OpRecord& r) {
    if (records == 0 || r.step != last_step) {
      EXPECT_EQ(r.step, records == 0 ? 0 : last_step + 1);
      last_step = r.step;
      next_index = 0;
      int64_t rows = 0;
      for (const SequenceRows& s : r.sequences) rows += s.rows;
      rebuilt.BeginStep(RowsIn(r.phase, static_cast<size_t>(rows), static_cast<size_t>(r.logit_rows)));
    }
    EXPECT_EQ(r.index, next_index++);
    EXPECT_GE(r.start_nanoseconds, last_end);
    last_end = r.start_nanoseconds + r.nanoseconds;
    EXPECT_FALSE(r.description.operands.empty()) << r.op;
    EXPECT_EQ(r.target, engine.target());
    for (const WeightTouch& t : r.touches) EXPECT_LT(t.id, rebuilt.weights().size());
    for (const Operand& o : r.description.operands) {
      if (o.role == OperandRole::kWeight) {
        EXPECT_LT(o.weight, rebuilt.weights().size()) << r.op << " " << o.name;
      }
    }
    ChargeOnce(rebuilt, r.site, r.useful, r.executed, r.touches);
    more_parts[static_cast<size_t>(r.phase)] += r.part > 0 ? 1 : 0;
    sequences.assign(r.sequences.begin(), r.sequences.end());
    ++records;
  });
  const auto step = [&](const std::vector<BatchRow>& rows) {
    const auto logits = engine.StepAll(rows);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    rebuilt.EndStep();
  };
  const int32_t a = engine.NewSequence().value(), b = engine.NewSequence().value();
  step({{1, a, false, false}, {2, a, false, false}, {3, b, false, false}, {2, a, true, false}, {1, b, true, false}});
  ASSERT_EQ(sequences.size(), 2u);
  EXPECT_EQ(sequences[0].rows, 3);
  EXPECT_EQ(sequences[1].rows, 2);
  step({{4, a, true, true}, {4, b, true, true}});
  EXPECT_EQ(sequences[0].position, 3);
  EXPECT_EQ(sequences[1].position, 2);
  EXPECT_EQ(sequences[1].sequence, b);
  step({{2, a, true, true}, {5, b, true, true}});  // as the step before: charged again
  step({{3, a, true, true}, {5, b, true, true}});
  Ledger& ledger = engine.ledger();
  for (int32_t token = 1; token < 7; ++token) {  // what a conversation mostly is: one row, step after step
    step({{token, a, true, true}});
    EXPECT_EQ(rebuilt.last_step().parameters_touched, ledger.last_step().parameters_touched);
  }
  EXPECT_EQ(rebuilt.touched().parameters_ever(), ledger.touched().parameters_ever());
  EXPECT_EQ(rebuilt.touched().bad() + ledger.touched().bad(), 0u);
  for (WeightId id = 0; id < rebuilt.weights().size(); ++id) {
    EXPECT_EQ(rebuilt.touched().touched(id), ledger.touched().touched(id)) << rebuilt.weights()[id].name;
    for (uint32_t slice = 0; slice < rebuilt.weights()[id].slices; ++slice) {
      EXPECT_EQ(rebuilt.touched().uses(id, slice), ledger.touched().uses(id, slice)) << rebuilt.weights()[id].name;
    }
  }
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    EXPECT_EQ(rebuilt.total(phase).useful, ledger.total(phase).useful);
    EXPECT_EQ(rebuilt.total(phase).executed, ledger.total(phase).executed);
    EXPECT_EQ(rebuilt.total(phase).ops, ledger.total(phase).ops + more_parts[static_cast<size_t>(phase)]);
    EXPECT_EQ(rebuilt.parameters_touched(phase), ledger.parameters_touched(phase));
    for (int32_t layer = -1; layer < opened.model->recipe().n_layers; ++layer) {
      for (int c = 0; c < kComponents; ++c) {
        const Site site{layer, static_cast<Component>(c)};
        EXPECT_EQ(rebuilt.at(phase, site).useful, ledger.at(phase, site).useful);
        EXPECT_EQ(rebuilt.at(phase, site).executed, ledger.at(phase, site).executed);
      }
    }
  }
  const uint64_t recorded = records;
  engine.probe().SetRecorder(nullptr);
  ASSERT_TRUE(engine.StepAll(std::vector<BatchRow>{{5, a, true, true}}).ok());
  EXPECT_EQ(records, recorded) << "no recorder, no records";

  EXPECT_EQ(ledger.steps(Phase::kDecode), 10u);
}

INSTANTIATE_TEST_SUITE_P(All, RecordsOf, testing::ValuesIn(CheckpointsOfTheRepo()), CheckpointName);

// A step that ends in NaN is repeated to find where: the repetition is not recorded.
TEST(Records, HoldEachOpOnce) {
  EngineOptions load = SmallOptions();
  const Opened opened = Open(CheckpointsOfTheRepo().back(), load);
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const int32_t s = engine.NewSequence().value();
  uint64_t plain = 0, failed = 0;
  engine.probe().SetRecorder([&](const OpRecord&) { ++plain; });
  ASSERT_TRUE(engine.StepAll(std::vector<BatchRow>{{1, s, true, false}}).ok());
  engine.probe().SetRecorder([&](const OpRecord&) { ++failed; });
  // A tap may write: it is shown the engine's own buffers.
  engine.probe().SetTap([](Site site, std::string_view, Mat<const float> out) {
    if (site.component == Component::kOutputNorm && !out.empty()) const_cast<float*>(out.data)[0] = NAN;
  });
  EXPECT_FALSE(engine.StepAll(std::vector<BatchRow>{{1, s, true, false}}).ok());
  EXPECT_EQ(failed, plain);
}

}  // namespace
}  // namespace tally
