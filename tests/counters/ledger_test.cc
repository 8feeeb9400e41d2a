// SPDX-License-Identifier: Apache-2.0
#include "counters/ledger/ledger.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "tests/support/charges.h"

namespace tally {
namespace {

WeightInfo Weight(std::string name, int32_t layer, Component component, uint32_t slices, uint64_t rows, uint64_t cols) {
  WeightInfo w;
  w.name = std::move(name);
  w.layer = layer;
  w.component = component;
  w.slices = slices;
  w.rows = rows;
  w.cols = cols;
  return w;
}

std::vector<WeightInfo> Table() {
  return {Weight("token_embd", -1, Component::kEmbedding, 1, 40, 6), Weight("blk.0.up", 0, Component::kFfnGateUp, 1, 13, 6),
          Weight("blk.0.exps", 0, Component::kFfnGateUp, 5, 7, 3),   Weight("blk.1.norm", 1, Component::kFfnNorm, 1, 1, 6),
          Weight("blk.1.exps", 1, Component::kFfnGateUp, 70, 4, 3),  Weight("blk.1.bias", 1, Component::kFfnGateUp, 70, 1, 2),
          Weight("blk.1.down", 1, Component::kFfnDown, 70, 2, 5)};
}

Cost OneOf(WorkClass c, uint64_t flops) {
  Cost cost;
  cost.AddFlops(c, flops);
  cost.AddSpecial(WorkClass::kNorm, 2);
  cost.AddBytes(ByteKind::kKvRead, 5);
  return cost;
}

const Site kSite{0, Component::kFfnGateUp};

void Add(const Account& account, Account& sum) {
  sum.useful += account.useful;
  sum.executed += account.executed;
  sum.ops += account.ops;
}

uint64_t Step(Ledger& ledger, const WeightTouches& touches, Phase phase = Phase::kDecode) {
  ledger.BeginStep(RowsIn(phase, 1, 1));
  ChargeOnce(ledger, kSite, {}, {}, touches);
  ledger.EndStep();
  return ledger.last_step().parameters_touched;
}

TEST(Ledger, UnionWithinAStep) {
  Ledger ledger;
  ledger.SetWeights(Table());
  EXPECT_EQ(Step(ledger, {{0, 0, 3, 4}, {0, 0, 3, 4}}), 6u);                     // the same row twice
  EXPECT_EQ(Step(ledger, {{0, 0, 3, 4}, {0, 0, 0, 40}}), 240u);                  // a row, then the whole (tied head)
  EXPECT_EQ(Step(ledger, {{0, 0, 0, 40}, {0, 0, 3, 4}}), 240u);                  // the whole, then a row
  EXPECT_EQ(Step(ledger, {{0, 0, 0, 25}, {0, 0, 20, 40}, {0, 0, 1, 2}}), 240u);  // overlapping halves
  EXPECT_EQ(Step(ledger, {{0, 0, 0, 25}, {0, 0, 20, 30}, {0, 0, 0, 40}}), 240u);
  EXPECT_EQ(Step(ledger, {{2, 1, 0, 7}, {2, 4, 0, 7}, {2, 1, 0, 7}}), 42u);  // two experts of five
  EXPECT_EQ(Step(ledger, {{2, 1, 0, 7}, {2, 4, 2, 3}}), 24u);
  EXPECT_EQ(Step(ledger, {{3, 0, 0, 1}}), 6u);
  EXPECT_EQ(Step(ledger, {}), 0u);
  EXPECT_EQ(ledger.touched().bad(), 0u);
}

TEST(Ledger, TheLastStepsRows) {
  using Ranges = std::vector<RowRange>;
  Ledger ledger;
  ledger.SetWeights(Table());
  EXPECT_EQ(ledger.touched().ranges(0, 0), Ranges());  // no step yet
  Step(ledger, {{0, 0, 3, 4}, {0, 0, 9, 12}, {0, 0, 4, 6}, {0, 0, 10, 11}, {0, 0, 39, 40}, {2, 1, 0, 7}, {2, 3, 0, 2}});
  EXPECT_EQ(ledger.touched().ranges(0, 0), (Ranges{{3, 6}, {9, 12}, {39, 40}}));
  EXPECT_EQ(ledger.touched().ranges(1, 0), Ranges());
  EXPECT_EQ(ledger.touched().ranges(2, 0), Ranges());
  EXPECT_EQ(ledger.touched().ranges(2, 1), (Ranges{{0, 7}}));
  EXPECT_EQ(ledger.touched().ranges(2, 3), (Ranges{{0, 2}}));
  EXPECT_EQ(ledger.touched().ranges(2, 5), Ranges());  // no such slice, no such weight
  EXPECT_EQ(ledger.touched().ranges(7, 0), Ranges());
  Step(ledger, {{0, 0, 4, 5}, {2, 3, 0, 2}, {2, 3, 2, 7}});  // the step before is forgotten; pieces make a whole
  EXPECT_EQ(ledger.touched().ranges(0, 0), (Ranges{{4, 5}}));
  EXPECT_EQ(ledger.touched().ranges(2, 1), Ranges());
  EXPECT_EQ(ledger.touched().ranges(2, 3), (Ranges{{0, 7}}));
  Step(ledger, {{0, 0, 4, 5}, {0, 0, 0, 40}, {3, 0, 0, 1}});
  EXPECT_EQ(ledger.touched().ranges(0, 0), (Ranges{{0, 40}}));
  EXPECT_EQ(ledger.touched().ranges(3, 0), (Ranges{{0, 1}}));
}

// Amounts at an op's index are what was charged, whatever else was: against the sum of the single charges.
TEST(Ledger, CostsAreAmountsTimesUnits) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
  Ledger ledger, plain;
  std::vector<std::vector<SiteCost>> ops(5);
  for (std::vector<SiteCost>& op : ops) {
    for (uint32_t part = 0; part <= below(2); ++part) {
      SiteCost cost{.site = {static_cast<int32_t>(below(3)) - 1, below(2) == 0 ? Component::kHead : Component::kRope},
                    .units = {}};
      for (size_t a = 0; a < kAmounts; ++a) {
        if (below(2) == 0) continue;
        cost.units.push_back({static_cast<Amount>(a), OneOf(static_cast<WorkClass>(below(kWorkClasses)), below(100)),
                              OneOf(WorkClass::kLinear, below(100))});
      }
      op.push_back(cost);
    }
    EXPECT_EQ(ledger.AddOp(op), static_cast<uint32_t>(&op - ops.data()));
  }
  for (int step = 0; step < 50; ++step) {
    const std::vector<BookedRow> rows = RowsIn(below(2) == 0 ? Phase::kPrefill : Phase::kDecode, 1 + below(3), 1);
    ledger.BeginStep(rows);
    plain.BeginStep(rows);
    for (uint32_t n = below(9); n > 0; --n) {
      const uint32_t op = below(static_cast<uint32_t>(ops.size()));
      CostAmounts amounts;
      for (size_t a = 0; a < kAmounts; ++a) amounts[a] = below(4);
      amounts[Amount::kCalls] = 1;
      ledger.Charge(op, amounts);
      for (const SiteCost& part : ops[op]) {
        Cost useful, executed;
        for (const SiteCost::Unit& unit : part.units) {
          useful.AddTimes(unit.useful, amounts[unit.amount]);
          executed.AddTimes(unit.executed, amounts[unit.amount]);
        }
        ChargeOnce(plain, part.site, useful, executed);
      }
    }
  }
  for (const Phase p : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
    EXPECT_EQ(ledger.total(p).useful, plain.total(p).useful);
    EXPECT_EQ(ledger.total(p).executed, plain.total(p).executed);
    for (int32_t layer = -1; layer < 2; ++layer) {
      for (const Component c : {Component::kHead, Component::kRope}) {
        EXPECT_EQ(ledger.at(p, {layer, c}).useful, plain.at(p, {layer, c}).useful);
        EXPECT_EQ(ledger.at(p, {layer, c}).executed, plain.at(p, {layer, c}).executed);
      }
    }
    EXPECT_EQ(ledger.steps(p), plain.steps(p));
  }
}

TEST(Ledger, TheLastStepWeightByWeight) {
  Ledger ledger;
  ledger.SetWeights(Table());
  auto last = [&] {
    std::vector<uint64_t> touched;
    for (WeightId id = 0; id < 5; ++id) touched.push_back(ledger.touched().touched(id));
    return touched;
  };
  EXPECT_EQ(last(), std::vector<uint64_t>(5, 0));  // no step yet
  Step(ledger, {{0, 0, 3, 4}, {0, 0, 7, 9}, {2, 1, 0, 7, 4}, {2, 4, 0, 7, 2}, {2, 4, 0, 7, 1}});
  EXPECT_EQ(last(), (std::vector<uint64_t>{18, 0, 42, 0, 0}));
  EXPECT_EQ(ledger.touched().slices(2), 2u);
  EXPECT_EQ(ledger.touched().slices(1), 0u);
  EXPECT_EQ(ledger.touched().uses(2, 1), 4u);
  EXPECT_EQ(ledger.touched().uses(2, 4), 3u);
  EXPECT_EQ(ledger.touched().uses(2, 0), 0u);
  EXPECT_EQ(ledger.touched().uses(2, 5), 0u);
  Step(ledger, {{1, 0, 0, 13}});
  EXPECT_EQ(last(), (std::vector<uint64_t>{0, 78, 0, 0, 0}));
  EXPECT_EQ(ledger.touched().uses(2, 4), 0u);
  EXPECT_EQ(ledger.touched().uses(1, 0), 1u);
}

TEST(Ledger, AgainstABruteForceSet) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
  const std::vector<WeightInfo> table = Table();
  Ledger ledger;
  ledger.SetWeights(table);
  using Row = std::tuple<uint32_t, uint32_t, uint32_t>;
  std::set<Row> ever;
  auto parameters = [&](const std::set<Row>& rows) {
    uint64_t sum = 0;
    for (const Row& r : rows) sum += table[std::get<0>(r)].cols;
    return sum;
  };
  uint64_t sum[2] = {};
  for (int step = 0; step < 400; ++step) {
    std::set<Row> set;
    const Phase phase = below(3) == 0 ? Phase::kPrefill : Phase::kDecode;
    ledger.BeginStep(RowsIn(phase, 1 + below(4), 1));
    for (uint32_t op = below(12); op > 0; --op) {
      WeightTouches touches;
      for (uint32_t n = below(4); n > 0; --n) {
        WeightTouch t;
        t.id = below(4);
        t.slice = below(table[t.id].slices);
        const uint32_t rows = static_cast<uint32_t>(table[t.id].rows);
        t.row_begin = below(3) == 0 ? 0 : below(rows + 1);
        t.row_end = below(3) == 0 ? rows : t.row_begin + below(rows - t.row_begin + 1);
        for (uint32_t r = t.row_begin; r < t.row_end; ++r) set.insert({t.id, t.slice, r});
        touches.push_back(t);
      }
      ChargeOnce(ledger, kSite, {}, {}, touches);
    }
    ledger.EndStep();
    ever.insert(set.begin(), set.end());
    sum[static_cast<int>(phase)] += parameters(set);
    ASSERT_EQ(ledger.last_step().parameters_touched, parameters(set)) << "step " << step;
    ASSERT_EQ(ledger.touched().parameters_ever(), parameters(ever)) << "step " << step;
  }
  EXPECT_EQ(ledger.parameters_touched(Phase::kPrefill), sum[0]);
  EXPECT_EQ(ledger.parameters_touched(Phase::kDecode), sum[1]);
  EXPECT_EQ(ledger.touched().bad(), 0u);
}

TEST(Ledger, TotalsAreTheSumOfSites) {
  Ledger ledger;
  ledger.SetWeights(Table());
  uint64_t prefill = 0, decode = 0;
  for (uint32_t step = 1; step <= 5; ++step) {
    const Phase phase = step <= 2 ? Phase::kPrefill : Phase::kDecode;
    ledger.BeginStep(RowsIn(phase, step, 1));
    for (int32_t layer = -1; layer < 2; ++layer) {
      const uint64_t n = 100 * step + 10 * (layer + 1);
      ChargeOnce(ledger, {layer, Component::kRope}, OneOf(WorkClass::kRope, n), OneOf(WorkClass::kRope, 2 * n));
      ChargeOnce(ledger, {layer, Component::kHead}, OneOf(WorkClass::kLinear, 1), OneOf(WorkClass::kLinear, 1));
      (phase == Phase::kPrefill ? prefill : decode) += n + 1;
    }
    ledger.EndStep();
  }
  EXPECT_EQ(ledger.total(Phase::kPrefill).useful.TotalFlops(), prefill);
  EXPECT_EQ(ledger.total(Phase::kDecode).useful.TotalFlops(), decode);
  EXPECT_EQ(ledger.steps(Phase::kPrefill), 2u);
  EXPECT_EQ(ledger.rows(Phase::kPrefill), 3u);
  EXPECT_EQ(ledger.rows(Phase::kDecode), 12u);
  EXPECT_EQ(ledger.logit_rows(Phase::kDecode), 3u);
  for (Phase p : {Phase::kPrefill, Phase::kDecode}) {
    Account sum;
    for (int32_t layer = -1; layer < 2; ++layer) {
      for (int c = 0; c < kComponents; ++c) Add(ledger.at(p, {layer, static_cast<Component>(c)}), sum);
    }
    EXPECT_EQ(sum.useful, ledger.total(p).useful);
    EXPECT_EQ(sum.executed, ledger.total(p).executed);
    EXPECT_EQ(sum.ops, ledger.total(p).ops);
  }
  EXPECT_EQ(ledger.at(Phase::kDecode, {0, Component::kRope}).useful.Flops(WorkClass::kRope), 310u + 410u + 510u);
  EXPECT_EQ(ledger.at(Phase::kDecode, {0, Component::kRope}).executed.Flops(WorkClass::kRope), 2 * (310u + 410u + 510u));
  EXPECT_EQ(ledger.at(Phase::kDecode, {70, Component::kRope}).ops, 0u);
  EXPECT_EQ(ledger.at(Phase::kDecode, {-5, Component::kRope}).ops, 0u);
}

TEST(Ledger, LayersBeyondTheWeightTable) {
  Ledger ledger;
  ledger.BeginStep(RowsIn(Phase::kDecode, 1, 1));
  ChargeOnce(ledger, {9, Component::kAttention}, OneOf(WorkClass::kAttention, 3), {});
  ledger.EndStep();
  EXPECT_EQ(ledger.at(Phase::kDecode, {9, Component::kAttention}).useful.TotalFlops(), 3u);
}

TEST(Ledger, TheStepUnderWay) {
  Ledger ledger;
  ledger.SetWeights(Table());
  const uint32_t op = ledger.AddOp({{.site = kSite, .units = {{Amount::kCalls, OneOf(WorkClass::kLinear, 7), {}}}}});
  CostAmounts once;
  once[Amount::kCalls] = 1;
  for (uint64_t step = 1; step < 5; ++step) {
    ledger.BeginStep(RowsIn(Phase::kDecode, 1, 1));
    EXPECT_EQ(ledger.last_step().parameters_touched, 0u);
    ledger.Charge(op, once);
    ledger.Touch({1, 0, 0, 13});
    EXPECT_EQ(ledger.last_step().parameters_touched, 78u);
    EXPECT_EQ(ledger.total(Phase::kDecode).useful.TotalFlops(), 10 * step - 3);
    EXPECT_EQ(ledger.parameters_touched(Phase::kDecode), 84 * (step - 1));  // of steps that have ended
    ChargeOnce(ledger, kSite, OneOf(WorkClass::kLinear, 3), {}, std::vector<WeightTouch>{{3, 0, 0, 1}});
    EXPECT_EQ(ledger.last_step().parameters_touched, 84u);
    EXPECT_EQ(ledger.touched().touched(3), 6u);
    ledger.EndStep();
    EXPECT_EQ(ledger.last_step().parameters_touched, 84u);
    EXPECT_EQ(ledger.steps(Phase::kDecode), step);
    ledger.BeginStep(RowsIn(Phase::kPrefill, 2, 1));
    EXPECT_EQ(ledger.total(Phase::kPrefill).ops, 0u);
    EXPECT_EQ(ledger.total(Phase::kDecode).useful.TotalFlops(), 10 * step);
    ledger.EndStep();
    EXPECT_EQ(ledger.last_step().parameters_touched, 0u);
  }
}

TEST(Ledger, AStepLeftOpenStaysCharged) {
  Ledger ledger;
  ledger.BeginStep(RowsIn(Phase::kDecode, 1, 1));
  ChargeOnce(ledger, kSite, OneOf(WorkClass::kLinear, 7), {});
  ledger.BeginStep(RowsIn(Phase::kDecode, 1, 1));
  ChargeOnce(ledger, kSite, OneOf(WorkClass::kLinear, 4), {});
  ledger.EndStep();
  ledger.EndStep();  // nothing open: nothing happens
  EXPECT_EQ(ledger.steps(Phase::kDecode), 2u);
  EXPECT_EQ(ledger.total(Phase::kDecode).useful.TotalFlops(), 11u);
  EXPECT_EQ(ledger.at(Phase::kDecode, kSite).useful.TotalFlops(), 11u);
}

TEST(Ledger, BadTouchesAreCountedAndChangeNothing) {
  Ledger ledger;
  ledger.SetWeights(Table());
  EXPECT_EQ(Step(ledger, {{kNoWeight, 0, 0, 1}, {7, 0, 0, 1}, {2, 5, 0, 1}, {1, 0, 0, 14}, {1, 0, 5, 2}}), 0u);
  EXPECT_EQ(ledger.touched().bad(), 5u);
  EXPECT_EQ(ledger.touched().parameters_ever(), 0u);
}

TEST(Ledger, Reset) {
  Ledger ledger;
  ledger.SetWeights(Table());
  Step(ledger, {{0, 0, 3, 4}, {1, 0, 0, 13}, {9, 0, 0, 1}});
  EXPECT_EQ(ledger.touched().parameters_ever(), 84u);
  ledger.Reset();
  EXPECT_EQ(ledger.touched().parameters_ever(), 0u);
  EXPECT_EQ(ledger.parameters_touched(Phase::kDecode), 0u);
  EXPECT_EQ(ledger.touched().bad(), 0u);
  EXPECT_EQ(ledger.steps(Phase::kDecode), 0u);
  EXPECT_EQ(ledger.at(Phase::kDecode, kSite).ops, 0u);
  EXPECT_EQ(Step(ledger, {{0, 0, 3, 4}}), 6u);  // touched before the reset, and new all the same
  EXPECT_EQ(ledger.touched().parameters_ever(), 6u);
}

}  // namespace
}  // namespace tally
