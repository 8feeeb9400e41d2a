// SPDX-License-Identifier: Apache-2.0
// Bills of requests on real models: they add up to the ledger, and a request's FLOPs do not depend on its company.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/recipe/recipe.h"
#include "tests/goldens/checkpoints.h"
#include "tests/support/charges.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

constexpr size_t kPrompt = 9, kGenerated = 4;

EngineOptions CompanyOptions() {
  EngineOptions options = SmallOptions();
  options.sequences = 6;
  options.max_logit_rows = 8;
  return options;
}

// A prompt, and tokens that are taken for generated, of one sequence with one bill.
struct BilledRequest {
  int32_t sequence = 0, bill = kNoBill;
  std::vector<int32_t> tokens;
  size_t next = 0;

  bool done() const { return next == tokens.size(); }
  void Take(size_t rows, std::vector<BatchRow>& batch) {
    for (; rows > 0 && !done(); --rows, ++next) {
      batch.push_back({.token = tokens[next],
                       .sequence = sequence,
                       .want_logits = next + 1 >= kPrompt,
                       .generated = next >= kPrompt,
                       .bill = bill});
    }
  }
};

BilledRequest RequestOf(Engine& engine, int32_t seed) {
  BilledRequest request{.sequence = engine.NewSequence().value(), .bill = engine.ledger().OpenBill(), .tokens = {}};
  for (size_t i = 0; i < kPrompt + kGenerated; ++i) {
    request.tokens.push_back((seed * 31 + static_cast<int32_t>(i) * 17) % engine.model().recipe().vocab);
  }
  return request;
}

// What a request's own rows cost, whoever shares the weights with them.
void ExpectSameRows(const Bill& alone, const Bill& together) {
  for (const Phase p : {Phase::kPrefill, Phase::kDecode}) {
    const Cost &a = alone.at(p).useful, &b = together.at(p).useful;
    for (int c = 0; c < kWorkClasses; ++c) {
      for (int t = 0; t < kAriths; ++t) {
        EXPECT_EQ(a.Flops(static_cast<WorkClass>(c), static_cast<Arith>(t)),
                  b.Flops(static_cast<WorkClass>(c), static_cast<Arith>(t)));
      }
      EXPECT_EQ(a.Special(static_cast<WorkClass>(c)), b.Special(static_cast<WorkClass>(c)));
    }
    EXPECT_GT(a.TotalFlops(), 0u);
    EXPECT_EQ(a.Bytes(ByteKind::kKvRead), b.Bytes(ByteKind::kKvRead));
    EXPECT_EQ(a.Bytes(ByteKind::kKvWritten), b.Bytes(ByteKind::kKvWritten));
    EXPECT_EQ(a.Bytes(ByteKind::kActivationsWritten), b.Bytes(ByteKind::kActivationsWritten));
    EXPECT_EQ(alone.at(p).rows, together.at(p).rows);
    EXPECT_EQ(alone.at(p).logit_rows, together.at(p).logit_rows);
  }
  EXPECT_EQ(alone.parameters_touched(), together.parameters_touched());
}

class BillsOf : public testing::TestWithParam<std::string> {};

TEST_P(BillsOf, AddUpAndDoNotDependOnCompany) {
  const Opened alone = Open(GetParam(), CompanyOptions()), company = Open(GetParam(), CompanyOptions());
  ASSERT_TRUE(alone.engine != nullptr && company.engine != nullptr);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);

  std::vector<Bill> bills;
  for (int32_t i = 0; i < 3; ++i) {
    Engine& engine = *alone.engine;
    engine.ledger().Reset();
    BilledRequest request = RequestOf(engine, i);
    for (size_t rows = 7; !request.done(); rows = request.next < kPrompt ? kPrompt - request.next : 1) {
      std::vector<BatchRow> batch;
      request.Take(rows, batch);
      ASSERT_TRUE(engine.Step(batch).ok());
    }
    engine.Free(request.sequence);
    bills.push_back(engine.ledger().CloseBill(request.bill));
    // Alone it is charged with all there is.
    EXPECT_EQ(bills.back().total().useful, UsefulTotal(engine.ledger()));
    EXPECT_EQ(bills.back().parameters_touched(), engine.ledger().touched().parameters_ever());
    EXPECT_EQ(bills.back().at(Phase::kPrefill).rows, kPrompt);
    EXPECT_EQ(bills.back().at(Phase::kDecode).rows, kGenerated);
  }

  Engine& engine = *company.engine;
  std::vector<BilledRequest> requests;
  for (int32_t i = 0; i < 3; ++i) requests.push_back(RequestOf(engine, i));
  BilledRequest nobodys = RequestOf(engine, 5);  // its rows have no bill
  engine.ledger().CloseBill(nobodys.bill);
  nobodys.bill = kNoBill;
  const auto unfinished = [&] { return std::any_of(requests.begin(), requests.end(), [](const auto& r) { return !r.done(); }); };
  while (unfinished()) {
    std::vector<BatchRow> batch;
    for (BilledRequest* r : {&requests[1], &nobodys, &requests[0], &requests[2]}) r->Take(rng() % 3, batch);
    if (!batch.empty()) {
      ASSERT_TRUE(engine.Step(batch).ok());
    }
  }
  Cost sum = engine.ledger().unbilled();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    ExpectSameRows(bills[i], engine.ledger().bill(requests[i].bill));
    sum += engine.ledger().CloseBill(requests[i].bill).total().useful;
  }
  EXPECT_EQ(sum, UsefulTotal(engine.ledger()));
}

INSTANTIATE_TEST_SUITE_P(All, BillsOf, testing::ValuesIn(CheckpointsOfTheRepo()), CheckpointName);

const std::string kSharedExperts = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gptoss/gptoss-a-top4of8-realyarn";

// Of an expert's bytes a row pays its part of those that chose it, of all others a third: two rows of one token pay alike.
TEST(Bills, ExpertsArePaidByThoseWhoChooseThem) {
  const Opened opened = Open(kSharedExperts, CompanyOptions());
  ASSERT_NE(opened.engine, nullptr);
  Ledger& ledger = opened.engine->ledger();
  std::vector<BatchRow> rows;
  for (const int32_t token : {3, 3, 40}) {
    rows.push_back({.token = token,
                    .sequence = opened.engine->NewSequence().value(),
                    .want_logits = true,
                    .generated = true,
                    .bill = ledger.OpenBill()});
  }
  ASSERT_TRUE(opened.engine->Step(rows).ok());
  const uint64_t all = UsefulTotal(ledger).Bytes(ByteKind::kWeightsStored);
  double experts = 0;
  int alike = 0, different = 0;
  for (const WeightInfo& w : ledger.weights()) {
    const WeightId id = static_cast<WeightId>(&w - ledger.weights().data());
    for (uint32_t slice = 0; w.experts && slice < w.slices; ++slice) {
      if (ledger.touched().uses(id, slice) > 0) experts += static_cast<double>(w.stored_bytes) / w.slices;
    }
  }
  for (const BatchRow& row : rows) {
    const Bill& bill = ledger.bill(row.bill);
    double expected = (static_cast<double>(all) - experts) / 3;
    for (const WeightInfo& w : ledger.weights()) {
      const WeightId id = static_cast<WeightId>(&w - ledger.weights().data());
      for (uint32_t slice = 0; w.experts && slice < w.slices; ++slice) {
        if (bill.touched.ranges(id, slice).empty()) continue;
        const uint64_t uses = ledger.touched().uses(id, slice);
        ASSERT_GT(uses, 0u);
        expected += static_cast<double>(w.stored_bytes) / w.slices / static_cast<double>(uses);
        (uses == 2 ? alike : different) += 1;
      }
    }
    // Less than a byte for each slice and entry.
    EXPECT_NEAR(static_cast<double>(bill.total().useful.Bytes(ByteKind::kWeightsStored)), expected, 50);
  }
  EXPECT_GT(alike, 0);
  EXPECT_GT(different, 0);
  EXPECT_GT(experts, static_cast<double>(all) / 4);
}

// A fork's rows are its own; what it shares with its parent ran once, on the parent's bill.
TEST(Bills, ForksDraftsAndRowsThatRunAgain) {
  const Opened opened = Open(kSharedExperts, CompanyOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  Ledger& ledger = engine.ledger();
  BilledRequest parent = RequestOf(engine, 1);
  std::vector<BatchRow> batch;
  parent.Take(8, batch);
  ASSERT_TRUE(engine.Step(batch).ok());
  const int32_t fork = engine.Fork(parent.sequence, 6).value(), bill = ledger.OpenBill();
  // The parent's last prompt token, and a draft of two tokens, of which one is dropped; the fork's row runs again.
  batch.clear();
  parent.Take(1, batch);
  batch.push_back({.token = 1, .sequence = parent.sequence, .want_logits = true, .generated = true, .bill = parent.bill});
  batch.push_back({.token = 2, .sequence = parent.sequence, .want_logits = true, .generated = true, .bill = parent.bill});
  batch.push_back({.token = 3, .sequence = fork, .want_logits = true, .bill = bill, .again = true});
  ASSERT_TRUE(engine.Step(batch).ok());
  ASSERT_TRUE(engine.Truncate(parent.sequence, 10).ok());
  ledger.MarkInVain(parent.bill, Phase::kDecode, 1);
  EXPECT_EQ(ledger.bill(parent.bill).at(Phase::kPrefill).rows, 9u);
  EXPECT_EQ(ledger.bill(parent.bill).at(Phase::kDecode).rows, 2u);
  EXPECT_EQ(ledger.bill(parent.bill).at(Phase::kDecode).rows_in_vain, 1u);
  EXPECT_EQ(ledger.bill(parent.bill).total().rows_again, 0u);
  EXPECT_EQ(ledger.bill(bill).at(Phase::kPrefill).rows, 1u);
  EXPECT_EQ(ledger.bill(bill).at(Phase::kPrefill).rows_again, 1u);
  Cost sum = ledger.CloseBill(parent.bill).total().useful;
  sum += ledger.CloseBill(bill).total().useful;
  EXPECT_EQ(sum, UsefulTotal(ledger));
}

// Rows that fail are charged like those beside them, whose sequences go on or are taken back with theirs: the bills have what ran.
TEST(Bills, HoldWhatFailed) {
  const Opened opened = Open(kSharedExperts, CompanyOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  Ledger& ledger = engine.ledger();
  const BilledRequest a = RequestOf(engine, 1), b = RequestOf(engine, 2);
  const std::vector<BatchRow> rows = {
      {.token = 3, .sequence = b.sequence, .bill = b.bill},
      {.token = 5, .sequence = a.sequence, .want_logits = true, .generated = true, .bill = a.bill},
      {.token = 4, .sequence = b.sequence, .want_logits = true, .bill = b.bill}};
  // `steps` have run, and these rows of them in vain.
  const auto check = [&](uint64_t steps, uint64_t vain_a, uint64_t vain_b) {
    EXPECT_EQ(ledger.bill(a.bill).at(Phase::kDecode).rows, steps);
    EXPECT_EQ(ledger.bill(b.bill).at(Phase::kPrefill).rows, 2 * steps);
    EXPECT_EQ(ledger.bill(a.bill).at(Phase::kDecode).rows_in_vain, vain_a);
    EXPECT_EQ(ledger.bill(b.bill).at(Phase::kPrefill).rows_in_vain, vain_b);
    Cost sum = ledger.bill(a.bill).total().useful;
    sum += ledger.bill(b.bill).total().useful;
    EXPECT_EQ(sum, UsefulTotal(ledger));
  };
  // A tap may write: it is shown the engine's own buffers.
  const auto spoil = [&](Site where, float value) {
    engine.probe().SetTap([where, value](Site site, std::string_view, Mat<const float> out) {
      if (site == where && !out.empty()) const_cast<float*>(out.data)[0] = value;
    });
  };
  spoil({1, Component::kAttnK}, 1e30F);  // the first row is beyond the cache's type
  EXPECT_FALSE(engine.StepAll(rows).ok());
  check(1, 1, 2);
  spoil({-1, Component::kOutputNorm}, NAN);  // of the first row with logits
  const Result<StepOutput> out = engine.Step(rows);
  ASSERT_TRUE(out.ok());
  ASSERT_EQ(out->failed.size(), 1u);
  EXPECT_EQ(out->failed[0].sequence, a.sequence);
  check(2, 2, 2);
  engine.probe().SetTap(nullptr);
  ASSERT_TRUE(engine.StepAll(rows).ok());
  check(3, 2, 2);
}

TEST(Bills, ARowOfABillThatIsNotOpenIsRefused) {
  const Opened opened = Open(kSharedExperts, SmallOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const int32_t s = engine.NewSequence().value(), bill = engine.ledger().OpenBill();
  engine.ledger().CloseBill(bill);
  const Status status = engine.Step(std::vector<BatchRow>{{.token = 1, .sequence = s, .bill = bill}}).status();
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_EQ(status.message(), "no bill " + std::to_string(bill));
  EXPECT_EQ(engine.Length(s), 0);
}

}  // namespace
}  // namespace tally
