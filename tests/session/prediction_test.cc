// SPDX-License-Identifier: Apache-2.0
// Drafts by a checkpoint's own layer for multi-token prediction: the layer's logits, answers with and without, and bills.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/session/drafted.h"
#include "tests/session/prediction_reference.h"
#include "tests/support/charges.h"
#include "tests/support/goldens.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

using drafted::NewRequest;
using drafted::Pattern;
using drafted::Recording;
using drafted::RunAll;
using drafted::Said;
using drafted::SaidBy;
using drafted::Tokens;

EngineOptions PredictionOptions() {
  EngineOptions options;
  options.threads = 2;
  options.context = 512;
  options.max_batch = 24;
  options.sequences = 4;
  options.draft_rows = 7;
  options.share_gain_ns = 0;
  options.prediction = true;
  return options;
}

std::vector<double> RowOf(Mat<const float> m, int64_t row) { return {m.Row(row), m.Row(row) + m.cols}; }

class Prediction : public testing::TestWithParam<std::string> {
 protected:
  static std::string Directory() {
    const std::string path = kGoldens + GetParam();
    return path.ends_with(".gguf") ? path.substr(0, path.rfind('/')) : path;
  }
};

// A prompt in one step, and the same row by row: drafts, and the logits that they are of, are those of the formulas.
TEST_P(Prediction, LogitsAreTheFormulas) {
  EngineOptions options = PredictionOptions();
  options.activations = ActivationMode::kF32;
  const Opened opened = Open(kGoldens + GetParam(), options);
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const Recipe& recipe = opened.model->recipe();
  PredictionReference reference(Directory(), recipe, MakeRopeFrequencies(recipe.rope, {}, options.context).value());
  const Tokens tokens = Recording(recipe.vocab, 21, 1, 3).first;
  const size_t n = tokens.size() - 1;  // the last one follows
  const int32_t one = engine.NewSequence().value(), all = engine.NewSequence().value();
  std::vector<std::vector<double>> hidden;
  for (size_t i = 0; i < n; ++i) {
    bool first = true;
    engine.SetTap([&](Site site, std::string_view, Mat<const float> out) {
      if (!first || site.component != Component::kOutputNorm) return;
      first = false;
      hidden.push_back(RowOf(out, 0));
    });
    ASSERT_TRUE(
        engine.Step(std::vector<BatchRow>{{.token = tokens[i], .sequence = one, .want_logits = true, .generated = i > 8}}).ok());
  }
  engine.SetTap({});
  ASSERT_EQ(hidden.size(), n);
  std::vector<BatchRow> rows;
  for (size_t i = 0; i < n; ++i) rows.push_back({.token = tokens[i], .sequence = all, .want_logits = i + 1 == n});
  ASSERT_TRUE(engine.Step(rows).ok());

  std::vector<std::vector<double>> of[2];  // logits of each draft
  Tokens drafts;
  for (const int32_t sequence : {all, one}) {
    auto& logits = of[sequence == one ? 1 : 0];
    engine.SetTap([&](Site site, std::string_view op, Mat<const float> out) {
      if (site.component == Component::kHead && op == "matmul") logits.push_back(RowOf(out, out.rows - 1));
    });
    const auto guessed = engine.Predict(std::vector<DraftWish>{{.sequence = sequence, .token = tokens.back(), .most = 4}});
    ASSERT_TRUE(guessed.ok()) << guessed.status().message();
    EXPECT_EQ(engine.Length(sequence), static_cast<int64_t>(n));
    if (sequence == all) drafts = (*guessed)[0];
    EXPECT_EQ((*guessed)[0], drafts) << "in one step or in many";
  }
  engine.SetTap({});
  ASSERT_EQ(drafts.size(), 4u);
  EXPECT_EQ(of[0], of[1]);
  ASSERT_EQ(of[0].size(), 4u);
  Tokens next(tokens.begin() + 1, tokens.end());
  for (size_t d = 0; d < drafts.size(); ++d) {
    const auto expected = reference.Run(hidden, next);
    const std::vector<double>& logits = expected.logits.back();
    double most = 0;
    for (const double x : logits) most = std::max(most, std::fabs(x));
    for (size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(of[0][d][i], logits[i], 2e-5 * most) << "draft " << d << ", token " << i;
    EXPECT_EQ(drafts[d], std::max_element(logits.begin(), logits.end()) - logits.begin());
    hidden.push_back(expected.head_in.back());
    next.push_back(drafts[d]);
  }
}

// Answers of which all, a part or the first of the tokens is what the layer guesses: the logits are those of single steps.
TEST_P(Prediction, AnswersAreTheSameToTheBit) {
  const Opened opened = Open(kGoldens + GetParam(), PredictionOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const int32_t vocab = opened.model->recipe().vocab;
  std::vector<Tokens> prompts, answers;
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const Tokens& prompt = prompts.emplace_back(Recording(vocab, 60, 1, seed).first);
    Tokens& answer = answers.emplace_back();
    const int32_t s = engine.NewSequence().value();
    Tokens text = prompt;  // nothing is guessed before a token was drawn
    text.push_back(static_cast<int32_t>(seed));
    for (size_t ran = 0, step = 0; answer.size() < 150;) {
      for (; ran + 1 < text.size(); ++ran) {
        ASSERT_TRUE(
            engine.Step(std::vector<BatchRow>{{.token = text[ran], .sequence = s, .generated = ran >= prompt.size()}}).ok());
      }
      const auto guessed = engine.Predict(std::vector<DraftWish>{{.sequence = s, .token = text.back(), .most = 4}});
      ASSERT_TRUE(guessed.ok());
      ++step;
      const size_t right = seed == 0 ? 4 : seed == 1 ? 3 * step % 5 : 2;
      for (size_t i = 0; i < right && i < (*guessed)[0].size(); ++i) text.push_back((*guessed)[0][i]);
      text.push_back(static_cast<int32_t>((7 * step + 3) % static_cast<size_t>(vocab)));
      answer.assign(text.begin() + static_cast<int64_t>(prompt.size()), text.end());
    }
    engine.Free(s);
  }
  std::vector<std::shared_ptr<Request>> company;
  std::vector<Said> expected;
  std::set<Pattern> patterns;
  for (const int64_t draft : {0, 4}) {
    company.clear();
    for (size_t i = 0; i < prompts.size(); ++i) {
      const RequestOptions options{.max_tokens = static_cast<int64_t>(answers[i].size()),
                                   .ignore_eos = true,
                                   .top_logprobs = 2,
                                   .prefix_key = i == 1 ? std::optional<std::string>("key") : std::nullopt,
                                   .draft = draft,
                                   .replay = answers[i]};
      company.push_back(NewRequest(engine, prompts[i], options));
      const auto alone = NewRequest(engine, prompts[i], options);
      patterns.merge(RunAll(engine, {alone}));
      if (draft == 0) expected.push_back(SaidBy(*alone));
      EXPECT_EQ(SaidBy(*alone).tokens, answers[i]);
      if (draft == 0) continue;
      EXPECT_GT(alone->result().accepted, i == 0 ? 80 : 0) << i;
      EXPECT_TRUE(i == 0 || alone->result().accepted < alone->result().drafted) << i;
    }
  }
  RunAll(engine, company);
  int64_t accepted_in_company = 0;
  for (size_t i = 0; i < company.size(); ++i) {
    EXPECT_EQ(SaidBy(*company[i]), expected[i]) << i;
    accepted_in_company += company[i]->result().accepted;
  }
  EXPECT_GT(accepted_in_company, 0);
  for (int64_t accepted = 0; accepted <= 4; ++accepted) {
    const auto has = [&](const Pattern& p) { return p.first > accepted ? p.second == accepted : p == Pattern{4, 4}; };
    EXPECT_TRUE(std::ranges::any_of(patterns, has)) << accepted;
  }
}

// All bills are the ledger. Less what was in vain and what predicted, the FLOPs are those without drafts; no row and no step more is counted.
TEST_P(Prediction, BillsAreTheLedger) {
  const Opened opened = Open(kGoldens + GetParam(), PredictionOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const auto [prompt, answer] = Recording(opened.model->recipe().vocab, 40, 90, 2);
  EngineOptions plain_options = PredictionOptions();
  plain_options.prediction = false;
  const Opened without = Open(kGoldens + GetParam(), plain_options);
  ASSERT_NE(without.engine, nullptr);
  EXPECT_FALSE(without.engine->predicts());
  std::vector<GenerateResult> results;
  for (Engine* const on : {without.engine.get(), opened.engine.get()}) {
    on->ledger().Reset();
    const RequestOptions options{
        .max_tokens = static_cast<int64_t>(answer.size()), .ignore_eos = true, .draft = on->predicts() ? 4 : 0, .replay = answer};
    const auto request = NewRequest(*on, prompt, options);
    RunAll(*on, {request});
    results.push_back(request->result());
  }
  const GenerateResult &plain = results[0], &drafted = results[1];
  const DraftWork& drafts = drafted.bill.drafts;
  EXPECT_GT(drafts.rows, 0u);
  EXPECT_EQ(drafts.rows, static_cast<uint64_t>(drafted.drafted));
  const Ledger& ledger = engine.ledger();
  Cost sum = ledger.unbilled();
  sum += drafted.bill.total().useful;
  EXPECT_EQ(sum, UsefulTotal(ledger));
  EXPECT_EQ(ledger.drafts().predicting, drafts.predicting);
  for (int c = 0; c < kWorkClasses; ++c) {
    const WorkClass of = static_cast<WorkClass>(c);
    EXPECT_EQ(drafted.bill.total().useful.Flops(of) - drafts.in_vain.Flops(of) - drafts.predicting.Flops(of),
              plain.bill.total().useful.Flops(of))
        << kWorkClassNames[static_cast<size_t>(c)];
  }
  EXPECT_GT(drafts.predicting.Bytes(ByteKind::kWeightsPacked), 0u);
  EXPECT_EQ(drafted.bill.total().rows - drafts.rejected, plain.bill.total().rows);
  EXPECT_EQ(ledger.rows(Phase::kPrefill), prompt.size());
  EXPECT_EQ(ledger.steps(Phase::kDecode), static_cast<uint64_t>(drafted.decode_passes));
  Cost layer;
  const int32_t last = opened.model->recipe().n_layers;
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    for (const auto& [site, account] : ledger.sites(phase)) {
      if (site.layer == last) layer += account.useful;
      EXPECT_LE(site.layer, last);
    }
  }
  EXPECT_GT(layer.TotalFlops(), 0u);
  EXPECT_GT(drafts.predicting.TotalFlops(), layer.TotalFlops()) << "and the head";
  // What is run is loaded, and counted as such.
  const ParameterCounts &with = opened.model->parameters(), &less = without.model->parameters();
  EXPECT_EQ(with.total - less.total, without.model->not_run().parameters - opened.model->not_run().parameters);
  EXPECT_GT(with.total, less.total);
  EXPECT_GT(drafted.bill.parameters_touched(), less.total);
}

INSTANTIATE_TEST_SUITE_P(Families, Prediction,
                         testing::Values("glm4_moe/glm45-a-f32-qknorm-groups-mtp",
                                         "glm4_moe/glm45-a-f32-qknorm-groups-mtp/model.gguf",
                                         "deepseek_v3/deepseek3-a-f32-groups-mtp"),
                         [](const auto& tested) {
                           std::string name = tested.param.substr(tested.param.find('/') + 1);
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

TEST(PredictionLayer, IsMissedByName) {
  const EngineOptions options = PredictionOptions();
  const auto says = [&](const std::string& model, const std::string& what) {
    const auto loaded = LoadModel(kGoldens + model, options);
    ASSERT_FALSE(loaded.ok()) << model;
    EXPECT_NE(loaded.status().message().find(what), std::string::npos) << loaded.status().message();
  };
  says("llama/llama-a-f32-gqa-untied", "has no layers for multi-token prediction");
  says("glm4_moe/glm45-b-f32-plain-norenorm", "has no layers for multi-token prediction");
  EngineOptions plain = options;
  plain.prediction = false;
  const auto model = LoadModel(kGoldens + "glm4_moe/glm45-a-f32-qknorm-groups-mtp", plain);
  ASSERT_TRUE(model.ok());
  EXPECT_FALSE(NewEngine(*model, options).ok()) << "it was not loaded";
  const auto engine = NewEngine(*model, plain);
  ASSERT_TRUE(engine.ok());
  EXPECT_FALSE((*engine)->Predict({}).ok());
}

}  // namespace
}  // namespace tally
