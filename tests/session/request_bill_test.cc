// SPDX-License-Identifier: Apache-2.0
// The bills of requests that a scheduler runs: with what ran without a bill they are the ledger, whatever becomes of the requests.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/session/output_stream.h"
#include "engine/session/scheduler.h"
#include "tests/support/charges.h"
#include "tests/support/goldens.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

using RequestsToBill = std::vector<std::shared_ptr<Request>>;

const std::string kSharedExperts = kGoldens + "gptoss/gptoss-a-top4of8-realyarn";

EngineOptions ManyOptions() {
  EngineOptions options;
  options.threads = 2;
  options.context = 512;
  options.max_batch = 24;
  options.sequences = 8;
  options.max_logit_rows = 8;
  return options;
}

std::vector<int32_t> PromptOf(const Engine& engine, size_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt(tokens);
  for (int32_t& t : prompt) t = static_cast<int32_t>(random() % static_cast<uint32_t>(engine.model().recipe().vocab));
  return prompt;
}

std::shared_ptr<Request> RequestToBill(const Engine& engine, std::vector<int32_t> prompt, int64_t tokens,
                                       std::optional<std::string> prefix_key = {}) {
  const RequestOptions options = {.max_tokens = tokens, .ignore_eos = true, .prefix_key = std::move(prefix_key)};
  return std::make_shared<Request>(engine, std::move(prompt), options, NewTextStream(nullptr, false, {}));
}

uint64_t RowsOf(const Ledger& ledger) { return ledger.rows(Phase::kPrefill) + ledger.rows(Phase::kDecode); }

// All requests have ended. `rows`: that ran without a bill.
void ExpectTheLedger(Ledger& ledger, const RequestsToBill& requests, uint64_t rows) {
  Cost sum = ledger.unbilled();
  for (const auto& request : requests) {
    sum += request->result().bill.total().useful;
    rows += request->result().bill.total().rows;
  }
  EXPECT_EQ(sum, UsefulTotal(ledger));
  EXPECT_EQ(rows, RowsOf(ledger));
  for (int32_t id = 0; id < 20; ++id) EXPECT_FALSE(ledger.IsOpen(id));
}

// Rows that a request has once: its prompt, and what it drew but for the last token.
void ExpectOnce(const Request& request) {
  const Bill& bill = request.result().bill;
  EXPECT_EQ(bill.at(Phase::kPrefill).rows - bill.at(Phase::kPrefill).rows_again,
            static_cast<uint64_t>(request.result().prompt_tokens));
  EXPECT_EQ(bill.at(Phase::kDecode).rows - bill.at(Phase::kDecode).rows_again,
            static_cast<uint64_t>(request.result().decode_tokens));
  EXPECT_TRUE(bill.total().rows_again == 0 || request.preemptions() > 0);
  EXPECT_GT(bill.parameters_touched(), 0u);
}

TEST(RequestBills, AddUpToTheLedger) {
  EngineOptions options = ManyOptions();
  {
    const Opened whole = Open(kSharedExperts, options);
    ASSERT_NE(whole.engine, nullptr);
    options.kv_bytes = whole.engine->memory_plan().kv / 4;
  }
  const Opened opened = Open(kSharedExperts, options);
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  // What two prompts begin with has run without a bill.
  const std::vector<int32_t> shared = PromptOf(engine, 20, 1);
  const int32_t parent = engine.NewSequence().value();
  std::vector<BatchRow> rows;
  for (const int32_t token : shared) rows.push_back({.token = token, .sequence = parent});
  ASSERT_TRUE(engine.Step(rows).ok());
  engine.Remember(parent, "", shared, 2);

  Scheduler scheduler(engine);
  RequestsToBill requests;
  const auto add = [&](std::vector<int32_t> prompt, int64_t tokens, std::optional<std::string> prefix_key = {}) {
    scheduler.Add(requests.emplace_back(RequestToBill(engine, std::move(prompt), tokens, std::move(prefix_key))));
  };
  for (uint32_t i = 0; i < 2; ++i) {
    std::vector<int32_t> prompt = shared;
    for (const int32_t token : PromptOf(engine, 5, 2 + i)) prompt.push_back(token);
    add(prompt, 12, "");
  }
  add(PromptOf(engine, 90, 4), 60);
  add(PromptOf(engine, 3, 5), 60);
  add(PromptOf(engine, 110, 6), 60);
  add(PromptOf(engine, 100, 7), 60);
  const std::shared_ptr<Request> cancelled = requests[3], failed = requests[0];
  for (int i = 0; i < 6; ++i) scheduler.Step();
  // A tap may write: it is shown the engine's own buffers. The first rows are those of the first request that decodes.
  engine.probe().SetTap([](Site site, std::string_view, Mat<const float> out) {
    if (site == Site{-1, Component::kOutputNorm} && !out.empty()) const_cast<float*>(out.data)[0] = NAN;
  });
  scheduler.Step();
  engine.probe().SetTap(nullptr);
  scheduler.Cancel(*cancelled);
  for (int i = 0; i < 1000 && !scheduler.idle(); ++i) scheduler.Step();
  ASSERT_TRUE(scheduler.idle());

  ExpectTheLedger(engine.ledger(), requests, shared.size());
  EXPECT_EQ(failed->result().finish, FinishReason::kError);
  EXPECT_EQ(failed->result().bill.total().rows_in_vain, 1u);
  EXPECT_EQ(failed->result().bill.at(Phase::kDecode).rows, static_cast<uint64_t>(failed->result().decode_tokens) + 1);
  EXPECT_EQ(failed->result().bill.at(Phase::kPrefill).rows, 5u);
  EXPECT_EQ(cancelled->result().finish, FinishReason::kInterrupted);
  uint64_t again = 0;
  for (const auto& request : requests) {
    if (request == failed) continue;
    ExpectOnce(*request);
    EXPECT_EQ(request->result().bill.total().rows_in_vain, 0u);
    again += request->result().bill.total().rows_again;
  }
  EXPECT_GT(again, 0u);
}

TEST(RequestBills, ASchedulerThatGoesGivesThem) {
  const Opened opened = Open(kSharedExperts, ManyOptions());
  ASSERT_NE(opened.engine, nullptr);
  RequestsToBill requests;
  {
    Scheduler scheduler(*opened.engine);
    for (uint32_t i = 0; i < 3; ++i) {
      scheduler.Add(requests.emplace_back(RequestToBill(*opened.engine, PromptOf(*opened.engine, 9, i), 20)));
    }
    for (int i = 0; i < 5; ++i) scheduler.Step();
  }
  ExpectTheLedger(opened.engine->ledger(), requests, 0);
  EXPECT_GT(requests[0]->result().bill.at(Phase::kDecode).rows, 0u);
}

TEST(RequestBills, OneAloneIsChargedWithAll) {
  const Opened opened = Open(kSharedExperts, ManyOptions());
  ASSERT_NE(opened.engine, nullptr);
  const Result<GenerateResult> result =
      Generate(*opened.engine, PromptOf(*opened.engine, 40, 1), {.max_tokens = 9, .ignore_eos = true});
  ASSERT_TRUE(result.ok());
  const Ledger& ledger = opened.engine->ledger();
  EXPECT_EQ(result->bill.total().useful, UsefulTotal(ledger));
  EXPECT_EQ(result->bill.at(Phase::kDecode).rows, 8u);
  EXPECT_EQ(result->bill.parameters_touched(), ledger.touched().parameters_ever());
}

}  // namespace
}  // namespace tally
