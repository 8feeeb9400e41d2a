// SPDX-License-Identifier: Apache-2.0
// Answers of the bundled model that follow a grammar: as if every logit that it forbids were minus infinity, alone and beside others, with
// drafts and without; and what it leaves no choice about runs in one step.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

const char* const kSchema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":24},"kind":{"enum":["king","queen","fool"]},
"age":{"type":"integer","minimum":1,"maximum":99},"lines":{"type":"array","items":{"type":"string","pattern":"^[A-Z][a-z ]*[.!]$","maxLength":30},"maxItems":3}},
"required":["name","kind","age","lines"],"additionalProperties":false})";

struct Demo {
  Opened opened;
  std::vector<int32_t> prompt = {};
  std::shared_ptr<Grammar> grammar = {};
  const Tokenizer& tokenizer() const { return *opened.engine->model().tokenizer(); }
};

Demo MakeDemo(int64_t draft_rows = 0, int32_t sequences = 1) {
  EngineOptions options;
  options.threads = 2;
  options.context = 512;
  options.sequences = sequences;
  options.draft_rows = draft_rows;
  Demo demo{.opened = Open(std::string(TALLY_SOURCE_DIR) + "/models/demo/demo.gguf", options)};
  demo.prompt = *demo.tokenizer().Encode("ROMEO:\nWhat say you? ");
  demo.grammar = *Grammar::FromSchema(kSchema);
  return demo;
}

GenerateOptions Options(const Demo& demo, uint64_t seed, bool jump) {
  GenerateOptions options;
  options.max_tokens = 300;
  options.sampling = {.temperature = seed == 0 ? 0.0 : 1.2, .seed = seed};
  options.grammar = demo.grammar;
  options.jump = jump;
  return options;
}

// By the definition, a token a step.
std::vector<int32_t> ByHand(const Demo& demo, const SamplingOptions& sampling) {
  Engine& engine = *demo.opened.engine;
  const int32_t sequence = *engine.NewSequence();
  Sampler sampler(sampling);
  GrammarCursor cursor(demo.grammar, engine.model().vocabulary());
  std::vector<int32_t> history = demo.prompt, tokens;
  std::vector<BatchRow> rows;
  for (size_t i = 0; i < demo.prompt.size(); ++i) rows.push_back({demo.prompt[i], sequence, i + 1 == demo.prompt.size()});
  while (!cursor.IsComplete() && tokens.size() < 300) {
    const auto out = engine.StepAll(rows);
    EXPECT_TRUE(out.ok());
    const std::span<const float> logits(out->Row(0), static_cast<size_t>(out->cols));
    std::vector<float> masked(logits.begin(), logits.end());
    const TokenMask mask = cursor.Mask();
    int allowed = 0;
    int32_t only = -1;
    for (size_t i = 0; i < masked.size(); ++i) {
      if (((*mask)[i / 64] >> (i % 64) & 1) != 0) {
        ++allowed;
        only = static_cast<int32_t>(i);
      } else {
        masked[i] = -std::numeric_limits<float>::infinity();
      }
    }
    const int32_t token = allowed == 1 ? only : sampler.Sample(masked, history);
    if (!cursor.Take(token) || cursor.ended()) break;
    tokens.push_back(token);
    history.push_back(token);
    rows = {{token, sequence, true}};
  }
  engine.Free(sequence);
  return tokens;
}

bool IsValid(const Demo& demo, const std::string& text) { return demo.grammar->Accepts(text) && nlohmann::json::accept(text); }

TEST(Guided, DrawsAsIfForbiddenLogitsWereMinusInfinity) {
  const Demo demo = MakeDemo();
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const GenerateOptions options = Options(demo, seed, /*jump=*/false);
    const Result<GenerateResult> result = Generate(*demo.opened.engine, demo.prompt, options);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->finish, FinishReason::kEos);
    EXPECT_EQ(result->forced, 0);
    EXPECT_TRUE(IsValid(demo, result->text)) << result->text;
    EXPECT_EQ(result->tokens, ByHand(demo, options.sampling)) << seed;
  }
}

TEST(Guided, WhatIsDecidedRunsInOneStepCutAsTheTokenizerCutsIt) {
  const Demo demo = MakeDemo();
  int64_t forced = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Result<GenerateResult> result = Generate(*demo.opened.engine, demo.prompt, Options(demo, seed, /*jump=*/true));
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_TRUE(IsValid(demo, result->text)) << result->text;
    forced += result->forced;
    EXPECT_LT(result->decode_tokens, static_cast<int64_t>(result->tokens.size()));  // what ends the answer does not run
    EXPECT_LE(result->decode_steps, static_cast<int64_t>(result->tokens.size()) - result->forced);
  }
  EXPECT_GT(forced, 60);
  // An answer without a choice is the tokenizer's.
  const std::string text = R"({"name":"Romeo and Juliet","kind":"king","lines":["What say you?","Speak, speak!"]})";
  const std::vector<int32_t> whole = *demo.tokenizer().EncodeSegments(std::vector<TextSegment>{{.text = text}});
  // The first token is drawn: the tokenizer's.
  const auto request = *Request::New(*demo.opened.engine, demo.prompt,
                                     {.sampling = {.temperature = 0},
                                      .logit_bias = {{whole.front(), 1e6F}},
                                      .grammar = *Grammar::FromChoices(std::vector<std::string>{text})});
  Scheduler scheduler(*demo.opened.engine);
  scheduler.Add(request);
  while (!scheduler.idle()) scheduler.Step();
  EXPECT_EQ(request->result().finish, FinishReason::kEos);
  EXPECT_EQ(request->result().tokens, whole);
  EXPECT_EQ(request->result().decode_steps, 0);
}

TEST(Guided, DraftsAndCompanyChangeNothing) {
  const Demo alone = MakeDemo(), drafts = MakeDemo(/*draft_rows=*/8), many = MakeDemo(0, 6);
  for (const bool jump : {false, true}) {
    std::vector<std::vector<int32_t>> expected;
    int64_t drafted = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const Result<GenerateResult> result = Generate(*alone.opened.engine, alone.prompt, Options(alone, seed, jump));
      ASSERT_TRUE(result.ok());
      expected.push_back(result->tokens);
      GenerateOptions options = Options(drafts, seed, jump);
      options.draft = 6;
      const Result<GenerateResult> with = Generate(*drafts.opened.engine, drafts.prompt, options);
      ASSERT_TRUE(with.ok()) << with.status().message();
      EXPECT_EQ(with->tokens, expected.back()) << seed;
      drafted += with->drafted;
    }
    EXPECT_GT(drafted, 0);
    Scheduler scheduler(*many.opened.engine);
    std::vector<std::shared_ptr<Request>> requests;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const GenerateOptions options = Options(many, seed, jump);
      requests.push_back(
          *Request::New(*many.opened.engine, many.prompt,
                        {.max_tokens = options.max_tokens, .sampling = options.sampling, .grammar = many.grammar, .jump = jump}));
      scheduler.Add(requests.back());
    }
    while (!scheduler.idle()) scheduler.Step();
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(requests[i]->result().tokens, expected[i]) << i;
  }
}

TEST(Guided, LimitsAndErrorsAreSaid) {
  const Demo demo = MakeDemo();
  GenerateOptions options = Options(demo, 1, true);
  options.max_tokens = 7;
  const Result<GenerateResult> cut = Generate(*demo.opened.engine, demo.prompt, options);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->finish, FinishReason::kLength);
  EXPECT_EQ(cut->tokens.size(), 7u);
  options = Options(demo, 1, true);
  options.ignore_eos = true;
  EXPECT_EQ(Generate(*demo.opened.engine, demo.prompt, options).status().code(), StatusCode::kBadInput);
}

// Thinking comes first and is free; the grammar begins behind the mark that ends it. Calls are free too, where they may be made.
TEST(Guided, TheGrammarBeginsWhereTheContentDoes) {
  const Demo demo = MakeDemo();
  const Engine& engine = *demo.opened.engine;
  // A mark that the bundled model is made to write: it replays these tokens.
  const std::string thoughts = "Let me think.\n\n{ not JSON";
  const std::string text = R"({"name":"x","kind":"fool","age":7,"lines":[]})";
  const std::vector<int32_t> replay =
      *demo.tokenizer().EncodeSegments(std::vector<TextSegment>{{.text = thoughts + "</t>" + text}});
  RequestOptions options{.max_tokens = 300,
                         .grammar = demo.grammar,
                         .start = {.thinking_begin = "<t>", .thinking_end = "</t>", .in_thinking = true},
                         .replay = replay};
  const auto request = *Request::New(engine, demo.prompt, options);
  Scheduler scheduler(*demo.opened.engine);
  scheduler.Add(request);
  while (!scheduler.idle()) scheduler.Step();
  EXPECT_EQ(request->result().finish, FinishReason::kEos) << request->result().error.message();
  EXPECT_EQ(request->result().tokens, replay);
  // Without the mark, it is what the grammar does not allow.
  options.start = {};
  const auto refused = *Request::New(engine, demo.prompt, options);
  scheduler.Add(refused);
  while (!scheduler.idle()) scheduler.Step();
  EXPECT_EQ(refused->result().finish, FinishReason::kError);
  EXPECT_EQ(
      Request::New(engine, demo.prompt, {.grammar = demo.grammar, .start = {.call_marks = {"<no token>"}}, .may_call = true})
          .status()
          .code(),
      StatusCode::kBadInput);
}

// Thinking that the model begins itself, by a token of its own, is free: also to end.
TEST(Guided, ThinkingThatWasBegunCanEnd) {
  const Demo demo = MakeDemo();
  const auto token = [&](const char* text) {
    const std::vector<int32_t> ids = *demo.tokenizer().EncodeSegments(std::vector<TextSegment>{{.text = text}});
    EXPECT_EQ(ids.size(), 1u) << text;
    return ids.front();
  };
  const int32_t begin = token("T"), end = token("\n");
  const auto request = *Request::New(*demo.opened.engine, demo.prompt,
                                     {.max_tokens = 300,
                                      .logit_bias = {{begin, 1e5F}, {end, 1e6F}},
                                      .grammar = demo.grammar,
                                      .start = {.thinking_begin = "T", .thinking_end = "\n"}});
  Scheduler scheduler(*demo.opened.engine);
  scheduler.Add(request);
  while (!scheduler.idle()) scheduler.Step();
  const std::vector<int32_t>& tokens = request->result().tokens;
  ASSERT_GT(tokens.size(), 3u);
  EXPECT_EQ(tokens[0], begin);
  EXPECT_EQ(tokens[1], end);
  EXPECT_EQ(tokens[2], end);  // of the gap before the content
  EXPECT_EQ(request->result().finish, FinishReason::kEos);
  EXPECT_TRUE(IsValid(demo, demo.tokenizer().Decode(std::span(tokens).subspan(3)))) << demo.tokenizer().Decode(tokens);
}

}  // namespace
}  // namespace tally
