// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/studies/summary.h"
#include "tests/session/fake_engine.h"

namespace tally {
namespace {

using Ids = std::vector<int32_t>;

GenerateOptions Greedy(int64_t n) {
  GenerateOptions options;
  options.max_tokens = n;
  options.sampling.temperature = 0;
  return options;
}

TEST(Generate, FollowsTheLogits) {
  FakeEngine engine(100);
  const auto result = Generate(engine, Ids{5, 6, 7}, Greedy(4));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->tokens, (Ids{8, 9, 10, 11}));
  EXPECT_EQ(result->text, "");
  EXPECT_EQ(result->prompt_tokens, 3);
  EXPECT_EQ(result->decode_steps, 3);
  EXPECT_EQ(result->finish, FinishReason::kLength);
  EXPECT_EQ(engine.live_sequences(), 0u);
}

TEST(Generate, PrefillsInPiecesAndAsksForOneRowOfLogits) {
  FakeEngine engine(100);
  Ids prompt(19);
  std::iota(prompt.begin(), prompt.end(), 0);
  ASSERT_TRUE(Generate(engine, prompt, Greedy(1)).ok());
  ASSERT_EQ(engine.steps.size(), 3u);  // 8 + 8 + 3, and no step for the last token
  Ids seen;
  for (size_t s = 0; s < 3; ++s) {
    for (size_t i = 0; i < engine.steps[s].tokens.size(); ++i) {
      seen.push_back(engine.steps[s].tokens[i]);
      EXPECT_EQ(engine.steps[s].wanted[i], seen.size() == 19) << seen.size();
    }
  }
  EXPECT_EQ(seen, prompt);
}

// Phases are what the rows are, not how many: the last piece of a prompt may be a single token.
TEST(Generate, OnlyGeneratedTokensAreDecodeSteps) {
  FakeEngine engine(100);
  const Ids prompt(9, 1);  // one more than a batch
  const auto result = Generate(engine, prompt, Greedy(3));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->decode_steps, 2);
  std::vector<Phase> phases;
  for (const FakeEngine::Stepped& s : engine.steps) phases.push_back(s.phase);
  EXPECT_EQ(phases, (std::vector<Phase>{Phase::kPrefill, Phase::kPrefill, Phase::kDecode, Phase::kDecode}));
  EXPECT_EQ(engine.ledger().rows(Phase::kPrefill), 9u);
}

TEST(Generate, NothingToGenerateIsPrefillAlone) {
  FakeEngine engine(100);
  const auto result = Generate(engine, Ids{1, 2}, Greedy(0));
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->tokens.empty());
  ASSERT_EQ(engine.steps.size(), 1u);
  EXPECT_EQ(engine.steps[0].wanted, (std::vector<bool>{false, false}));
}

TEST(Generate, EndsAtTheEndToken) {
  FakeEngine engine(100);
  engine.fake_model().recipe_.eos_tokens = {50, 10};
  const auto result = Generate(engine, Ids{7}, Greedy(20));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tokens, (Ids{8, 9}));
  EXPECT_EQ(result->finish, FinishReason::kEos);
  EXPECT_EQ(result->end_token, 10);
}

// Masked, as llama.cpp does it: they are not drawn at all, and what is next best is.
TEST(Generate, IgnoredEndTokensAreNeverDrawn) {
  FakeEngine engine(100);
  engine.fake_model().recipe_.eos_tokens = {50, 10, -1, 1000};
  GenerateOptions options = Greedy(5);
  options.ignore_eos = true;
  EXPECT_EQ(Generate(engine, Ids{7}, options)->tokens, (Ids{8, 9, 9, 9, 9}));  // after 9, instead of 10: 9 and 11 are as good
  options.sampling.temperature = 10;
  options.sampling.top_k = 0;
  options.sampling.min_p = 0;
  options.max_tokens = 60;
  for (options.sampling.seed = 0; options.sampling.seed < 20; ++options.sampling.seed) {
    const auto result = Generate(engine, Ids{7}, options);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->finish, FinishReason::kLength);
    for (const int32_t token : result->tokens) EXPECT_TRUE(token != 10 && token != 50);
  }
}

TEST(Generate, FailsWhereAllTokensAreHidden) {
  FakeEngine engine(3);
  engine.fake_model().recipe_.eos_tokens = {0, 1, 2};
  GenerateOptions options = Greedy(5);
  options.ignore_eos = true;
  const auto result = Generate(engine, Ids{1}, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish, FinishReason::kError);
  EXPECT_EQ(result->error.code(), StatusCode::kBadInput);
  EXPECT_TRUE(result->tokens.empty());
}

TEST(Generate, FillsTheContextExactly) {
  FakeEngine engine(100, 10);
  const auto result = Generate(engine, Ids{0, 1, 2}, Greedy(-1));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish, FinishReason::kContextFull);
  EXPECT_EQ(result->tokens.size(), 8u);  // positions 3 to 9 hold seven of them; the eighth needs none
  const Ids full(10, 1);
  EXPECT_EQ(Generate(engine, full, Greedy(-1))->tokens.size(), 1u);
}

std::vector<std::string> Letters() {
  std::vector<std::string> out;
  for (char c = 'a'; c <= 'z'; ++c) out.push_back(std::string(1, c));
  return out;
}

TEST(Generate, StreamsTextAndStopsBeforeAStopString) {
  FakeEngine engine(26);
  engine.fake_model().tokenizer_ = std::make_unique<FakeTokenizer>(Letters());
  GenerateOptions options = Greedy(20);
  options.stop = {"hij", "xyz"};
  std::string streamed;
  Ids tokens;
  options.on_token = [&](std::string_view piece, int32_t token) {
    streamed += piece;
    tokens.push_back(token);
    EXPECT_EQ(streamed.find('h'), std::string::npos);  // held back as a possible beginning
    return true;
  };
  const auto result = Generate(engine, Ids{3}, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text, "efg");
  EXPECT_EQ(streamed, "efg");
  EXPECT_EQ(result->finish, FinishReason::kStop);
  EXPECT_EQ(result->tokens, tokens);
}

TEST(Generate, TextHeldBackComesAtTheEnd) {
  FakeEngine engine(26);
  engine.fake_model().tokenizer_ = std::make_unique<FakeTokenizer>(Letters());
  GenerateOptions options = Greedy(3);
  options.stop = {"fgh"};
  Ids tokens;
  options.on_token = [&](std::string_view, int32_t token) {
    tokens.push_back(token);
    return true;
  };
  const auto result = Generate(engine, Ids{3}, options);
  EXPECT_EQ(result->text, "efg");
  EXPECT_EQ(result->finish, FinishReason::kLength);
  EXPECT_EQ(tokens, (Ids{4, 5, 6, -1}));
}

// Once it has said that it wants no more, the listener is left alone; the result still tells all that was generated.
TEST(Generate, AListenerThatStopsIsNotCalledAgain) {
  FakeEngine engine(26);
  engine.fake_model().tokenizer_ = std::make_unique<FakeTokenizer>(Letters());
  GenerateOptions options = Greedy(20);
  options.stop = {"fgz"};
  Ids tokens;
  options.on_token = [&](std::string_view, int32_t token) {
    tokens.push_back(token);
    return token != 6;  // 'g': "fg" is held back then
  };
  const auto result = Generate(engine, Ids{3}, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(tokens, (Ids{4, 5, 6}));
  EXPECT_EQ(result->tokens, tokens);
  EXPECT_EQ(result->text, "efg");
  EXPECT_EQ(result->finish, FinishReason::kInterrupted);
}

TEST(Generate, CharactersStayWhole) {
  FakeEngine engine(4);
  engine.fake_model().tokenizer_ = std::make_unique<FakeTokenizer>(std::vector<std::string>{"a", "\xe2", "\x82", "\xac"});
  GenerateOptions options = Greedy(5);
  std::vector<std::string> pieces;
  options.on_token = [&](std::string_view piece, int32_t) {
    pieces.emplace_back(piece);
    return true;
  };
  EXPECT_EQ(Generate(engine, Ids{0}, options)->text,
            "\xe2\x82\xac"
            "a\xef\xbf\xbd");  // the last one is cut short: U+FFFD
  EXPECT_EQ(pieces, (std::vector<std::string>{"", "", "\xe2\x82\xac", "a", "", "\xef\xbf\xbd"}));
}

TEST(Generate, Interruptions) {
  FakeEngine engine(100);
  GenerateOptions options = Greedy(50);
  int polls = 0;
  options.interrupted = [&] { return ++polls > 4; };
  auto result = Generate(engine, Ids(20, 1), options);  // three prefill pieces, then one poll before each decode step
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish, FinishReason::kInterrupted);
  EXPECT_EQ(result->tokens.size(), 2u);
  polls = 3;
  result = Generate(engine, Ids(20, 1), options);
  EXPECT_EQ(result->finish, FinishReason::kInterrupted);
  EXPECT_EQ(result->prompt_tokens, 8);
  EXPECT_TRUE(result->tokens.empty());
  options.interrupted = nullptr;
  options.on_token = [](std::string_view, int32_t token) { return token < 3; };
  result = Generate(engine, Ids{0}, options);
  EXPECT_EQ(result->finish, FinishReason::kInterrupted);
  EXPECT_EQ(result->tokens, (Ids{1, 2, 3}));
  EXPECT_EQ(engine.live_sequences(), 0u);
}

TEST(Generate, BadRequests) {
  FakeEngine engine(100, 10);
  auto message = [&](Ids prompt, GenerateOptions options) {
    const auto result = Generate(engine, prompt, options);
    EXPECT_EQ(result.status().code(), StatusCode::kBadInput);
    return result.status().message();
  };
  EXPECT_NE(message({}, Greedy(1)).find("no tokens"), std::string::npos);
  EXPECT_NE(message({1, 100}, Greedy(1)).find("token 1 of the prompt is 100: ids of this model are 0 to 99"), std::string::npos);
  EXPECT_NE(message({-1}, Greedy(1)).find("-1"), std::string::npos);
  EXPECT_NE(message(Ids(11, 1), Greedy(1)).find("11 tokens"), std::string::npos);
  EXPECT_NE(message({1}, Greedy(-2)).find("-2"), std::string::npos);
  GenerateOptions options = Greedy(1);
  options.stop = {"x"};
  EXPECT_NE(message({1}, options).find("tokenizer"), std::string::npos);
  options = Greedy(1);
  options.sampling.top_p = std::nan("");
  EXPECT_NE(message({1}, options).find("top-p"), std::string::npos);
  EXPECT_TRUE(engine.steps.empty());
}

TEST(Generate, AnErrorInThePromptIsItsOwn) {
  FakeEngine engine(100);
  engine.fail_at = 1;
  const auto result = Generate(engine, Ids(9, 1), Greedy(5));  // two steps
  EXPECT_EQ(result.status().message(), "broken on purpose");
  EXPECT_EQ(engine.live_sequences(), 0u);
}

// What was generated before a step failed is all there, the text held back too.
TEST(Generate, AnErrorLaterKeepsWhatWasGenerated) {
  FakeEngine engine(26);
  engine.fake_model().tokenizer_ = std::make_unique<FakeTokenizer>(Letters());
  GenerateOptions options = Greedy(20);
  options.stop = {"ghz"};
  std::string streamed;
  options.on_token = [&](std::string_view piece, int32_t) {
    streamed += piece;
    return true;
  };
  engine.fail_at = 4;
  const auto result = Generate(engine, Ids{3}, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->finish, FinishReason::kError);
  EXPECT_EQ(result->error.code(), StatusCode::kInternal);
  EXPECT_EQ(result->error.message(), "broken on purpose");
  EXPECT_EQ(result->tokens, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(result->text, "efgh");
  EXPECT_EQ(streamed, "efgh");
  EXPECT_EQ(result->decode_steps, 3);
  EXPECT_EQ(engine.live_sequences(), 0u);
}

TEST(MeasureRun, ReadsTheLedger) {
  FakeEngine engine(100);
  engine.fake_model().parameters_.total = 12345;
  const auto result = Generate(engine, Ids{1, 2, 3}, Greedy(4));
  const books::RunFigures f = MeasureRun(engine, *result);
  EXPECT_EQ(f.parameters.total, 12345u);
  EXPECT_EQ(f.prompt_tokens, 3);
  EXPECT_EQ(f.generated_tokens, 4);
  EXPECT_EQ(f.decode_steps, 3u);
  EXPECT_EQ(f.all.useful, 1017);
  EXPECT_EQ(f.target, "FAKE");
  EXPECT_FALSE(RunSummary(f).empty());
}

}  // namespace
}  // namespace tally
