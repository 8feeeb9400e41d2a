#include "counters/ledger/ledger.h"

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

void GiveSlices(Ledger& ledger, Ledger::TariffId id, const std::vector<SliceUse>& slices) {
  ledger.slices().insert(ledger.slices().end(), slices.begin(), slices.end());
  ledger.GiveSlices(id);
}

uint64_t Step(Ledger& ledger, const WeightTouches& touches, Phase phase = Phase::kDecode) {
  ledger.BeginStep(phase, 1, 1);
  ledger.Charge(kSite, {}, {}, touches);
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
  EXPECT_EQ(ledger.ranges_last(7, 0), Ranges());
  Step(ledger, {{0, 0, 4, 5}, {2, 3, 0, 2}, {2, 3, 2, 7}});  // the step before is forgotten; pieces make a whole
  EXPECT_EQ(ledger.ranges_last(0, 0), (Ranges{{4, 5}}));
  EXPECT_EQ(ledger.ranges_last(2, 1), Ranges());
  EXPECT_EQ(ledger.ranges_last(2, 3), (Ranges{{0, 7}}));
  Step(ledger, {{0, 0, 4, 5}, {0, 0, 0, 40}, {3, 0, 0, 1}});
  EXPECT_EQ(ledger.ranges_last(0, 0), (Ranges{{0, 40}}));
  EXPECT_EQ(ledger.ranges_last(3, 0), (Ranges{{0, 1}}));
}

// Two ledgers that are charged alike, one with tariffs wherever that can be, say the same of everything.
class Tariffs : public testing::TestWithParam<int> {
 protected:
  enum Kind { kFixed, kLinear, kBySlice, kByRow, kKinds };
  struct Op {
    Kind kind = kFixed;
    Site site;
    std::vector<Ledger::UnitCost> units;
    WeightTouches touches;
    Ledger::TariffId tariff;
  };

  Tariffs() : seed_(GetParam() == 0 ? 7 : std::random_device{}()), random_(seed_) {
    plain_.SetWeights(Table());
    short_.SetWeights(Table());
  }
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  Op NewOp() {
    Op op;
    op.kind = static_cast<Kind>(Below(kKinds));
    op.site = {static_cast<int32_t>(Below(3)) - 1, Below(2) == 0 ? Component::kFfnGateUp : Component::kHead};
    for (size_t i = 0; i < (op.kind == kLinear ? kCostAmounts : 1); ++i) {
      op.units.push_back({OneOf(static_cast<WorkClass>(Below(kWorkClasses)), Below(100)), OneOf(WorkClass::kLinear, Below(100))});
    }
    if (op.kind == kBySlice) {
      const WeightTouches weights[] = {
          {{2, 0, 0, 7}}, {{4, 0, 0, 4}, {5, 0, 0, 1}}, {{6, 0, 0, 2}}, {{2, 0, 1, 7}, {2, 0, 0, 3}}};
      op.touches = weights[Below(Below(6) == 0 ? 4 : 3)];
    } else if (op.kind != kByRow) {
      const WeightTouches some = {{1, 0, 0, 13}, {3, 0, 0, 1}, {1, 0, 2, 9}, {0, 0, 0, 40},
                                  {0, 0, 4, 5},  {2, 3, 0, 7}, {9, 0, 0, 1}};
      for (uint32_t n = Below(3); n > 0; --n) op.touches.push_back(some[Below(Below(9) == 0 ? 7 : 4)]);
    }
    return op;
  }

  // The same op, with data of its own, in both ledgers.
  void Charge(Op& op) {
    CostAmounts amounts{};
    std::vector<SliceUse> slices;
    WeightTouches rows;
    Cost useful = op.units[0].useful, executed = op.units[0].executed;
    WeightTouches touches = op.touches;
    if (op.kind == kLinear) {
      useful = executed = {};
      for (size_t i = 0; i < kCostAmounts; ++i) {
        amounts[i] = Below(5);
        useful.AddTimes(op.units[i].useful, amounts[i]);
        executed.AddTimes(op.units[i].executed, amounts[i]);
      }
    } else if (op.kind == kBySlice) {
      touches.clear();
      const bool usual = all_alike_ || Below(10) > 0;  // slices in order, and that there are
      const uint32_t of = op.touches[0].id == 2 ? 5 : 70;
      for (uint32_t s = 0; s < of; ++s) {
        if (Below(of / 2) == 0) slices.push_back({usual ? s : Below(of + 1), 1 + Below(4)});
      }
      for (const SliceUse& use : slices) {
        for (WeightTouch t : op.touches) {
          t.slice = use.slice;
          t.uses = use.uses;
          touches.push_back(t);
        }
      }
    } else if (op.kind == kByRow) {
      for (uint32_t n = !all_alike_ && Below(12) == 0 ? 6 : 1; n > 0; --n) {
        const uint32_t id = all_alike_       ? 0
                            : Below(20) == 0 ? 9
                            : Below(15) == 0 ? 1
                                             : 0,
                       row = Below(id == 0 ? 40 + !all_alike_ : 13);
        rows.push_back({id, 0, row, row + 1});
      }
      touches = rows;
    }
    plain_.Charge(op.site, useful, executed, touches);
    if (all_alike_ ? false : Below(9) == 0) return short_.Charge(op.site, useful, executed, touches);
    const auto again = [&] {
      const bool known = op.tariff.generation() == short_.tariff_generation();
      if (op.kind == kLinear) short_.GiveAmounts(op.tariff, amounts);
      if (op.kind == kBySlice) {
        GiveSlices(short_, op.tariff, slices);
      }
      if (op.kind == kByRow && known) short_.touches().insert(short_.touches().end(), rows.begin(), rows.end());
      return short_.Charge(op.tariff);
    };
    if (again()) {
      ++again_;
      return;
    }
    op.tariff = short_.AddTariff({.site = op.site, .units = op.units, .touches = op.touches, .by_slice = op.kind == kBySlice});
    ASSERT_TRUE(again());
  }

  void ExpectSameAccount(const Account& a, const Account& b) {
    EXPECT_EQ(a.useful, b.useful);
    EXPECT_EQ(a.executed, b.executed);
    EXPECT_EQ(a.ops, b.ops);
  }
  void ExpectSameStep() {
    ExpectSameAccount(short_.last_step().account, plain_.last_step().account);
    EXPECT_EQ(short_.last_step().parameters_touched, plain_.last_step().parameters_touched);
    EXPECT_EQ(short_.last_step().phase, plain_.last_step().phase);
    for (WeightId id = 0; id < 8; ++id) {
      EXPECT_EQ(short_.touched_last(id), plain_.touched_last(id));
      EXPECT_EQ(short_.slices_last(id), plain_.slices_last(id));
      for (uint32_t slice = 0; slice < 71; ++slice) {
        EXPECT_EQ(short_.uses_last(id, slice), plain_.uses_last(id, slice));
        EXPECT_EQ(short_.ranges_last(id, slice), plain_.ranges_last(id, slice));
      }
    }
  }
  void ExpectSame() {
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      ExpectSameAccount(short_.total(phase), plain_.total(phase));
      EXPECT_EQ(short_.steps(phase), plain_.steps(phase));
      EXPECT_EQ(short_.rows(phase), plain_.rows(phase));
      EXPECT_EQ(short_.parameters_touched(phase), plain_.parameters_touched(phase));
      for (int32_t layer = -2; layer < 3; ++layer) {
        for (const Component c : {Component::kFfnGateUp, Component::kHead, Component::kRouter}) {
          ExpectSameAccount(short_.at(phase, {layer, c}), plain_.at(phase, {layer, c}));
        }
      }
    }
    EXPECT_EQ(short_.parameters_touched_ever(), plain_.parameters_touched_ever());
    EXPECT_EQ(short_.bad_touches(), plain_.bad_touches());
  }

  uint32_t seed_;
  std::mt19937 random_;
  Ledger plain_, short_;
  uint64_t again_ = 0;
  bool all_alike_ = false;  // only the data of the ops differ, and that not wildly
};

TEST_P(Tariffs, KeepTheBooksThatChargesKeep) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  std::vector<Op> ops(6);
  Phase phase = Phase::kDecode;
  for (int step = 0; step < 3000 && !HasFailure(); ++step) {
    if (step % 40 == 0) {  // another model
      for (Op& op : ops) op = NewOp();
    }
    if (Below(7) == 0) ops[Below(6)] = NewOp();  // another op at its place
    if (Below(10) == 0) phase = phase == Phase::kDecode ? Phase::kPrefill : Phase::kDecode;
    const uint32_t first = Below(10) == 0 ? Below(6) : 0, last = Below(10) == 0 ? Below(7) : 6;  // or an error ends the step
    plain_.BeginStep(phase, 1 + step % 3, 1);
    short_.BeginStep(phase, 1 + step % 3, 1);
    const bool seen = step / 300 % 2 == 0, read = seen && Below(20) == 0;  // or many steps come together
    for (uint32_t i = first; i < last; ++i) {
      Charge(ops[i]);
      if (Below(15) == 0) Charge(ops[i]);  // twice in a step
      if (read && Below(2) == 0) ExpectSameStep();
      if (read) ExpectSame();
    }
    if (Below(30) > 0) {  // or the next step ends it
      plain_.EndStep();
      short_.EndStep();
      if (Below(seen ? 3 : 100) == 0) ExpectSameStep();
      if (seen) {
        EXPECT_EQ(short_.last_step().parameters_touched, plain_.last_step().parameters_touched) << "step " << step;
      }
      if (Below(seen ? 8 : 100) == 0) ExpectSame();
    }
    if (Below(400) == 0) {
      plain_.Reset();
      short_.Reset();
      plain_.BeginStep(phase, 0, 0);
      short_.BeginStep(phase, 0, 0);
      for (const Op& op : ops) EXPECT_FALSE(short_.Charge(op.tariff)) << "forgotten";
    }
  }
  ExpectSame();
  EXPECT_GT(again_, 8000u);
}

// Steps that are all alike, which is what tariffs are for: nothing is looked at until the end.
TEST_P(Tariffs, AreReckonedUpOnceForManySteps) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  all_alike_ = true;
  std::vector<Op> ops(7);
  const auto cost = [](uint64_t flops) {
    return std::vector<Ledger::UnitCost>{{OneOf(WorkClass::kLinear, flops), OneOf(WorkClass::kNorm, flops + 1)}};
  };
  const Site head{-1, Component::kHead}, up{0, Component::kFfnGateUp}, down{1, Component::kFfnGateUp};
  ops[0] = {kByRow, head, cost(3), {}, {}};
  ops[1] = {kFixed, up, cost(5), {{1, 0, 0, 13}}, {}};
  ops[2] = {kLinear, {0, Component::kHead}, std::vector<Ledger::UnitCost>(kCostAmounts, cost(2)[0]), {{3, 0, 0, 1}}, {}};
  ops[3] = {kBySlice, up, cost(9), {{2, 0, 0, 7}}, {}};
  ops[4] = {kBySlice, down, cost(4), {{4, 0, 0, 4}, {5, 0, 0, 1}}, {}};
  ops[5] = {kBySlice, down, cost(8), {{6, 0, 0, 2}}, {}};
  ops[6] = {kFixed, head, cost(1), {}, {}};
  for (int step = 0; step < 5000; ++step) {
    const Phase phase = step / 1000 % 2 == 0 ? Phase::kDecode : Phase::kPrefill;
    plain_.BeginStep(phase, 1, 1);
    short_.BeginStep(phase, 1, 1);
    for (Op& op : ops) {
      if (step / 500 == 8 && step % 50 == 0) ExpectSameStep();
      Charge(op);
    }
    plain_.EndStep();
    short_.EndStep();
    if (step / 500 == 8 && step % 50 == 0) ExpectSameStep();
    if (step % 64 == 63 && step > 4500) ExpectSameStep();  // far enough apart to be at the same place of another log
    if (step == 3210) ExpectSame();
  }
  EXPECT_EQ(again_, 5000u * 7 - 7);
  Ledger copy = short_;
  ExpectSameStep();
  ExpectSame();
  EXPECT_EQ(copy.total(Phase::kDecode).useful, plain_.total(Phase::kDecode).useful);
  EXPECT_EQ(copy.parameters_touched_ever(), plain_.parameters_touched_ever());
}

// What is given out of order is taken all the same. What is given and not charged, or the reverse, is one defect a step.
TEST(Ledger, WhatIsGivenToTheWrongTariff) {
  Ledger ledger;
  ledger.SetWeights(Table());
  const auto a = ledger.AddTariff({.site = kSite, .units = {{}}, .touches = {{4, 0, 0, 4}}, .by_slice = true});
  const auto b = ledger.AddTariff({.site = kSite, .units = {{}}, .touches = {{6, 0, 0, 2}}, .by_slice = true});
  const auto fixed = ledger.AddTariff({.site = kSite, .units = {}, .touches = {{1, 0, 0, 13}}});
  const auto linear = ledger.AddTariff({.site = kSite, .units = {{OneOf(WorkClass::kRope, 1), {}}, {}}});
  const auto other = ledger.AddTariff({.site = kSite, .units = {{OneOf(WorkClass::kRope, 10), {}}, {}}});
  const auto give = [&](Ledger::TariffId id, std::vector<SliceUse> given) { GiveSlices(ledger, id, given); };
  const auto step = [&](auto charge) {
    const uint64_t bad = ledger.bad_touches();
    ledger.BeginStep(Phase::kDecode, 1, 1);
    charge();
    ledger.EndStep();
    return ledger.bad_touches() - bad;
  };
  for (int i = 0; i < 4; ++i) {  // from the third on it is a routine
    EXPECT_EQ(step([&] {
                give(i < 3 ? a : b, {{0, 1}});
                ledger.GiveAmounts(i < 2 ? linear : other, {i < 2 ? 2u : 3u});
                give(i < 3 ? b : a, {{0, 1}, {1, 1}});
                ledger.GiveAmounts(i < 2 ? other : linear, {i < 2 ? 3u : 2u});
                EXPECT_TRUE(ledger.Charge(a, 5));
              }),
              0u);
    EXPECT_EQ(ledger.last_step().parameters_touched, 78u + (i < 3 ? 12 + 20 : 10 + 24));
    EXPECT_EQ(ledger.last_step().account.useful.Flops(WorkClass::kRope), 32u);
  }
  EXPECT_EQ(ledger.total(Phase::kDecode).useful.Flops(WorkClass::kRope), 4 * 32u);
  EXPECT_EQ(ledger.total(Phase::kDecode).ops, 4 * 5u);
  EXPECT_EQ(ledger.parameters_touched_ever(), 78u + 24 + 20);

  EXPECT_EQ(step([&] { ledger.slices().push_back({3, 1}); }), 0u) << "slices of nobody";
  EXPECT_EQ(step([&] {
              give(a, {{1, 1}});
              EXPECT_TRUE(ledger.Charge(a));
            }),
            0u);
  EXPECT_EQ(ledger.last_step().parameters_touched, 12u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(step([&] { give(fixed, {{0, 1}}); }), 1u) << "slices without a charge";
    EXPECT_EQ(ledger.last_step().parameters_touched, 0u);
    EXPECT_EQ(step([&] { give(a, {{0, 1}}); }), 1u);
    EXPECT_EQ(step([&] { EXPECT_TRUE(ledger.Charge(a)); }), 1u) << "a charge without slices";
    EXPECT_EQ(step([&] { ledger.GiveAmounts(linear, {1}); }), 1u) << "amounts without a charge";
    EXPECT_EQ(step([&] {
                ledger.GiveAmounts(fixed, {1, 2, 3, 4, 5});
                EXPECT_TRUE(ledger.Charge(fixed));
              }),
              1u)
        << "amounts that the tariff has not";
    EXPECT_EQ(step([&] { EXPECT_TRUE(ledger.Charge(linear)); }), 1u) << "a charge without amounts";
    EXPECT_EQ(step([&] {
                ledger.GiveAmounts(linear, {1});
                ledger.GiveAmounts(linear, {2});
                EXPECT_TRUE(ledger.Charge(linear));
              }),
              1u)
        << "once too often";
  }
}

// Routines whose steps are not the sum of what their charges touch, and what is touched by one of its later steps alone.
TEST(Ledger, RoutinesThatAreNotPlain) {
  const auto steps = [](WeightTouches fixed, std::vector<SliceUse> slices, bool sliced_first = true) {
    Ledger ledger;
    ledger.SetWeights(Table());
    Ledger::TariffId ids[2];
    const Ledger::Tariff by_slice{.site = kSite, .units = {}, .touches = {{2, 0, 0, 7}}, .by_slice = true};
    const Ledger::Tariff whole{.site = kSite, .units = {}, .touches = fixed};
    ids[0] = ledger.AddTariff(sliced_first ? by_slice : whole);
    ids[1] = ledger.AddTariff(sliced_first ? whole : by_slice);
    for (int step = 0; step < 4; ++step) {
      ledger.BeginStep(Phase::kDecode, 1, 1);
      GiveSlices(ledger, ids[sliced_first ? 0 : 1], slices);
      EXPECT_TRUE(ledger.Charge(ids[0], 2));
      ledger.EndStep();
    }
    EXPECT_EQ(ledger.parameters_touched(Phase::kDecode), 4 * ledger.last_step().parameters_touched);
    EXPECT_EQ(ledger.parameters_touched_ever(), ledger.last_step().parameters_touched);
    return std::pair(ledger.last_step().parameters_touched, ledger.bad_touches());
  };
  using Result = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(steps({{1, 0, 0, 13}}, {{0, 1}, {3, 1}}), Result(78 + 42, 0));
  EXPECT_EQ(steps({{1, 0, 0, 13}}, {{3, 1}, {3, 2}}), Result(78 + 21, 0));  // a slice twice
  EXPECT_EQ(steps({{1, 0, 0, 13}}, {{3, 1}, {0, 2}}), Result(78 + 42, 0));  // in any order
  EXPECT_EQ(steps({{1, 0, 0, 13}}, {{5, 1}}), Result(78, 4));               // no such slice
  for (const bool sliced_first : {true, false}) {
    EXPECT_EQ(steps({{2, 3, 0, 7}}, {{3, 1}}, sliced_first), Result(21, 0));  // touched either way
  }
  EXPECT_EQ(steps({{1, 0, 0, 14}}, {{0, 1}}), Result(21, 4));  // no such row
  EXPECT_EQ(steps({{1, 0, 2, 5}, {1, 0, 4, 6}}, {{0, 1}}), Result(24 + 21, 0));
}

TEST(Ledger, MoreTariffsThanAreKept) {
  Ledger ledger;
  ledger.SetWeights(Table());
  const auto routine = ledger.AddTariff({.site = kSite, .units = {}, .touches = {{2, 0, 0, 7}}, .by_slice = true});
  for (const uint32_t slice : {0, 0, 0, 4}) {
    ledger.BeginStep(Phase::kDecode, 1, 0);
    GiveSlices(ledger, routine, {{slice, 1}});
    ASSERT_TRUE(ledger.Charge(routine));
    ledger.EndStep();
  }
  std::vector<Ledger::TariffId> first;
  constexpr uint32_t kSteps = 10'000;
  for (uint32_t step = 0; step < kSteps; ++step) {
    ledger.BeginStep(Phase::kPrefill, 1, 0);
    const auto by_slice = ledger.AddTariff(
        {.site = kSite, .units = {{OneOf(WorkClass::kLinear, step), {}}}, .touches = {{2, 0, 0, 7}}, .by_slice = true});
    const auto linear =
        ledger.AddTariff({.site = kSite, .units = {{OneOf(WorkClass::kRope, 1), {}}, {OneOf(WorkClass::kRope, step), {}}}});
    GiveSlices(ledger, by_slice, {{step % 4, 2}});
    ledger.GiveAmounts(linear, {3, 1});
    ASSERT_TRUE(ledger.Charge(by_slice, 2));
    if (step == 0) first = {by_slice, linear};
    ledger.EndStep();
    ASSERT_EQ(ledger.last_step().account.useful.Flops(WorkClass::kLinear), step);
    ASSERT_EQ(ledger.last_step().account.useful.Flops(WorkClass::kRope), 3 + step);
    ASSERT_EQ(ledger.uses_last(2, step % 4), 2u);
  }
  const uint64_t sum = uint64_t{kSteps} * (kSteps - 1) / 2;
  EXPECT_EQ(ledger.total(Phase::kPrefill).useful.Flops(WorkClass::kLinear), sum);
  EXPECT_EQ(ledger.total(Phase::kPrefill).useful.Flops(WorkClass::kRope), sum + 3 * kSteps);
  EXPECT_EQ(ledger.parameters_touched(Phase::kPrefill), kSteps * 21u);
  EXPECT_EQ(ledger.parameters_touched_ever(), 5u * 21);
  ledger.BeginStep(Phase::kPrefill, 1, 0);
  for (const Ledger::TariffId id : first) EXPECT_FALSE(ledger.Charge(id));
}

// Rows of one weight twice in a step: not as simple as a routine could be, step after step.
TEST(Ledger, TwoRowsOfAWeight) {
  Ledger ledger;
  ledger.SetWeights(Table());
  const auto tariff = ledger.AddTariff({.site = kSite, .units = {}, .touches = {{1, 0, 0, 13}}});
  for (uint32_t step = 0; step < 3000; ++step) {
    ledger.BeginStep(Phase::kDecode, 2, 2);
    for (const uint32_t row : {step % 10, step % 10 + 20}) ledger.touches().push_back({0, 0, row, row + 1});
    ASSERT_TRUE(ledger.Charge(tariff));
    ledger.EndStep();
  }
  EXPECT_EQ(ledger.parameters_touched(Phase::kDecode), 3000u * (78 + 12));
  EXPECT_EQ(ledger.parameters_touched_ever(), 78u + 20 * 6);
  EXPECT_EQ(ledger.bad_touches(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ledger, Tariffs, testing::Values(0, 1));

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
      ledger.Charge(kSite, {}, {}, touches);
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
      ledger.Charge({layer, Component::kRope}, OneOf(WorkClass::kRope, n), OneOf(WorkClass::kRope, 2 * n), {});
      ledger.Charge({layer, Component::kHead}, OneOf(WorkClass::kLinear, 1), OneOf(WorkClass::kLinear, 1), {});
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
  ledger.Charge({9, Component::kAttention}, OneOf(WorkClass::kAttention, 3), {}, {});
  ledger.EndStep();
  EXPECT_EQ(ledger.at(Phase::kDecode, {9, Component::kAttention}).useful.TotalFlops(), 3u);
}

TEST(Ledger, TheStepUnderWay) {
  Ledger ledger;
  ledger.SetWeights(Table());
  const auto tariff =
      ledger.AddTariff({.site = kSite, .units = {{OneOf(WorkClass::kLinear, 7), {}}}, .touches = {{1, 0, 0, 13}}});
  for (uint64_t step = 1; step < 5; ++step) {
    ledger.BeginStep(Phase::kDecode, 1, 1);
    EXPECT_EQ(ledger.last_step().parameters_touched, 0u);
    EXPECT_EQ(ledger.last_step().account.ops, 0u);
    EXPECT_TRUE(ledger.Charge(tariff));
    EXPECT_EQ(ledger.last_step().parameters_touched, 78u);
    EXPECT_EQ(ledger.last_step().account.useful.TotalFlops(), 7u);
    EXPECT_EQ(ledger.total(Phase::kDecode).useful.TotalFlops(), 10 * step - 3);
    EXPECT_EQ(ledger.steps(Phase::kDecode), step - 1);
    ledger.Charge(kSite, OneOf(WorkClass::kLinear, 3), {}, std::vector<WeightTouch>{{3, 0, 0, 1}});
    EXPECT_EQ(ledger.last_step().parameters_touched, 84u);
    EXPECT_EQ(ledger.touched_last(3), 6u);
    EXPECT_EQ(ledger.last_step().account.useful.TotalFlops(), 10u);
    ledger.EndStep();
    EXPECT_EQ(ledger.last_step().parameters_touched, 84u);
    EXPECT_EQ(ledger.steps(Phase::kDecode), step);
    ledger.BeginStep(Phase::kPrefill, 2, 1);  // nothing but the phase
    EXPECT_EQ(ledger.total(Phase::kPrefill).ops, 0u);
    EXPECT_EQ(ledger.total(Phase::kDecode).useful.TotalFlops(), 10 * step);
    ledger.EndStep();
    EXPECT_EQ(ledger.last_step().parameters_touched, 0u);
  }
}

TEST(Ledger, AStepLeftOpenStaysCharged) {
  Ledger ledger;
  ledger.BeginStep(Phase::kDecode, 1, 1);
  ledger.Charge(kSite, OneOf(WorkClass::kLinear, 7), {}, {});
  ledger.BeginStep(Phase::kDecode, 1, 1);
  ledger.Charge(kSite, OneOf(WorkClass::kLinear, 4), {}, {});
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
  EXPECT_EQ(Step(ledger, {{kNoWeight, 0, 0, 1}, {7, 0, 0, 1}, {2, 5, 0, 1}, {1, 0, 0, 14}, {1, 0, 5, 2}}), 0u);
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
