// SPDX-License-Identifier: Apache-2.0
// Requests that draft: the same answers, to the bit, as without, and bills that name what was drafted in vain.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/session/lookup_drafter.h"
#include "engine/session/row_cost.h"
#include "engine/studies/draft_speed.h"
#include "tests/session/drafted.h"
#include "tests/session/fake_engine.h"
#include "tests/support/charges.h"
#include "tests/support/goldens.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

using drafted::DraftOptions;
using drafted::NewRequest;
using drafted::Pattern;
using drafted::Recording;
using drafted::RunAll;
using drafted::Said;
using drafted::SaidBy;
using drafted::Tokens;

TEST(LookupDrafter, TheLongestAndTheMostRecentEndIsFollowed) {
  const auto next = [](const Tokens& tokens) { return FindEarlier(tokens).next; };
  EXPECT_EQ(FindEarlier(Tokens{}).length, 0);
  EXPECT_EQ(FindEarlier(Tokens{7}).length, 0);
  EXPECT_EQ(FindEarlier(Tokens{1, 2, 3}).length, 0);
  EXPECT_EQ(next({1, 2, 1, 3, 1}), 3) << "the most recent";
  EXPECT_EQ(next({5, 1, 2, 9, 1, 4, 5, 1}), 2) << "the longest";
  EXPECT_EQ(FindEarlier(Tokens{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 7, 2, 3, 4, 5}).next, 11) << "four tokens are enough";
  LookupDrafter drafter(4);
  const auto propose = [&](const Tokens& tokens, int64_t most) {
    const std::span<const int32_t> drafts = drafter.Propose(tokens, most);
    return Tokens(drafts.begin(), drafts.end());
  };
  EXPECT_EQ(propose({1, 2, 3, 4, 5, 6, 1, 2}, 8), Tokens({3, 4, 5, 6}));
  EXPECT_EQ(propose({1, 2, 3, 4, 5, 6, 1, 2}, 2), Tokens({3, 4}));
  EXPECT_EQ(propose({1, 2, 3, 1, 2}, 8), Tokens({3, 1, 2, 3})) << "it repeats itself";
  EXPECT_EQ(propose({4, 4}, 8), Tokens({4, 4, 4, 4}));
  EXPECT_EQ(propose({1, 2, 3}, 8), Tokens());
}

TEST(LookupDrafter, MissesArePausedFor) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 1, 2};
  LookupDrafter drafter(4);
  int64_t rows = 0;
  for (int step = 0; step < 1000; ++step) {
    const int64_t drafted = static_cast<int64_t>(drafter.Propose(text, 4).size());
    rows += drafted;
    drafter.length().Settle(drafted, 0, .1);
  }
  EXPECT_LE(rows, 60) << "of 1,000 steps in which nothing is right";
  int64_t steps = 0;
  while (drafter.Propose(text, 4).empty()) ++steps;
  EXPECT_LE(steps, DraftLength::kMostPause);
  drafter.length().Settle(1, 1, 0);
  EXPECT_EQ(drafter.Propose(text, 4).size(), 2u);
  drafter.length().Settle(2, 1, 0);
  EXPECT_EQ(drafter.Propose(text, 4).size(), 4u) << "it is at its length again";
}

class Drafts : public testing::TestWithParam<std::string> {};

// Every number of accepted drafts, by tokens that were recorded: logits of all rows are those of single steps, whatever ran and was taken
// back in between, in windows and states too.
TEST_P(Drafts, EveryPatternGivesTheSameBits) {
  const Opened opened = Open(kGoldens + GetParam(), DraftOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const auto [prompt, answer] = Recording(opened.model->recipe().vocab, 60, 260, 1);
  RequestOptions options{.max_tokens = static_cast<int64_t>(answer.size()),
                         .ignore_eos = true,
                         .top_logprobs = 2,
                         .prefix_key = {},
                         .replay = answer};
  const auto plain = NewRequest(engine, prompt, options);
  RunAll(engine, {plain});
  const Said expected = SaidBy(*plain);
  EXPECT_EQ(expected.tokens, answer);
  EXPECT_EQ(plain->result().decode_steps, plain->result().decode_tokens);
  options.draft = 4;
  for (const bool shares : {false, true}) {
    options.prefix_key = shares ? std::optional<std::string>("key") : std::nullopt;
    const auto drafted = NewRequest(engine, prompt, options);
    const std::set<Pattern> patterns = RunAll(engine, {drafted});
    EXPECT_EQ(SaidBy(*drafted), expected) << shares;
    for (int64_t accepted = 0; accepted <= 4; ++accepted) EXPECT_TRUE(patterns.contains({4, accepted})) << accepted;
    EXPECT_EQ(drafted->result().decode_tokens, plain->result().decode_tokens);
    EXPECT_EQ(drafted->result().decode_steps + drafted->result().accepted, drafted->result().decode_tokens);
  }
}

// What the model draws itself, greedily and not, alone and in company, with penalties.
TEST_P(Drafts, DrawTheSameAloneAndInCompany) {
  const Opened opened = Open(kGoldens + GetParam(), DraftOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  for (const double temperature : {0.0, 0.4}) {
    std::vector<std::shared_ptr<Request>> company;
    std::vector<Said> expected;
    for (const int64_t draft : {0, 4}) {
      company.clear();
      for (uint32_t i = 0; i < 3; ++i) {
        Tokens prompt = Recording(opened.model->recipe().vocab, 40, 1, i).first;
        const Tokens twice = prompt;
        prompt.insert(prompt.end(), twice.begin(), twice.end());
        RequestOptions options{.max_tokens = 60, .ignore_eos = true, .top_logprobs = 1, .draft = draft};
        options.sampling.temperature = temperature;
        options.sampling.top_k = 4;  // tokens come again
        options.sampling.seed = i;
        if (i == 1) options.sampling.repeat_penalty = 1.1;
        if (i == 2) options.logit_bias = {{prompt[3], 2.0f}};
        company.push_back(NewRequest(engine, prompt, options));
        if (draft > 0) continue;
        RunAll(engine, {company.back()});
        expected.push_back(SaidBy(*company.back()));
      }
    }
    RunAll(engine, company);
    int64_t drafted = 0;
    for (size_t i = 0; i < company.size(); ++i) {
      EXPECT_EQ(SaidBy(*company[i]), expected[i]) << i << ", temperature " << temperature;
      drafted += company[i]->result().drafted;
    }
    EXPECT_GT(drafted, 0);
  }
}

// The FLOPs of a request less those of rejected rows are those of the request without drafts; all bills are the ledger.
TEST_P(Drafts, BillsNameWhatWasInVain) {
  const Opened opened = Open(kGoldens + GetParam(), DraftOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const auto recording = Recording(opened.model->recipe().vocab, 40, 90, 2);
  const auto& prompt = recording.first;
  const auto& answer = recording.second;
  const auto run = [&](int64_t draft) {
    const RequestOptions options{
        .max_tokens = static_cast<int64_t>(answer.size()), .ignore_eos = true, .draft = draft, .replay = answer};
    const auto request = NewRequest(engine, prompt, options);
    RunAll(engine, {request});
    return request->result();
  };
  const GenerateResult plain = run(0);
  engine.ledger().Reset();
  const GenerateResult drafted = run(4);
  const DraftWork& drafts = drafted.bill.drafts;
  EXPECT_EQ(drafts.rows, static_cast<uint64_t>(drafted.drafted));
  EXPECT_EQ(drafts.accepted, static_cast<uint64_t>(drafted.accepted));
  EXPECT_EQ(drafts.rejected, drafts.rows - drafts.accepted);
  EXPECT_GT(drafts.accepted, 0u);
  EXPECT_GT(drafts.rejected, 0u);
  const BillWork& work = drafted.bill.at(Phase::kDecode);
  EXPECT_EQ(work.rows_in_vain, drafts.rejected);
  EXPECT_EQ(work.rows - work.rows_in_vain, static_cast<uint64_t>(drafted.decode_tokens));
  EXPECT_EQ(drafted.decode_tokens, plain.decode_tokens);
  for (int c = 0; c < kWorkClasses; ++c) {
    const WorkClass work_class = static_cast<WorkClass>(c);
    EXPECT_EQ(work.useful.Flops(work_class) - drafts.in_vain.Flops(work_class),
              plain.bill.at(Phase::kDecode).useful.Flops(work_class))
        << kWorkClassNames[static_cast<size_t>(c)];
  }
  EXPECT_EQ(work.useful.Bytes(ByteKind::kKvWritten) - drafts.in_vain.Bytes(ByteKind::kKvWritten),
            plain.bill.at(Phase::kDecode).useful.Bytes(ByteKind::kKvWritten));
  EXPECT_LT(work.useful.Bytes(ByteKind::kWeightsPacked), plain.bill.at(Phase::kDecode).useful.Bytes(ByteKind::kWeightsPacked));
  const Ledger& ledger = engine.ledger();
  Cost sum = ledger.unbilled();
  sum += drafted.bill.total().useful;
  EXPECT_EQ(sum, UsefulTotal(ledger));
  EXPECT_EQ(ledger.drafts().rejected, drafts.rejected);
  EXPECT_EQ(ledger.drafts().in_vain, drafts.in_vain);
}

INSTANTIATE_TEST_SUITE_P(Families, Drafts,
                         testing::Values("llama/llama-a-f32-gqa-untied", "llama/mistral-a-bf16-sliding",
                                         "gemma/gemma3-a-bf16-pattern6", "gptoss/gptoss-a-top4of8-realyarn",
                                         "lfm2/lfm2-a-f32-tied"),
                         [](const auto& tested) {
                           std::string name = tested.param.substr(tested.param.find('/') + 1);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// --- by an engine whose next token is a function of the last

RequestOptions Greedy(int64_t n, int64_t draft) {
  RequestOptions options{.max_tokens = n, .draft = draft};
  options.sampling.temperature = 0;
  return options;
}

// A model that counts in a circle of five tokens: drafts are right. A stop string, the last token and the end of the context
// come in the middle of drafts, and what is behind them is as if it had not run.
TEST(FakeDrafts, AnswersEndWhereTheyDoWithout) {
  struct Case {
    int64_t tokens = 40, context = 64;
    std::string stop = {};
    FinishReason finish{};
  };
  const std::vector<Case> cases = {{.tokens = 23, .finish = FinishReason::kLength},
                                   {.stop = "cd", .finish = FinishReason::kStop},
                                   {.stop = "abcdeabcdeabcdea", .finish = FinishReason::kStop},
                                   {.tokens = -1, .context = 37, .finish = FinishReason::kContextFull}};
  for (const Case& c : cases) {
    std::vector<std::string> texts[2];
    for (const int64_t draft : {0, 4}) {
      FakeEngine engine(6, c.context);
      engine.next = [](int32_t token, int64_t) { return (token + 1) % 5; };
      engine.drafts = 4;
      engine.fake_model().tokenizer_ = std::make_unique<FakeTokenizer>(std::vector<std::string>{"a", "b", "c", "d", "e", "f"});
      const auto request = std::make_shared<Request>(engine, Tokens{0, 1, 2, 3, 4, 0}, Greedy(c.tokens, draft),
                                                     NewTextStream(engine.model().tokenizer(), true, {c.stop}));
      RunAll(engine, {request});
      EXPECT_EQ(request->result().finish, c.finish) << c.stop << draft;
      for (const RequestEvent& event : request->TakeEvents()) {
        texts[draft > 0 ? 1 : 0].push_back(std::to_string(event.token));
        for (const OutputPart& part : event.parts) texts[draft > 0 ? 1 : 0].back() += part.text;
      }
      EXPECT_EQ(engine.live_sequences(), 0u);
      const bool saved = request->result().decode_steps < request->result().decode_tokens;
      EXPECT_EQ(saved, draft > 0);
    }
    EXPECT_EQ(texts[0], texts[1]) << c.stop;
  }
}

// Rows for drafts are those of few decode rows, shared; a prompt has none beside it.
TEST(FakeDrafts, TakeNobodysRows) {
  FakeEngine engine(100, 4096);
  engine.next = [](int32_t token, int64_t) { return token / 5 * 5 + (token + 1) % 5; };
  engine.batch = 64;
  engine.logit_rows = 27;
  engine.drafts = 7;
  Scheduler scheduler(engine);
  std::vector<std::shared_ptr<Request>> requests;
  const auto add = [&](int32_t i, int64_t tokens) {
    scheduler.Add(
        requests.emplace_back(NewRequest(engine, {5 * i, 5 * i + 1, 5 * i + 2, 5 * i + 3, 5 * i + 4, 5 * i}, Greedy(tokens, 4))));
  };
  const auto rows = [&] { return engine.steps.back().tokens.size(); };
  add(0, 400);
  scheduler.Step();
  scheduler.Step();
  EXPECT_EQ(rows(), 5u) << "one and four";
  add(1, 400);
  scheduler.Step();
  EXPECT_EQ(rows(), 7u) << "a row and a prompt, no drafts";
  scheduler.Step();
  EXPECT_EQ(rows(), 8u) << "two and three each";
  for (int32_t i = 2; i < 9; ++i) add(i, 20);
  scheduler.Step();
  scheduler.Step();
  EXPECT_EQ(rows(), 9u) << "nine rows are not few";
  for (int i = 0; i < 1000 && !scheduler.idle(); ++i) scheduler.Step();
  for (const auto& request : requests) {
    Tokens expected;
    for (size_t i = 0; i < request->result().tokens.size(); ++i) {
      expected.push_back(request->tokens()[0] / 5 * 5 + static_cast<int32_t>((i + 1) % 5));
    }
    EXPECT_EQ(request->result().tokens, expected);
  }
}

// A draft that makes its sequence fail is taken back, and the step run without.
TEST(FakeDrafts, AStepThatFailsIsRunWithout) {
  FakeEngine engine(20);
  engine.drafts = 4;
  const auto request = NewRequest(engine, {1, 2, 9, 5, 1}, Greedy(5, 4));
  Scheduler scheduler(engine);
  scheduler.Add(request);
  scheduler.Step();
  engine.spoiled_token = 9;  // what followed 1 2
  for (int i = 0; i < 20 && !scheduler.idle(); ++i) scheduler.Step();
  EXPECT_EQ(request->result().tokens, Tokens({2, 3, 4, 5, 6}));
  EXPECT_TRUE(request->result().error.ok());
}

TEST(DraftRows, AreTakenBackOnce) {
  const Opened opened = Open(kGoldens + "llama/llama-a-f32-gqa-untied", DraftOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const int32_t s = engine.NewSequence().value(), bill = engine.OpenBill();
  const auto row = [&](int32_t token, bool draft) {
    return BatchRow{.token = token, .sequence = s, .want_logits = true, .generated = true, .bill = bill, .draft = draft};
  };
  ASSERT_TRUE(engine.Step(std::vector{row(1, false), row(2, true), row(3, true)}).ok());
  EXPECT_EQ(engine.ledger().bill(bill).drafts.rows, 2u);
  EXPECT_EQ(engine.ledger().drafts().rejected + engine.ledger().drafts().accepted, 0u) << "undecided";
  EXPECT_FALSE(engine.KeepDrafts(s, 3).ok());
  ASSERT_TRUE(engine.KeepDrafts(s, 1).ok());
  EXPECT_EQ(engine.Length(s), 2);
  EXPECT_FALSE(engine.KeepDrafts(s, 1).ok());
  EXPECT_FALSE(engine.Step(std::vector{row(1, false), row(2, true), row(3, false)}).ok());
  ASSERT_TRUE(engine.Step(std::vector{row(4, false), row(5, true)}).ok());
  const Bill closed = engine.CloseBill(bill);  // what is undecided is not accepted
  EXPECT_EQ(closed.drafts.rows, 3u);
  EXPECT_EQ(closed.drafts.accepted, 1u);
  EXPECT_EQ(closed.drafts.rejected, 2u);
  EXPECT_EQ(closed.at(Phase::kDecode).rows_in_vain, 2u);
  EXPECT_FALSE(Request::Check(engine, Tokens{1}, {.draft = -1}).ok());
}

TEST(DraftSpeed, ReplaysRecordedAnswers) {
  const Opened opened = Open(kGoldens + "llama/llama-a-f32-gqa-untied", DraftOptions());
  ASSERT_NE(opened.engine, nullptr);
  std::vector<RecordedAnswer> recordings;
  for (uint32_t i = 0; i < 2; ++i) {
    const auto [prompt, answer] = Recording(opened.model->recipe().vocab, 40, 50, i);
    recordings.push_back({prompt, answer});
  }
  const auto report = MeasureDrafts(*opened.engine, recordings, {.draft = 4, .rounds = 2});
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->recordings.size(), 2u);
  EXPECT_EQ(report->all.tokens, 2 * 49);
  EXPECT_EQ(report->all.passes + report->all.accepted, report->all.tokens);
  EXPECT_GT(report->all.accepted, 0);
  EXPECT_GT(report->all.ratio, 0);
  recordings[0].answer[1] = opened.model->recipe().vocab;
  EXPECT_FALSE(MeasureDrafts(*opened.engine, recordings, {}).ok());
}

// A row of a model that streams reads from disk what it misses, and the fewer slots there are the less a draft pays.
TEST(RowCost, SeesTheDisk) {
  Recipe recipe;
  recipe.n_layers = 1;
  LayerRecipe& layer = recipe.layers.emplace_back();
  layer.feed_forward = FeedForward::kSparse;
  Experts& experts = layer.experts;
  experts.n_experts = 32;
  experts.top_k = 8;
  std::vector<WeightInfo> weights(2);
  for (WeightInfo& w : weights) w.layer = 0;
  weights[0].packed_bytes = 100;
  weights[1].packed_bytes = 1000;
  weights[1].experts = true;
  const auto cost = [&](int64_t slots) {
    MemoryPlan plan;
    plan.expert_slots = slots;
    plan.experts = 32;
    return RowCost(recipe, plan, weights, false);
  };
  EXPECT_NEAR(cost(0), .1 + 250 * .75 / 350, 1e-12) << "all in memory";
  // 1 - h at 16 of 32 slots: flat .307 x .5 x .5^-.18 = .174, local .042 + .13 x .2^1.6 = .052.
  const double disk = 250 * (.17391 + .05190) / 2 * kDiskTimes;
  EXPECT_NEAR(cost(16), (35 + disk) / (100 + disk), 1e-3);
  EXPECT_LT(cost(0), cost(16));
  double before = cost(31);
  for (int64_t slots = 28; slots >= 10; slots -= 3) {
    EXPECT_GE(cost(slots), before) << slots;
    before = cost(slots);
  }
  EXPECT_LT(before, 1) << "right drafts always pay";
  // Layers that are streamed come once for all rows of a step.
  MemoryPlan plan;
  plan.streamed_layers = 2;
  plan.layers = 5;
  plan.streamed_bytes = 40;
  Recipe dense;
  dense.n_layers = 1;
  EXPECT_NEAR(RowCost(dense, plan, {weights.data(), 1}, false), .1 * 100 / (40 * kDiskTimes), 1e-12);
}

}  // namespace
}  // namespace tally
