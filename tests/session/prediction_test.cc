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
#include "tests/session/made_prediction.h"
#include "tests/session/prediction_reference.h"
#include "tests/support/charges.h"
#include "tests/support/goldens.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_folder.h"

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
  EngineOptions options = drafted::DraftOptions();
  options.sequences = 4;
  options.prediction = true;
  return options;
}

std::vector<double> RowOf(Mat<const float> m, int64_t row) { return {m.Row(row), m.Row(row) + m.cols}; }

class Prediction : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = kGoldens + GetParam();
    if (GetParam() == kMade) MakeQwen35(path_ = made_ / "qwen35");
  }
  std::string Directory() const { return path_.ends_with(".gguf") ? path_.substr(0, path_.rfind('/')) : path_; }

  static constexpr const char* kMade = "made/qwen35";
  TempFolder made_;
  std::string path_;
};

// A prompt in one step, and the same row by row: drafts, and the logits that they are of, are those of the formulas.
TEST_P(Prediction, LogitsAreTheFormulas) {
  EngineOptions options = PredictionOptions();
  options.activations = ActivationMode::kF32;
  const Opened opened = Open(path_, options);
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

// A text of guesses, of each the first `right` tokens, with others between them: as far as drafts go, they are these.
Tokens GuessedAnswer(Engine& engine, const Tokens& prompt, size_t right, size_t tokens) {
  const size_t vocab = static_cast<size_t>(engine.model().recipe().vocab);
  const int32_t s = engine.NewSequence().value();
  Tokens text = prompt;
  size_t ran = 0;
  for (size_t step = 1; text.size() < prompt.size() + tokens; ++step) {
    text.push_back(static_cast<int32_t>((7 * step + right) % vocab));  // drawn
    for (; ran + 1 < text.size(); ++ran) {
      const BatchRow row{.token = text[ran], .sequence = s, .generated = ran >= prompt.size()};
      EXPECT_TRUE(engine.Step(std::vector<BatchRow>{row}).ok());
    }
    const auto guessed = engine.Predict(std::vector<DraftWish>{{.sequence = s, .token = text.back(), .most = 4}});
    EXPECT_TRUE(guessed.ok());
    if (!guessed.ok() || (*guessed)[0].size() < right) break;
    text.insert(text.end(), (*guessed)[0].begin(), (*guessed)[0].begin() + static_cast<int64_t>(right));
  }
  engine.Free(s);
  return {text.begin() + static_cast<int64_t>(prompt.size()), text.end()};
}

// Any number of guesses is right, alone and in company: the logits are those of single steps.
TEST_P(Prediction, AnswersAreTheSameToTheBit) {
  const Opened opened = Open(path_, PredictionOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  std::set<Pattern> patterns;
  std::vector<std::shared_ptr<Request>> company;
  std::vector<Said> expected;
  int64_t most = 0;
  for (uint32_t seed = 0; seed < 10; ++seed) {  // a guess at an end token does not run: so two texts of each kind
    const Tokens prompt = Recording(opened.model->recipe().vocab, 60, 1, seed).first;
    const Tokens answer = GuessedAnswer(engine, prompt, seed % 5, 150);
    RequestOptions options{.max_tokens = static_cast<int64_t>(answer.size()),
                           .ignore_eos = true,
                           .top_logprobs = 2,
                           .prefix_key = seed == 1 ? std::optional<std::string>("key") : std::nullopt,
                           .replay = answer};
    const auto plain = NewRequest(engine, prompt, options);
    RunAll(engine, {plain});
    options.draft = 4;
    const auto drafted = NewRequest(engine, prompt, options);
    patterns.merge(RunAll(engine, {drafted}));
    const Said said = SaidBy(*plain);
    EXPECT_EQ(said.tokens, answer);
    EXPECT_EQ(SaidBy(*drafted), said) << seed;
    most = std::max(most, drafted->result().accepted);
    if (seed == 0 || company.size() == 3) continue;
    company.push_back(NewRequest(engine, prompt, options));
    expected.push_back(said);
  }
  EXPECT_GT(most, 30);
  for (int64_t accepted = 0; accepted <= 4; ++accepted) {
    const auto has = [&](const Pattern& p) { return p.first > accepted ? p.second == accepted : p == Pattern{4, 4}; };
    EXPECT_TRUE(std::ranges::any_of(patterns, has)) << accepted;
  }
  RunAll(engine, company);
  for (size_t i = 0; i < company.size(); ++i) EXPECT_EQ(SaidBy(*company[i]), expected[i]) << i;
}

// All bills are the ledger. Less what was in vain and what predicted, the FLOPs are those without drafts; no row and no step more is counted.
TEST_P(Prediction, BillsAreTheLedger) {
  const Opened opened = Open(path_, PredictionOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const auto [prompt, answer] = Recording(opened.model->recipe().vocab, 40, 90, 2);
  EngineOptions plain_options = PredictionOptions();
  plain_options.prediction = false;
  const Opened without = Open(path_, plain_options);
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
                                         "deepseek_v3/deepseek3-a-f32-groups-mtp", "made/qwen35"),
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
  // Of a family whose layer is another.
  const auto other = ReadFamily(ReadConfigText(R"({"model_type": "exaone_moe", "architectures": ["ExaoneMoEForCausalLM"],
      "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2,
      "num_shared_experts": 1, "first_k_dense_replace": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
      "sliding_window": 16, "num_nextn_predict_layers": 1})",
                                               "config.json")
                                    .value(),
                                DType::kF32, /*prediction=*/true);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("of family exaone-moe cannot be run yet"), std::string::npos)
      << other.status().message();
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
