// SPDX-License-Identifier: Apache-2.0
// Bills against an account that is kept row by row, and their sums against the ledger.
#include "counters/ledger/bill.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/charges.h"

namespace tally {
namespace {

Cost SomeFlops(uint64_t n) {
  Cost cost;
  cost.AddFlops(WorkClass::kLinear, n, Arith::kInt8);
  return cost;
}
Cost WeightBytes(uint64_t n) {
  Cost cost;
  cost.AddBytes(ByteKind::kWeightsStored, n);
  cost.AddBytes(ByteKind::kWeightsPacked, 3 * n + 1);
  return cost;
}
CostAmounts RunOf(uint64_t rows) {
  CostAmounts n;
  n[Amount::kCalls] = n[Amount::kSlices] = 1;
  n[Amount::kRows] = rows;
  return n;
}

WeightTouch Chosen(uint32_t slice, const std::vector<int32_t>& rows) {
  return {.id = 2, .slice = slice, .row_end = 7, .uses = static_cast<uint32_t>(rows.size()), .rows = rows.data()};
}

TEST(Bills, TheRemainderGoesToTheFirstRows) {
  Ledger ledger;
  const uint32_t all =
      ledger.AddOp({{.site = {}, .units = {{Amount::kSlices, WeightBytes(11), {}}, {Amount::kRows, SomeFlops(10), {}}}}});
  const uint32_t head = ledger.AddOp({{.site = {}, .units = {{Amount::kSlices, WeightBytes(100), {}}}}}, true);
  const int32_t a = ledger.OpenBill(), b = ledger.OpenBill();
  // b has the first row and one with logits, a has three rows, the second in another phase, and one has no bill.
  ledger.BeginStep(std::vector<BookedRow>{{.phase = Phase::kDecode, .logits = true, .bill = b},
                                          {.phase = Phase::kPrefill, .bill = a},
                                          {.phase = Phase::kDecode, .logits = true, .bill = a},
                                          {.phase = Phase::kPrefill, .logits = true, .bill = a},
                                          {.phase = Phase::kPrefill}});
  ledger.Charge(all, RunOf(5));
  ledger.Charge(head, RunOf(3));
  EXPECT_EQ(ledger.bill(a).total().rows, 0u);  // until the step ends
  ledger.EndStep();
  const auto stored = [&](int32_t bill, Phase p) { return ledger.bill(bill).at(p).useful.Bytes(ByteKind::kWeightsStored); };
  const auto packed = [&](int32_t bill, Phase p) { return ledger.bill(bill).at(p).useful.Bytes(ByteKind::kWeightsPacked); };
  // 11 = 3 2 2 2 2 by rows, 100 = 34 33 33 by rows with logits.
  EXPECT_EQ(stored(b, Phase::kDecode), 3u + 34);
  EXPECT_EQ(stored(b, Phase::kPrefill), 0u);
  EXPECT_EQ(stored(a, Phase::kPrefill), 2u + 2 + 33);
  EXPECT_EQ(stored(a, Phase::kDecode), 2u + 33);
  EXPECT_EQ(ledger.unbilled().Bytes(ByteKind::kWeightsStored), 2u);
  // 34 = 7 7 7 7 6, 301 = 101 100 100.
  EXPECT_EQ(packed(b, Phase::kDecode), 7u + 101);
  EXPECT_EQ(packed(a, Phase::kPrefill), 7u + 7 + 100);
  EXPECT_EQ(packed(a, Phase::kDecode), 7u + 100);
  EXPECT_EQ(ledger.unbilled().Bytes(ByteKind::kWeightsPacked), 6u);
  EXPECT_EQ(ledger.bill(a).at(Phase::kPrefill).useful.TotalFlops(), 20u);
  EXPECT_EQ(ledger.bill(a).at(Phase::kPrefill).rows, 2u);
  EXPECT_EQ(ledger.bill(a).at(Phase::kPrefill).logit_rows, 1u);
  EXPECT_EQ(ledger.bill(a).at(Phase::kDecode).rows, 1u);
  EXPECT_EQ(ledger.bill(a).total().rows, 3u);
}

// What is left over of an expert's bytes is divided with those of all rows, once a step.
TEST(Bills, AnExpertIsDividedByTheRowsThatChoseIt) {
  Ledger ledger;
  const uint32_t experts = ledger.AddOp({{.site = {}, .units = {{Amount::kSlices, WeightBytes(100), {}}}}});
  const int32_t a = ledger.OpenBill(), b = ledger.OpenBill(), c = ledger.OpenBill();
  ledger.BeginStep(std::vector<BookedRow>{{.bill = a}, {.bill = b}, {.bill = c}});
  CostAmounts n = RunOf(6);
  n[Amount::kSlices] = 3;
  ledger.Charge(experts, n);
  const std::vector<int32_t> all = {0, 1, 2}, last = {2}, later = {1, 2};
  ledger.ChooseSlices(experts, std::vector<WeightTouch>{Chosen(5, all), Chosen(2, last), Chosen(4, later)});  // 33 each, 1 left
  ledger.EndStep();
  const auto stored = [&](int32_t bill) { return ledger.bill(bill).at(Phase::kPrefill).useful.Bytes(ByteKind::kWeightsStored); };
  EXPECT_EQ(stored(a), 33u + 1);
  EXPECT_EQ(stored(b), 33u + 50);
  EXPECT_EQ(stored(c), 33u + 100 + 50);
}

// Steps of random rows, bills and ops, with bills that come and go. Each row is accounted for by itself.
class RowByRow {
 public:
  explicit RowByRow(uint32_t seed) : rng_(seed) {
    for (uint32_t i = 0; i < 4; ++i) {
      Op op{.of_logits = i == 3, .routed = i == 2, .by_row = i == 1, .units = {}, .index = 0};
      std::vector<SiteCost> sites;
      for (uint32_t part = 0; part < 1 + Below(2); ++part) {
        SiteCost site{.site = {static_cast<int32_t>(part), Component::kHead}, .units = {}};
        for (size_t a = 0; a < kAmounts; ++a) {
          Cost useful = WeightBytes(Below(1000));
          useful += SomeFlops(Below(50));
          site.units.push_back({static_cast<Amount>(a), useful, SomeFlops(7)});
          op.units[a] += useful;
        }
        sites.push_back(site);
      }
      op.index = ledger_.AddOp(sites, op.of_logits);
      ops_.push_back(op);
    }
  }

  void Step() {
    if (Below(3) == 0 && open_.size() < 6) open_.push_back(ledger_.OpenBill());
    if (Below(5) == 0 && !open_.empty()) Close(Below(static_cast<uint32_t>(open_.size())));
    std::vector<BookedRow> rows(1 + Below(20));
    const bool bills = Below(6) != 0, alike = Below(3) == 0;
    for (BookedRow& row : rows) {
      row = {.phase = Below(2) == 0 ? Phase::kPrefill : Phase::kDecode, .logits = Below(3) == 0};
      if (bills && !open_.empty() && Below(4) != 0) row.bill = open_[Below(static_cast<uint32_t>(open_.size()))];
      if (alike) {
        row.phase = rows[0].phase;
        row.bill = rows[0].bill;
      }
    }
    ledger_.BeginStep(rows);
    cost_.assign(rows.size(), {});
    std::array<Cost, 2> shared;
    std::array<std::vector<size_t>, 2> of;
    for (size_t i = 0; i < rows.size(); ++i) {
      of[0].push_back(i);
      if (rows[i].logits) of[1].push_back(i);
    }
    const size_t ran = Below(10) == 0 ? Below(4) : 4;  // a step may fail before its last op
    for (size_t i = 0; i < ran; ++i) {
      if (!of[ops_[i].of_logits].empty()) Run(ops_[i], of[ops_[i].of_logits], shared[ops_[i].of_logits]);
    }
    ledger_.EndStep();
    for (size_t l = 0; l < 2; ++l) {
      shared[l].ForEachEntry([&](size_t entry, uint64_t value) {
        for (size_t i = 0; i < of[l].size(); ++i) {
          cost_[of[l][i]].AddEntry(entry, value / of[l].size() + (i < value % of[l].size() ? 1 : 0));
        }
      });
    }
    for (size_t i = 0; i < rows.size(); ++i) expected_[{rows[i].bill, rows[i].phase}] += cost_[i];
  }

  void Check() {
    Cost none = expected_[{kNoBill, Phase::kPrefill}];
    none += expected_[{kNoBill, Phase::kDecode}];
    ASSERT_EQ(ledger_.unbilled(), none);
    Cost sum = ledger_.unbilled();
    sum += closed_;
    for (const int32_t id : open_) {
      for (const Phase p : {Phase::kPrefill, Phase::kDecode}) {
        const Cost& expected = expected_[{id, p}];
        ASSERT_EQ(ledger_.bill(id).at(p).useful, expected);
      }
      sum += ledger_.bill(id).total().useful;
    }
    ASSERT_EQ(sum, UsefulTotal(ledger_));
  }

 private:
  struct Op {
    bool of_logits, routed, by_row;
    std::array<Cost, kAmounts> units;
    uint32_t index;
  };
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(rng_() % n); }

  void Close(size_t which) {
    const int32_t id = open_[which];
    open_.erase(open_.begin() + static_cast<int64_t>(which));
    closed_ += ledger_.CloseBill(id).total().useful;
    for (const Phase p : {Phase::kPrefill, Phase::kDecode}) expected_.erase({id, p});
  }

  void Run(const Op& op, const std::vector<size_t>& rows, Cost& shared) {
    CostAmounts n;
    n[Amount::kCalls] = 1;
    n[Amount::kSlices] = 1 + Below(3);
    n[Amount::kPanels] = Below(3);
    n[Amount::kRows] = rows.size() * (op.routed ? 2 : 1);
    std::vector<CostAmounts> groups(op.by_row ? ledger_.groups() : 0);
    for (size_t i = 0; i < rows.size(); ++i) {
      CostAmounts row;
      row[Amount::kRows] = op.routed ? 2 : 1;
      if (op.by_row) {
        for (const Amount a : {Amount::kVisible, Amount::kLanes}) {
          row[a] = Below(100);
          n[a] += row[a];
        }
        groups[ledger_.row_groups()[rows[i]]] += row;
      }
      for (size_t a = kFirstRowAmount; a < kAmounts; ++a) cost_[rows[i]].AddTimes(op.units[a], row[a]);
    }
    for (size_t a = 0; a < kFirstRowAmount; ++a) shared.AddTimes(op.units[a], n[a]);
    ledger_.Charge(op.index, n, ledger_.groups() > 1 ? groups : std::vector<CostAmounts>());
    if (!op.routed || !ledger_.billed()) return;
    for (uint64_t slice = 0; slice < n[Amount::kSlices]; ++slice) {
      std::vector<int32_t> users;
      for (uint32_t use = 0; use <= Below(5); ++use)
        users.push_back(static_cast<int32_t>(rows[Below(static_cast<uint32_t>(rows.size()))]));
      ledger_.ChooseSlices(op.index, std::vector<WeightTouch>{Chosen(0, users)});
      op.units[static_cast<size_t>(Amount::kSlices)].ForEachEntry([&](size_t entry, uint64_t value) {
        const uint64_t share = value / users.size();
        for (const int32_t row : users) cost_[static_cast<size_t>(row)].AddEntry(entry, share);
        shared.AddEntry(entry, -(share * users.size()));
      });
    }
  }

  std::mt19937 rng_;
  Ledger ledger_;
  std::vector<Op> ops_;
  std::vector<int32_t> open_;
  std::vector<Cost> cost_;  // of each row of the step
  std::map<std::pair<int32_t, Phase>, Cost> expected_;
  Cost closed_;
};

TEST(Bills, AgainstAnAccountOfEachRow) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RowByRow account(seed);
  for (int step = 0; step < 300; ++step) {
    account.Step();
    if (step % 3 == 0) account.Check();
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "step " << step;
  }
}

TEST(Bills, DraftedRowsThatAreNotAcceptedAreNamed) {
  Ledger ledger;
  const uint32_t all =
      ledger.AddOp({{.site = {}, .units = {{Amount::kSlices, WeightBytes(11), {}}, {Amount::kRows, SomeFlops(10), {}}}}});
  const int32_t a = ledger.OpenBill(), b = ledger.OpenBill();
  const auto row = [](int32_t bill, bool draft) {
    return BookedRow{.phase = Phase::kDecode, .logits = true, .bill = bill, .draft = draft};
  };
  const auto step = [&](const std::vector<BookedRow>& rows) {
    ledger.BeginStep(rows);
    ledger.Charge(all, RunOf(rows.size()));
    ledger.EndStep();
  };
  const auto stored = [](const Cost& cost) { return cost.Bytes(ByteKind::kWeightsStored); };
  step({row(a, false), row(a, true), row(a, true), row(b, false)});  // 11 = 3 3 3 2
  EXPECT_EQ(stored(ledger.bill(a).total().useful), 9u);
  EXPECT_EQ(ledger.bill(a).drafts.rows, 2u);
  EXPECT_EQ(ledger.bill(a).drafts.accepted + ledger.bill(a).drafts.rejected, 0u) << "undecided";
  ledger.SettleDrafts(a, 1);
  const DraftWork first = ledger.bill(a).drafts;
  EXPECT_EQ(first.accepted, 1u);
  EXPECT_EQ(first.rejected, 1u);
  EXPECT_EQ(stored(first.in_vain), 3u);
  EXPECT_EQ(first.in_vain.TotalFlops(), 10u);
  EXPECT_EQ(ledger.bill(a).total().rows_in_vain, 1u);
  EXPECT_EQ(ledger.bill(b).drafts.rows, 0u);
  EXPECT_EQ(stored(ledger.bill(b).total().useful), 2u);
  ledger.SettleDrafts(a, 1);  // nothing is left
  EXPECT_EQ(ledger.drafts().rejected, 1u);
  // A draft alone in its step; the next step begins before it is known what became of it. A draft without a bill is a row.
  step({row(a, true)});
  step({row(kNoBill, true), row(a, false)});
  EXPECT_EQ(ledger.bill(a).drafts.rejected, 2u);
  EXPECT_EQ(stored(ledger.bill(a).drafts.in_vain), 3u + 11);
  EXPECT_EQ(ledger.drafts().rows, 3u);
  // What ran before a reset is no longer the ledger's.
  step({row(a, false), row(a, true)});
  ledger.Reset();
  ledger.SettleDrafts(a, 1);
  EXPECT_EQ(ledger.drafts().accepted, 0u);
  const Bill closed = ledger.CloseBill(a);
  EXPECT_EQ(closed.drafts.accepted, 2u);
  EXPECT_EQ(closed.total().rows, 7u);
  EXPECT_EQ(closed.total().useful.TotalFlops(), 70u);
}

TEST(Bills, IdsAreUsedAgainAndOthersAreIgnored) {
  Ledger ledger;
  const uint32_t op = ledger.AddOp({{.site = {}, .units = {{Amount::kRows, SomeFlops(3), {}}}}});
  const int32_t a = ledger.OpenBill(), b = ledger.OpenBill();
  EXPECT_NE(a, b);
  ledger.BeginStep(std::vector<BookedRow>{{.again = true, .bill = a}, {.bill = 17}, {.bill = -5}});
  ledger.Charge(op, RunOf(3));
  ledger.EndStep();
  ledger.MarkInVain(a, Phase::kPrefill, 1);
  ledger.MarkInVain(17, Phase::kPrefill, 1);
  EXPECT_EQ(ledger.bill(a).at(Phase::kPrefill).rows_again, 1u);
  EXPECT_EQ(ledger.bill(a).total().rows_in_vain, 1u);
  EXPECT_EQ(ledger.bill(b).total().rows, 0u);
  EXPECT_EQ(ledger.bill(17).total().rows, 0u);
  EXPECT_EQ(ledger.unbilled().TotalFlops(), 6u);
  const Bill closed = ledger.CloseBill(a);
  EXPECT_EQ(closed.total().useful.TotalFlops(), 3u);
  EXPECT_FALSE(ledger.IsOpen(a));
  EXPECT_EQ(ledger.CloseBill(a).total().rows, 0u);
  EXPECT_EQ(ledger.OpenBill(), a);
  EXPECT_EQ(ledger.bill(a).total().rows, 0u);
  EXPECT_EQ(ledger.bill(a).total().rows_in_vain, 0u);
  EXPECT_NE(ledger.OpenBill(), b);
}

// A reset is of the engine's figures. A bill is its request's.
TEST(Bills, OutliveAReset) {
  for (const bool alone : {false, true}) {
    Ledger ledger;
    const uint32_t op = ledger.AddOp({{.site = {}, .units = {{Amount::kRows, SomeFlops(3), {}}}}});
    const int32_t a = ledger.OpenBill();
    for (int step = 0; step < 2; ++step) {
      ledger.BeginStep(std::vector<BookedRow>{{.bill = a}, {.bill = alone ? a : kNoBill}});
      ledger.Charge(op, RunOf(2));
      if (step == 1) ledger.Reset();  // from a tap, in the middle of a step
      ledger.Charge(op, RunOf(2));
      ledger.EndStep();
    }
    EXPECT_EQ(ledger.bill(a).total().useful.TotalFlops(), alone ? 24u : 12u);
    EXPECT_EQ(ledger.total(Phase::kPrefill).useful.TotalFlops(), 6u);
    ledger.SetWeights({});
    EXPECT_FALSE(ledger.IsOpen(a));
  }
}

std::vector<WeightInfo> Slices() {
  std::vector<WeightInfo> table;
  for (const auto& [slices, rows, cols] : {std::tuple{1, 40, 6}, {1, 13, 6}, {70, 7, 3}, {5, 1, 4}}) {
    WeightInfo w;
    w.slices = static_cast<uint32_t>(slices);
    w.rows = static_cast<uint64_t>(rows);
    w.cols = static_cast<uint64_t>(cols);
    table.push_back(w);
  }
  return table;
}

TEST(TouchUnion, AgainstABruteForceSet) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  auto below = [&](uint64_t n) { return static_cast<uint32_t>(rng() % n); };
  const std::vector<WeightInfo> table = Slices();
  using Row = std::tuple<uint32_t, uint32_t, uint64_t>;
  for (int round = 0; round < 20; ++round) {
    const auto slices = std::make_shared<WeightSlices>(table);
    TouchUnion sum(slices);
    std::set<Row> rows;
    for (int i = 0; i < 300; ++i) {
      WeightTouch t;
      t.id = below(4);
      t.slice = below(table[t.id].slices);
      const uint32_t n = static_cast<uint32_t>(table[t.id].rows);
      t.row_begin = below(20) == 0 ? 0 : below(n + 1);
      t.row_end = t.row_begin == 0 && below(2) == 0 ? n : t.row_begin + below(std::min(3u, n - t.row_begin) + 1);
      for (uint32_t r = t.row_begin; r < t.row_end; ++r) rows.insert({t.id, t.slice, r});
      sum.Touch(t);
    }
    sum.Touch({.id = 4, .row_end = 1});
    sum.Touch({.id = 1, .slice = 1, .row_end = 1});
    sum.Touch({.id = 1, .row_end = 14});
    uint64_t parameters = 0;
    std::vector<uint64_t> of(table.size());
    for (const Row& row : rows) of[std::get<0>(row)] += table[std::get<0>(row)].cols;
    for (WeightId id = 0; id < table.size(); ++id) {
      parameters += of[id];
      EXPECT_EQ(sum.touched(id), of[id]);
      for (uint32_t slice = 0; slice < table[id].slices; ++slice) {
        std::set<Row> named;
        for (const RowRange& range : sum.ranges(id, slice)) {
          for (uint64_t r = range.begin; r < range.end; ++r) EXPECT_TRUE(named.insert({id, slice, r}).second);
        }
        std::set<Row> expected;
        for (const Row& row : rows) {
          if (std::get<0>(row) == id && std::get<1>(row) == slice) expected.insert(row);
        }
        EXPECT_EQ(named, expected);
      }
    }
    EXPECT_EQ(sum.parameters(), parameters);
    EXPECT_EQ(sum.touched(4), 0u);
  }
  EXPECT_EQ(Bill().parameters_touched(), 0u);
}

TEST(Bills, TouchWhatTheirRowsTouch) {
  Ledger ledger;
  ledger.SetWeights(Slices());
  const uint32_t op = ledger.AddOp({}, false, {{.id = 1, .row_end = 13}});
  const uint32_t head = ledger.AddOp({}, true, {{.id = 0, .row_end = 40}});
  const uint32_t experts = ledger.AddOp({}, false, {{.id = 2, .row_end = 7}}, true);
  const int32_t a = ledger.OpenBill(), b = ledger.OpenBill();
  ledger.BeginStep(std::vector<BookedRow>{{.bill = a}, {.logits = true, .bill = b}, {}});
  ledger.Charge(op, RunOf(3));
  ledger.Charge(head, RunOf(1));
  ledger.Charge(experts, RunOf(4));
  const std::vector<int32_t> later = {1, 2}, last = {2}, first = {0};
  ledger.ChooseSlices(experts, std::vector<WeightTouch>{Chosen(9, later), Chosen(8, last), Chosen(70, first)});  // there is no 70
  ledger.TouchForRow(0, {.id = 0, .row_begin = 3, .row_end = 4});
  ledger.TouchForRow(0, {.id = 9, .row_end = 7});
  EXPECT_EQ(ledger.last_step().parameters_touched, 0u);  // Touch is apart
  ledger.EndStep();
  EXPECT_EQ(ledger.bill(a).parameters_touched(), 78u + 6);
  EXPECT_EQ(ledger.bill(b).parameters_touched(), 78u + 240 + 21);
  EXPECT_EQ(ledger.bill(b).touched.ranges(2, 9), (std::vector<RowRange>{{0, 7}}));
}

}  // namespace
}  // namespace tally
