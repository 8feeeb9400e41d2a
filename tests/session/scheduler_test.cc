// SPDX-License-Identifier: Apache-2.0
#include "engine/session/scheduler.h"
#include "engine/recipe/recipe.h"
#include "engine/session/step_clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "tests/session/fake_engine.h"
#include "tests/support/goldens.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

using Tokens = std::vector<int32_t>;

std::shared_ptr<Request> NewRequest(const Engine& engine, Tokens prompt, const RequestOptions& options) {
  EXPECT_TRUE(Request::Check(engine, prompt, options).ok());
  return std::make_shared<Request>(engine, std::move(prompt), options, NewTextStream(nullptr, false, {}));
}

RequestOptions GreedyTokens(int64_t n) {
  RequestOptions options{.max_tokens = n};
  options.sampling.temperature = 0;
  return options;
}

void RunAll(Scheduler& scheduler) {
  for (int i = 0; i < 10000 && !scheduler.idle(); ++i) scheduler.Step();
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, DecodesFirstThenPromptsOneAfterTheOther) {
  FakeEngine engine(100);
  Scheduler scheduler(engine);
  const auto decodes = NewRequest(engine, {5}, GreedyTokens(20));
  scheduler.Add(decodes);
  scheduler.Step();
  for (const int32_t token : {1, 2, 3}) scheduler.Add(NewRequest(engine, Tokens(10, token), GreedyTokens(1)));
  const auto decoded = [&] { return static_cast<int32_t>(decodes->result().tokens.size()) + 4; };
  scheduler.Step();  // 8 rows
  EXPECT_EQ(engine.steps.back().tokens, (Tokens{decoded(), 1, 1, 1, 1, 1, 1, 1}));
  scheduler.Step();
  EXPECT_EQ(engine.steps.back().tokens, (Tokens{decoded(), 1, 1, 1, 2, 2, 2, 2}));
  RunAll(scheduler);
  EXPECT_EQ(decodes->result().tokens.size(), 20u);
  EXPECT_EQ(engine.live_sequences(), 0u);
}

// Rows of prompts that have run when each request has its first token.
class PromptRows {
 public:
  explicit PromptRows(int64_t batch = 64) : engine(100, 100'000), scheduler(engine) {
    engine.batch = batch;
    engine.logit_rows = 64;
  }
  size_t Add(int64_t length, std::string client = "") {
    RequestOptions options = GreedyTokens(1);
    options.client = std::move(client);
    requests_.push_back(NewRequest(engine, Tokens(static_cast<size_t>(length), 1), options));
    scheduler.Add(requests_.back());
    first_token.push_back(-1);
    return requests_.size() - 1;
  }
  void Step() {
    scheduler.Step();
    rows += static_cast<int64_t>(engine.steps.back().tokens.size());
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (first_token[i] < 0 && !requests_[i]->result().tokens.empty()) first_token[i] = rows;
    }
  }
  void RunAll() {
    while (!scheduler.idle()) Step();
  }

  FakeEngine engine;
  Scheduler scheduler;
  int64_t rows = 0;
  std::vector<int64_t> first_token;

 private:
  std::vector<std::shared_ptr<Request>> requests_;
};

// Each has its first token as soon as if those behind it had not come, and the last one no later than if all shared.
TEST(Scheduler, PromptsOfAClientRunInTheOrderInWhichTheyCame) {
  PromptRows p;
  for (int i = 0; i < 8; ++i) p.Add(384);
  p.RunAll();
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(p.first_token[i], 384 * (static_cast<int64_t>(i) + 1)) << i;
}

// A turn of another client is the most that a prompt waits for its own client's turn; a short one does not wait.
TEST(Scheduler, ClientsHaveEqualSharesOfPrompts) {
  PromptRows p;
  for (int i = 0; i < 6; ++i) p.Add(640, "many");
  for (int i = 0; i < 3; ++i) p.Step();
  const int64_t before = p.rows;
  const size_t one = p.Add(640, "one"), third = p.Add(64, "third");
  p.RunAll();
  EXPECT_EQ(p.first_token[third], before + 64);
  EXPECT_EQ(p.first_token[one], 64 + Scheduler::kTurn + 640);
  EXPECT_EQ(p.first_token[0], 640 + 64) << "nor does the first client wait for the others";
  // Prompts of several clients that are no longer than a turn: one after the other.
  const int64_t again = p.rows;
  std::vector<size_t> later;
  for (const char* client : {"many", "one", "third", "fourth"}) later.push_back(p.Add(640, client));
  p.RunAll();
  for (size_t i = 0; i < later.size(); ++i) EXPECT_EQ(p.first_token[later[i]], again + 640 * (static_cast<int64_t>(i) + 1));
}

// A client that sends its next short prompt when the last is done, and another that does so too, take no more than their shares.
TEST(Scheduler, AClientWithOneShortPromptAfterTheOtherTakesItsShare) {
  PromptRows p;
  const size_t large = p.Add(20'000, "large");
  size_t small = p.Add(200, "small");
  int64_t done = 0, waited = 0, came = p.rows;
  while (p.first_token[large] < 0) {
    p.Step();
    if (p.first_token[small] < 0) continue;
    ++done;
    waited = std::max(waited, p.rows - came);
    came = p.rows;
    small = p.Add(200, "small");
  }
  EXPECT_LE(p.first_token[large], 2 * 20'000 + Scheduler::kTurn + 2 * 64);
  EXPECT_GE(done, 90) << "half of the rows";
  EXPECT_LE(waited, 2 * Scheduler::kTurn) << "after a turn of its own, which is the most that it is ahead";
}

// A short prompt does not wait for a long one, and short ones without end do not keep the long one waiting.
TEST(Scheduler, ShortPromptsOvertakeWithinABound) {
  PromptRows p;
  const size_t large = p.Add(4000);
  p.Step();
  const size_t small = p.Add(200), middling = p.Add(256);
  while (p.first_token[small] < 0) p.Step();
  EXPECT_LE(p.first_token[small], 64 + 256);
  while (p.first_token[large] < 0) {
    p.Add(100);
    p.Step();
  }
  EXPECT_LE(p.first_token[large], 2 * 4000 + Scheduler::kMostOvertaking);
  EXPECT_EQ(p.first_token[middling], -1) << "it is not short";
  for (int i = 0; i < 40; ++i) {
    p.Add(100);
    p.Step();
  }
  EXPECT_NE(p.first_token[middling], -1);
}

// More requests that decode than a step has rows for: each has its turn.
TEST(Scheduler, AFullStepLeavesNobodyOutForLong) {
  FakeEngine engine(100);
  engine.batch = 3;
  engine.logit_rows = 8;
  Scheduler scheduler(engine);
  std::vector<std::shared_ptr<Request>> requests;
  for (int32_t i = 0; i < 8; ++i) scheduler.Add(requests.emplace_back(NewRequest(engine, {i}, GreedyTokens(20))));
  for (int i = 0; i < 40; ++i) scheduler.Step();
  for (const auto& r : requests) EXPECT_GE(r->result().tokens.size(), 14u);
  RunAll(scheduler);
  for (const auto& r : requests) EXPECT_EQ(r->result().tokens.size(), 20u);
}

TEST(StepClock, RowsAsTimeAllows) {
  StepClock clock;
  EXPECT_EQ(clock.MostRows(1, 0.2), StepClock::kFirstRows) << "nothing is known";
  clock.Add(0, 2, 0.05);
  clock.Add(32, 2, 0.05 + 32 * 0.001);
  EXPECT_NEAR(static_cast<double>(clock.MostRows(2, 0.2)), 128, 1) << "four times what was tried, although 150 would fit";
  clock.Add(128, 2, 0.05 + 128 * 0.001);
  EXPECT_NEAR(static_cast<double>(clock.MostRows(2, 0.2)), 150, 1);
  EXPECT_NEAR(static_cast<double>(clock.MostRows(0, 0.2)), 200, 1);
  for (int i = 0; i < 20; ++i) clock.Add(50, 2, 0.05 + 50 * 0.002);  // it has become slower
  EXPECT_NEAR(static_cast<double>(clock.MostRows(2, 0.2)), 75, 1);
  EXPECT_EQ(clock.MostRows(2, 0.01), StepClock::kLeastRows);
}

// Where a request decodes, a prompt runs in small pieces, and says the same.
TEST(Scheduler, PiecesOfPromptsAreSizedByTime) {
  FakeEngine engine(100, 4096);
  engine.batch = 512;
  engine.on_step = [] {  // longer than is wanted, whatever runs
    for (const double end = MonotonicSeconds() + 2e-4; MonotonicSeconds() < end;) {
    }
  };
  Scheduler scheduler(engine, {.step_seconds = 1e-5});
  const auto decodes = NewRequest(engine, {5}, GreedyTokens(300)), prompt = NewRequest(engine, Tokens(1000, 1), GreedyTokens(5));
  scheduler.Add(decodes);
  scheduler.Step();
  scheduler.Add(prompt);
  for (int i = 0; i < 50; ++i) {
    scheduler.Step();
    EXPECT_LE(engine.steps.back().tokens.size(), 1 + static_cast<size_t>(StepClock::kFirstRows));
    EXPECT_EQ(decodes->result().tokens.size(), static_cast<size_t>(i) + 2) << "a token each step";
  }
  EXPECT_EQ(engine.steps.back().tokens.size(), 1 + static_cast<size_t>(StepClock::kLeastRows));
  RunAll(scheduler);
  EXPECT_EQ(prompt->result().tokens, Tokens({2, 3, 4, 5, 6}));
}

TEST(Request, LogprobsAndBias) {
  FakeEngine engine(100);
  Scheduler scheduler(engine);
  RequestOptions options = GreedyTokens(2);
  options.top_logprobs = 2;
  options.logit_bias = {{6, -50.0f}, {8, 45.0f}};  // of 5 and 7 the next one has a logit of 20, others -distance
  const auto request = NewRequest(engine, {5}, options);
  scheduler.Add(request);
  RunAll(scheduler);
  EXPECT_EQ(request->result().tokens, Tokens({8, 8}));
  const std::vector<RequestEvent> events = request->TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NEAR(events[0].logprobs.logprob, -22, 1e-6) << "the model's, before the bias";
  ASSERT_EQ(events[0].logprobs.top.size(), 2u);
  EXPECT_EQ(events[0].logprobs.top[0].token, 6);
  EXPECT_NEAR(events[0].logprobs.top[0].logprob, 0, 1e-6);
  EXPECT_EQ(events[0].logprobs.top[1].token, 5) << "as likely as 7, and before it";
  options.logit_bias = {{100, 1.0f}};
  EXPECT_FALSE(Request::Check(engine, Tokens{5}, options).ok());
  const std::vector<float> none = {NAN, -INFINITY, NAN};
  EXPECT_EQ(LogprobsOf(none, 1, 1).logprob, -INFINITY);
}

TEST(Scheduler, OneFailsAlone) {
  FakeEngine engine(100);
  engine.spoiled_token = 50;
  Scheduler scheduler(engine);
  const auto bad = NewRequest(engine, {46}, GreedyTokens(20)), good = NewRequest(engine, {20}, GreedyTokens(20));
  scheduler.Add(bad);
  scheduler.Add(good);
  RunAll(scheduler);
  EXPECT_EQ(bad->result().finish, FinishReason::kError);
  EXPECT_EQ(bad->result().error.message(), "spoiled");
  EXPECT_EQ(bad->result().tokens, (Tokens{47, 48, 49, 50}));
  EXPECT_EQ(good->result().finish, FinishReason::kLength);
  EXPECT_EQ(good->result().tokens.size(), 20u);
  EXPECT_EQ(engine.live_sequences(), 0u);
}

TEST(Scheduler, TheYoungestIsPreemptedAndGoesOn) {
  FakeEngine engine(1000, 200);
  engine.room = 40;
  Scheduler scheduler(engine);
  std::vector<std::shared_ptr<Request>> requests;
  for (int32_t i = 0; i < 3; ++i) scheduler.Add(requests.emplace_back(NewRequest(engine, Tokens(5, i * 100), GreedyTokens(20))));
  RunAll(scheduler);
  for (int32_t i = 0; i < 3; ++i) {
    const GenerateResult& result = requests[static_cast<size_t>(i)]->result();
    EXPECT_EQ(result.finish, FinishReason::kLength) << result.error.message();
    EXPECT_EQ(result.prompt_tokens, 5);
    EXPECT_EQ(result.decode_tokens, 19);
    EXPECT_EQ(result.decode_steps, 19);
    Tokens want;
    for (int32_t t = 1; t <= 20; ++t) want.push_back(i * 100 + t);
    EXPECT_EQ(result.tokens, want);
  }
  EXPECT_EQ(requests[0]->preemptions(), 0);
  EXPECT_GT(requests[2]->preemptions(), 0);
  EXPECT_EQ(engine.live_sequences(), 0u);
}

TEST(Scheduler, WhatNeverFitsIsRefusedOrEndsWhereTheCacheDoes) {
  FakeEngine engine(100, 200);
  engine.room = 10;
  EXPECT_EQ(Request::Check(engine, Tokens(11, 1), GreedyTokens(2)).message(),
            "the prompt has 11 tokens, and the KV cache of 10 bytes holds 10");
  Scheduler scheduler(engine);
  const auto long_one = NewRequest(engine, Tokens(8, 1), GreedyTokens(20)), small = NewRequest(engine, {7}, GreedyTokens(3));
  scheduler.Add(long_one);
  scheduler.Add(small);
  RunAll(scheduler);
  EXPECT_EQ(long_one->result().finish, FinishReason::kContextFull);
  EXPECT_EQ(long_one->result().tokens, (Tokens{2, 3, 4}));  // the last is not run
  EXPECT_EQ(small->result().tokens, (Tokens{8, 9, 10}));
}

// What does not fit beside those that run waits, and so do those behind it.
TEST(Scheduler, NobodyIsTakenInWhoHasNoRoom) {
  FakeEngine engine(100, 200);
  engine.room = 60;
  Scheduler scheduler(engine);
  const auto first = NewRequest(engine, Tokens(40, 1), GreedyTokens(5)),
             second = NewRequest(engine, Tokens(30, 2), GreedyTokens(5)),
             third = NewRequest(engine, Tokens(2, 3), GreedyTokens(5));
  for (const auto& request : {first, second, third}) scheduler.Add(request);
  scheduler.Step();
  EXPECT_EQ(scheduler.running(), 1u);
  while (!first->ended()) {
    EXPECT_EQ(scheduler.waiting(), 2u);
    scheduler.Step();
  }
  RunAll(scheduler);
  for (const auto& request : {first, second, third}) EXPECT_EQ(request->preemptions(), 0);
}

TEST(Scheduler, WhoWaitsForRoomMayBeCancelled) {
  FakeEngine engine(100, 200);
  engine.room = 60;
  const auto first = NewRequest(engine, Tokens(40, 1), GreedyTokens(10)),
             large = NewRequest(engine, Tokens(30, 2), GreedyTokens(5)),
             small = NewRequest(engine, Tokens(2, 3), GreedyTokens(5));
  {
    Scheduler scheduler(engine);
    for (const auto& request : {first, large, small}) scheduler.Add(request);
    scheduler.Step();
    EXPECT_EQ(scheduler.waiting(), 2u);
    scheduler.Cancel(*large);
    scheduler.Step();
    EXPECT_EQ(scheduler.running(), 2u);
  }
  EXPECT_EQ(first->result().finish, FinishReason::kInterrupted);  // by the scheduler's end
  EXPECT_TRUE(small->ended());
  EXPECT_EQ(engine.live_sequences(), 0u);
}

// A request that ends makes room for one that had none in the same step.
TEST(Scheduler, NobodyIsPreemptedWhereOneEnds) {
  FakeEngine engine(100, 200);
  engine.room = 12;
  Scheduler scheduler(engine);
  const auto ends = NewRequest(engine, Tokens(4, 1), GreedyTokens(3)),
             goes_on = NewRequest(engine, Tokens(4, 2), GreedyTokens(6));
  scheduler.Add(ends);
  scheduler.Add(goes_on);
  RunAll(scheduler);
  EXPECT_EQ(ends->result().tokens.size(), 3u);
  EXPECT_EQ(goes_on->result().tokens.size(), 6u);
  EXPECT_EQ(goes_on->preemptions(), 0);
}

// Of requests that begin alike one runs the beginning, whether the others come with it or later; others do not wait with them.
TEST(Scheduler, ACommonBeginningRunsOnce) {
  FakeEngine engine(100, 2000);
  engine.batch = 64;
  Scheduler scheduler(engine);
  RequestOptions options = GreedyTokens(3);
  options.prefix_key = "a";
  const auto ending = [](int32_t last) {
    Tokens tokens(400, 1);
    tokens.push_back(last);
    return tokens;
  };
  const auto first = NewRequest(engine, ending(5), options), twin = NewRequest(engine, ending(6), options),
             other = NewRequest(engine, Tokens(200, 2), options);
  options.prefix_key = "b";
  const auto of_another_key = NewRequest(engine, ending(7), options);
  for (const auto& request : {first, twin, other, of_another_key}) scheduler.Add(request);
  scheduler.Step();
  EXPECT_EQ(scheduler.running(), 3u);
  EXPECT_EQ(scheduler.waiting(), 1u);
  RunAll(scheduler);
  EXPECT_EQ(first->prompt_reused(), 0);
  EXPECT_EQ(twin->prompt_reused(), 400);
  EXPECT_EQ(twin->result().prompt_tokens, 1);
  EXPECT_EQ(other->prompt_reused(), 0);
  EXPECT_EQ(of_another_key->prompt_reused(), 0);
  options.prefix_key = "a";
  const auto later = NewRequest(engine, ending(5), options);
  scheduler.Add(later);
  RunAll(scheduler);
  EXPECT_EQ(later->prompt_reused(), 400);  // the last token's logits are wanted
  EXPECT_EQ(later->result().tokens, first->result().tokens);
  // Who runs the beginning may be cancelled: another does.
  const auto gone = NewRequest(engine, Tokens(300, 9), options), stays = NewRequest(engine, Tokens(301, 9), options);
  scheduler.Add(gone);
  scheduler.Add(stays);
  scheduler.Step();
  EXPECT_EQ(scheduler.waiting(), 1u);
  scheduler.Cancel(*gone);
  RunAll(scheduler);
  EXPECT_EQ(stays->prompt_reused(), 64);
  EXPECT_EQ(stays->result().finish, FinishReason::kLength);
}

TEST(Scheduler, CancelledRequestsGiveTheirRoomBack) {
  FakeEngine engine(100);
  engine.sequences = 1;
  Scheduler scheduler(engine);
  const auto first = NewRequest(engine, {1}, GreedyTokens(50)), waits = NewRequest(engine, {2}, GreedyTokens(2)),
             never = NewRequest(engine, {3}, GreedyTokens(2));
  scheduler.Add(first);
  scheduler.Add(waits);
  scheduler.Add(never);
  scheduler.Step();
  EXPECT_EQ(scheduler.waiting(), 2u);
  scheduler.Cancel(*never);
  scheduler.Cancel(*first);
  EXPECT_EQ(first->result().finish, FinishReason::kInterrupted);
  EXPECT_EQ(never->result().finish, FinishReason::kInterrupted);
  RunAll(scheduler);
  EXPECT_EQ(waits->result().finish, FinishReason::kLength);
  EXPECT_EQ(engine.live_sequences(), 0u);
}

// The same tokens alone and in company, with requests that come and go, and with a cache that has room for some of them at a time.
TEST(Scheduler, ARequestGivesTheSameTokensInAnyCompany) {
  for (const char* model : {"gptoss/gptoss-a-top4of8-realyarn", "llama/llama-a-f32-gqa-untied/model.gguf"}) {
    EngineOptions options;
    options.threads = 2;
    options.context = 512;
    options.max_batch = 24;
    options.sequences = 6;
    options.max_logit_rows = 6;
    auto opened = Open(kGoldens + model, options);
    ASSERT_NE(opened.engine, nullptr);
    Engine& engine = *opened.engine;
    const int32_t vocab = engine.model().recipe().vocab;
    std::mt19937 random(7);
    std::vector<std::pair<Tokens, RequestOptions>> all;
    for (uint64_t i = 0; i < 8; ++i) {
      // Some begin alike, so that those with a key share.
      Tokens prompt(1 + random() % 250);
      const size_t alike = i % 2 == 0 ? 0 : std::min(prompt.size(), 100 + random() % 100);
      for (size_t t = 0; t < prompt.size(); ++t)
        prompt[t] = static_cast<int32_t>((t < alike ? t * t + 3 * t : random()) % static_cast<uint32_t>(vocab));
      RequestOptions one{.max_tokens = static_cast<int64_t>(5 + random() % 30), .ignore_eos = true};
      one.sampling.seed = i;
      all.emplace_back(std::move(prompt), one);
    }
    std::vector<Tokens> alone;
    for (const auto& [prompt, one] : all) {
      Scheduler scheduler(engine);
      const auto request = NewRequest(engine, prompt, one);
      scheduler.Add(request);
      RunAll(scheduler);
      alone.push_back(request->result().tokens);
      EXPECT_EQ(static_cast<int64_t>(alone.back().size()), one.max_tokens);
    }
    for (auto& [prompt, one] : all) {
      one.prefix_key = "";
      one.client = prompt.size() % 2 == 0 ? "a" : "b";
    }
    int64_t reused = 0;
    const auto in_company = [&](Engine& shared) {
      Scheduler scheduler(shared);
      std::vector<std::shared_ptr<Request>> requests;
      for (const auto& [prompt, one] : all) {
        scheduler.Add(requests.emplace_back(NewRequest(shared, prompt, one)));
        for (uint32_t n = random() % 4; n > 0; --n) scheduler.Step();
      }
      RunAll(scheduler);
      int64_t preemptions = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(requests[i]->result().tokens, alone[i]) << model << ", request " << i;
        preemptions += requests[i]->preemptions();
        reused += requests[i]->prompt_reused();
      }
      return preemptions;
    };
    EXPECT_EQ(in_company(engine), 0);
    EXPECT_GT(reused, 200);
    options.kv_bytes = engine.memory_plan().kv / 6;  // one sequence of full context, or three of 128 positions
    auto tight = Open(kGoldens + model, options);
    ASSERT_NE(tight.engine, nullptr);
    EXPECT_GT(in_company(*tight.engine), 0) << model;
  }
}

}  // namespace
}  // namespace tally
