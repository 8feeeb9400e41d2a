#include "counters/ledger.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

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
          Weight("blk.0.exps", 0, Component::kFfnGateUp, 5, 7, 3), Weight("blk.1.norm", 1, Component::kFfnNorm, 1, 1, 6)};
}

Cost OneOf(WorkClass c, uint64_t flops) {
  Cost cost;
  cost.AddFlops(c, flops);
  cost.AddSpecial(WorkClass::kNorm, 2);
  cost.AddBytes(ByteKind::kKvRead, 5);
  return cost;
}

const Site kSite{0, Component::kFfnGateUp};

uint64_t Step(Ledger& ledger, const WeightTouches& touches, Phase phase = Phase::kDecode) {
  ledger.BeginStep(phase, 1, 1);
  ledger.Charge(kSite, "op", {}, {}, touches);
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
  EXPECT_EQ(ledger.bad_touches(), 0u);
}

TEST(Ledger, TheLastStepsRows) {
  using Ranges = std::vector<Ledger::RowRange>;
  Ledger ledger;
  ledger.SetWeights(Table());
  EXPECT_EQ(ledger.ranges_last(0, 0), Ranges());  // no step yet
  Step(ledger, {{0, 0, 3, 4}, {0, 0, 9, 12}, {0, 0, 4, 6}, {0, 0, 10, 11}, {0, 0, 39, 40}, {2, 1, 0, 7}, {2, 3, 0, 2}});
  EXPECT_EQ(ledger.ranges_last(0, 0), (Ranges{{3, 6}, {9, 12}, {39, 40}}));
  EXPECT_EQ(ledger.ranges_last(1, 0), Ranges());
  EXPECT_EQ(ledger.ranges_last(2, 0), Ranges());
  EXPECT_EQ(ledger.ranges_last(2, 1), (Ranges{{0, 7}}));
  EXPECT_EQ(ledger.ranges_last(2, 3), (Ranges{{0, 2}}));
  EXPECT_EQ(ledger.ranges_last(2, 5), Ranges());  // no such slice, no such weight
  EXPECT_EQ(ledger.ranges_last(4, 0), Ranges());
  Step(ledger, {{0, 0, 4, 5}, {2, 3, 0, 2}, {2, 3, 2, 7}});  // the step before is forgotten; pieces make a whole
  EXPECT_EQ(ledger.ranges_last(0, 0), (Ranges{{4, 5}}));
  EXPECT_EQ(ledger.ranges_last(2, 1), Ranges());
  EXPECT_EQ(ledger.ranges_last(2, 3), (Ranges{{0, 7}}));
  Step(ledger, {{0, 0, 4, 5}, {0, 0, 0, 40}, {3, 0, 0, 1}});
  EXPECT_EQ(ledger.ranges_last(0, 0), (Ranges{{0, 40}}));
  EXPECT_EQ(ledger.ranges_last(3, 0), (Ranges{{0, 1}}));
}

// Charges that are said to be the same again end in the same sums as if each had been charged: random steps, some ops of which change.
TEST(Ledger, RepeatedChargesAreCharges) {
  std::mt19937 random(7);
  Ledger plain, repeating;
  plain.SetWeights(Table());
  repeating.SetWeights(Table());
  constexpr size_t kOps = 5;
  std::vector<Ledger::Repeatable> known(kOps);
  std::vector<uint64_t> flops(kOps, 1);
  uint64_t again = 0, twice = 0;
  for (int step = 0; step < 300; ++step) {
    const Phase phase = random() % 4 == 0 ? Phase::kPrefill : Phase::kDecode;
    plain.BeginStep(phase, 1, 0);
    repeating.BeginStep(phase, 1, 0);
    for (size_t op = 0; op < kOps; ++op) {
      const bool changed = random() % 5 == 0;
      if (changed) flops[op] = random() % 100;
      const Site site{static_cast<int32_t>(op % 2), Component::kFfnGateUp};
      const Cost useful = OneOf(WorkClass::kLinear, flops[op]), executed = OneOf(WorkClass::kLinear, 2 * flops[op]);
      const WeightTouches touches = {{2, static_cast<uint32_t>(random() % 5), 0, 7, 2}, {0, 0, 3, 4}};
      plain.Charge(site, "op", useful, executed, touches);
      if (random() % 7 == 0) {  // the same op twice in a step
        plain.Charge(site, "op", useful, executed, touches);
        known[op] = repeating.ChargeRepeatable(known[op], site, useful, executed, touches);
        EXPECT_FALSE(repeating.ChargeAgain(known[op], touches)) << "once a step";
        ++twice;
      }
      if (!changed && repeating.ChargeAgain(known[op], touches)) {
        ++again;
      } else {
        known[op] = repeating.ChargeRepeatable(known[op], site, useful, executed, touches);
      }
    }
    plain.EndStep();
    repeating.EndStep();
    EXPECT_EQ(repeating.last_step().account.useful, plain.last_step().account.useful);
    EXPECT_EQ(repeating.last_step().account.executed, plain.last_step().account.executed);
    EXPECT_EQ(repeating.last_step().account.ops, plain.last_step().account.ops);
    EXPECT_EQ(repeating.last_step().parameters_touched, plain.last_step().parameters_touched);
    if (step % 50 == 20) {
      EXPECT_EQ(repeating.total(phase).executed, plain.total(phase).executed);
    }
    if (step == 200) {
      plain.Reset();
      repeating.Reset();
      EXPECT_FALSE(repeating.ChargeAgain(known[0], {})) << "what it gave before a Reset is forgotten";
    }
  }
  EXPECT_GT(again, 300u);
  EXPECT_GT(twice, 50u);
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    EXPECT_EQ(repeating.total(phase).useful, plain.total(phase).useful);
    EXPECT_EQ(repeating.total(phase).executed, plain.total(phase).executed);
    EXPECT_EQ(repeating.total(phase).ops, plain.total(phase).ops);
    for (const int32_t layer : {0, 1}) {
      const Site site{layer, Component::kFfnGateUp};
      EXPECT_EQ(repeating.at(phase, site).useful, plain.at(phase, site).useful);
      EXPECT_EQ(repeating.at(phase, site).executed, plain.at(phase, site).executed);
      EXPECT_EQ(repeating.at(phase, site).ops, plain.at(phase, site).ops);
    }
    EXPECT_EQ(repeating.parameters_touched(phase), plain.parameters_touched(phase));
  }
  EXPECT_EQ(repeating.parameters_touched_ever(), plain.parameters_touched_ever());
  EXPECT_EQ(repeating.uses_last(2, 1), plain.uses_last(2, 1));
}

TEST(Ledger, TheLastStepWeightByWeight) {
  Ledger ledger;
  ledger.SetWeights(Table());
  auto last = [&] {
    std::vector<uint64_t> touched;
    for (WeightId id = 0; id < 5; ++id) touched.push_back(ledger.touched_last(id));
    return touched;
  };
  EXPECT_EQ(last(), std::vector<uint64_t>(5, 0));  // no step yet
  Step(ledger, {{0, 0, 3, 4}, {0, 0, 7, 9}, {2, 1, 0, 7, 4}, {2, 4, 0, 7, 2}, {2, 4, 0, 7, 1}});
  EXPECT_EQ(last(), (std::vector<uint64_t>{18, 0, 42, 0, 0}));
  EXPECT_EQ(ledger.slices_last(2), 2u);
  EXPECT_EQ(ledger.slices_last(1), 0u);
  EXPECT_EQ(ledger.uses_last(2, 1), 4u);
  EXPECT_EQ(ledger.uses_last(2, 4), 3u);
  EXPECT_EQ(ledger.uses_last(2, 0), 0u);
  EXPECT_EQ(ledger.uses_last(2, 5), 0u);
  Step(ledger, {{1, 0, 0, 13}});
  EXPECT_EQ(last(), (std::vector<uint64_t>{0, 78, 0, 0, 0}));
  EXPECT_EQ(ledger.uses_last(2, 4), 0u);
  EXPECT_EQ(ledger.uses_last(1, 0), 1u);
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
    ledger.BeginStep(phase, 1 + below(4), 1);
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
      ledger.Charge(kSite, "op", {}, {}, touches);
    }
    ledger.EndStep();
    ever.insert(set.begin(), set.end());
    sum[static_cast<int>(phase)] += parameters(set);
    ASSERT_EQ(ledger.last_step().parameters_touched, parameters(set)) << "step " << step;
    ASSERT_EQ(ledger.parameters_touched_ever(), parameters(ever)) << "step " << step;
  }
  EXPECT_EQ(ledger.parameters_touched(Phase::kPrefill), sum[0]);
  EXPECT_EQ(ledger.parameters_touched(Phase::kDecode), sum[1]);
  EXPECT_EQ(ledger.bad_touches(), 0u);
}

TEST(Ledger, TotalsAreTheSumOfSites) {
  Ledger ledger;
  ledger.SetWeights(Table());
  uint64_t prefill = 0, decode = 0;
  for (uint32_t step = 1; step <= 5; ++step) {
    const Phase phase = step <= 2 ? Phase::kPrefill : Phase::kDecode;
    ledger.BeginStep(phase, step, 1);
    for (int32_t layer = -1; layer < 2; ++layer) {
      const uint64_t n = 100 * step + 10 * (layer + 1);
      ledger.Charge({layer, Component::kRope}, "rope", OneOf(WorkClass::kRope, n), OneOf(WorkClass::kRope, 2 * n), {});
      ledger.Charge({layer, Component::kHead}, "matmul", OneOf(WorkClass::kLinear, 1), OneOf(WorkClass::kLinear, 1), {});
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
  EXPECT_EQ(ledger.last_step().account.ops, 6u);
  for (Phase p : {Phase::kPrefill, Phase::kDecode}) {
    Account sum;
    for (int32_t layer = -1; layer < 2; ++layer) {
      for (int c = 0; c < kComponents; ++c) sum += ledger.at(p, {layer, static_cast<Component>(c)});
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
  ledger.BeginStep(Phase::kDecode, 1, 1);
  ledger.Charge({9, Component::kAttention}, "attention", OneOf(WorkClass::kAttention, 3), {}, {});
  ledger.EndStep();
  EXPECT_EQ(ledger.at(Phase::kDecode, {9, Component::kAttention}).useful.TotalFlops(), 3u);
}

TEST(Ledger, AStepLeftOpenStaysCharged) {
  Ledger ledger;
  ledger.BeginStep(Phase::kDecode, 1, 1);
  ledger.Charge(kSite, "op", OneOf(WorkClass::kLinear, 7), {}, {});
  ledger.BeginStep(Phase::kDecode, 1, 1);
  ledger.Charge(kSite, "op", OneOf(WorkClass::kLinear, 4), {}, {});
  ledger.EndStep();
  ledger.EndStep();  // nothing open: nothing happens
  EXPECT_EQ(ledger.steps(Phase::kDecode), 2u);
  EXPECT_EQ(ledger.total(Phase::kDecode).useful.TotalFlops(), 11u);
  EXPECT_EQ(ledger.at(Phase::kDecode, kSite).useful.TotalFlops(), 11u);
  EXPECT_EQ(ledger.last_step().account.useful.TotalFlops(), 4u);
}

TEST(Ledger, BadTouchesAreCountedAndChangeNothing) {
  Ledger ledger;
  ledger.SetWeights(Table());
  EXPECT_EQ(Step(ledger, {{kNoWeight, 0, 0, 1}, {4, 0, 0, 1}, {2, 5, 0, 1}, {1, 0, 0, 14}, {1, 0, 5, 2}}), 0u);
  EXPECT_EQ(ledger.bad_touches(), 5u);
  EXPECT_EQ(ledger.parameters_touched_ever(), 0u);
}

TEST(Ledger, Reset) {
  Ledger ledger;
  ledger.SetWeights(Table());
  Step(ledger, {{0, 0, 3, 4}, {1, 0, 0, 13}, {9, 0, 0, 1}});
  EXPECT_EQ(ledger.parameters_touched_ever(), 84u);
  ledger.Reset();
  EXPECT_EQ(ledger.parameters_touched_ever(), 0u);
  EXPECT_EQ(ledger.parameters_touched(Phase::kDecode), 0u);
  EXPECT_EQ(ledger.bad_touches(), 0u);
  EXPECT_EQ(ledger.steps(Phase::kDecode), 0u);
  EXPECT_EQ(ledger.at(Phase::kDecode, kSite).ops, 0u);
  EXPECT_EQ(Step(ledger, {{0, 0, 3, 4}}), 6u);  // touched before the reset, and new all the same
  EXPECT_EQ(ledger.parameters_touched_ever(), 6u);
}

}  // namespace
}  // namespace tally
