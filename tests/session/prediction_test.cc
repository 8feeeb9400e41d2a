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

#include "engine/kernels/kv_store/kv_layout.h"
#include "models/family.h"
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
    constexpr std::string_view kMade = "made/";
    path_ = kGoldens + GetParam();
    if (!GetParam().starts_with(kMade)) return;
    const std::string name = GetParam().substr(kMade.size());
    MakePredicting(name.substr(0, name.find('.')), path_ = made_ / name);
  }

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
  const bool turns = recipe.rope.style != RopeStyle::kNone;
  PredictionReference reference(path_, recipe,
                                turns ? MakeRopeFrequencies(recipe.rope, {}, options.context).value() : RopeFrequencies{});
  const Tokens tokens = Recording(recipe.vocab, 21, 1, 3).first;
  const size_t n = tokens.size() - 1;  // the last one follows
  const int32_t one = engine.NewSequence().value(), all = engine.NewSequence().value();
  std::vector<std::vector<double>> hidden;
  for (size_t i = 0; i < n; ++i) {
    bool first = true;
    engine.probe().SetTap([&](Site site, std::string_view, Mat<const float> out) {
      if (!first || site.component != Component::kOutputNorm) return;
      first = false;
      hidden.push_back(RowOf(out, 0));
    });
    ASSERT_TRUE(
        engine.Step(std::vector<BatchRow>{{.token = tokens[i], .sequence = one, .want_logits = true, .generated = i > 8}}).ok());
  }
  engine.probe().SetTap({});
  ASSERT_EQ(hidden.size(), n);
  std::vector<BatchRow> rows;
  for (size_t i = 0; i < n; ++i) rows.push_back({.token = tokens[i], .sequence = all, .want_logits = i + 1 == n});
  ASSERT_TRUE(engine.Step(rows).ok());

  std::vector<std::vector<double>> of[2];  // logits of each draft
  Tokens drafts;
  for (const int32_t sequence : {all, one}) {
    auto& logits = of[sequence == one ? 1 : 0];
    engine.probe().SetTap([&](Site site, std::string_view op, Mat<const float> out) {
      if (site.component == Component::kHead && op == "matmul") logits.push_back(RowOf(out, out.rows - 1));
    });
    const auto guessed = engine.Predict(std::vector<DraftWish>{{.sequence = sequence, .token = tokens.back(), .most = 4}});
    ASSERT_TRUE(guessed.ok()) << guessed.status().message();
    EXPECT_EQ(engine.Length(sequence), static_cast<int64_t>(n));
    if (sequence == all) drafts = (*guessed)[0];
    EXPECT_EQ((*guessed)[0], drafts) << "in one step or in many";
  }
  engine.probe().SetTap({});
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

// What is drawn at a temperature, with a penalty, until an answer's length or the context's end, alone without drafts; and in company with
// drafts, where there is no room for all.
TEST_P(Prediction, DrawTheSameInCompanyAndPreempted) {
  EngineOptions options = PredictionOptions();
  options.context = 200;
  const Opened alone = Open(path_, options);
  ASSERT_NE(alone.engine, nullptr);
  options.kv_bytes = alone.engine->KvBytesFor(200) * 3 / 2;
  const Opened tight = Open(path_, options);
  ASSERT_NE(tight.engine, nullptr);
  std::vector<std::shared_ptr<Request>> company;
  std::vector<Said> expected;
  for (const int64_t tokens : {120, 130, -1}) {
    const uint32_t i = static_cast<uint32_t>(company.size());
    RequestOptions request{.max_tokens = tokens, .ignore_eos = true, .top_logprobs = 1};
    request.sampling = {.top_k = 8, .temperature = 0.7, .seed = i};
    if (i == 1) request.sampling.repeat_penalty = 1.1;
    const Tokens prompt = Recording(alone.model->recipe().vocab, 60, 1, i).first;
    const auto plain = NewRequest(*alone.engine, prompt, request);
    RunAll(*alone.engine, {plain});
    expected.push_back(SaidBy(*plain));
    request.draft = 3;
    company.push_back(NewRequest(*tight.engine, prompt, request));
  }
  EXPECT_EQ(expected[2].finish, FinishReason::kContextFull);
  RunAll(*tight.engine, company);
  int64_t drafted = 0, preempted = 0;
  for (size_t i = 0; i < company.size(); ++i) {
    EXPECT_EQ(SaidBy(*company[i]), expected[i]) << i;
    drafted += company[i]->result().drafted;
    preempted += company[i]->preemptions();
  }
  EXPECT_GT(drafted, 0);
  EXPECT_GT(preempted, 0);
}

// All bills are the ledger. Less what was in vain and what predicted, the FLOPs are those without drafts; no row and no
// step more is counted.
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
  EXPECT_EQ(ledger.steps(Phase::kDecode), static_cast<uint64_t>(drafted.decode_steps));
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
                                         "deepseek_v3/deepseek3-a-f32-groups-mtp", "made/deepseek3.gguf", "made/qwen35",
                                         "made/qwen35.gguf", "made/qwen35moe", "made/qwen35moe.gguf", "made/qwen3next",
                                         "made/qwen3next.gguf", "made/nemotron", "made/nemotron.gguf"),
                         [](const auto& tested) {
                           std::string name = tested.param.substr(tested.param.find('/') + 1);
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

// A block that another sequence has too is not written: the row whose keys depend on a token behind it does not run.
TEST(PredictionLayer, SharedBlocksAreNotWritten) {
  const Opened opened = Open(kGoldens + "glm4_moe/glm45-a-f32-qknorm-groups-mtp", PredictionOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const Tokens tokens = Recording(opened.model->recipe().vocab, kKvBlock, 1, 4).first;
  const int32_t one = engine.NewSequence().value();
  const auto step = [&](int32_t sequence, std::span<const int32_t> some) {
    std::vector<BatchRow> rows;
    for (const int32_t token : some) rows.push_back({.token = token, .sequence = sequence});
    ASSERT_TRUE(engine.Step(rows).ok());
  };
  for (size_t i = 0; i < tokens.size(); i += 16) step(one, std::span(tokens).subspan(i, 16));
  const auto guesses = [&](int32_t sequence) {
    const auto guessed = engine.Predict(std::vector<DraftWish>{{.sequence = sequence, .token = 7, .most = 3}});
    EXPECT_TRUE(guessed.ok());
    return guessed.ok() ? (*guessed)[0].size() : 0;
  };
  const auto bytes = [&](int32_t sequence) {
    std::vector<uint8_t> all;
    EXPECT_TRUE(engine
                    .Export(sequence,
                            [&](std::span<const uint8_t> piece) {
                              all.insert(all.end(), piece.begin(), piece.end());
                              return Status();
                            })
                    .ok());
    return all;
  };
  const int32_t other = engine.Fork(one, kKvBlock).value();
  const std::vector<uint8_t> before = bytes(other);
  EXPECT_EQ(guesses(one), 0u);
  EXPECT_EQ(bytes(other), before);
  step(one, std::span(tokens).first(1));
  EXPECT_EQ(guesses(one), 3u) << "in a block of its own";
  EXPECT_EQ(bytes(other), before);
  EXPECT_FALSE(engine.Predict(std::vector<DraftWish>{{one, 1, 1}, {one, 1, 1}}).ok());
}

// Rows that were drafted elsewhere wait for no more than others do.
TEST(PredictionLayer, RowsBeforeDraftsOfOthersRun) {
  const Opened opened = Open(kGoldens + "glm4_moe/glm45-a-f32-qknorm-groups-mtp", PredictionOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const Tokens tokens = Recording(opened.model->recipe().vocab, 121, 1, 5).first;
  Tokens drafts[2];
  for (const bool drafted : {false, true}) {
    const int32_t s = engine.NewSequence().value(), bill = engine.OpenBill();
    for (size_t i = 0; i + 4 < tokens.size(); i += 4) {
      std::vector<BatchRow> rows;
      for (size_t j = i; j < i + 4; ++j) {
        const bool draft = drafted && j > i;
        rows.push_back(
            {.token = tokens[j], .sequence = s, .want_logits = draft, .generated = true, .bill = bill, .draft = draft});
      }
      ASSERT_TRUE(engine.Step(rows).ok());
      ASSERT_TRUE(engine.KeepDrafts(s, drafted ? 3 : 0).ok());
    }
    uint64_t rows = 0;  // of the layer, which all run in Predict if none has before
    engine.probe().SetTap([&](Site site, std::string_view, Mat<const float> out) {
      if (site.component == Component::kRouter && site.layer == opened.model->recipe().n_layers) {
        rows = std::max(rows, static_cast<uint64_t>(out.rows));
      }
    });
    const auto guessed = engine.Predict(std::vector<DraftWish>{{.sequence = s, .token = tokens.back(), .most = 4, .bill = bill}});
    engine.probe().SetTap({});
    ASSERT_TRUE(guessed.ok());
    drafts[drafted ? 1 : 0] = (*guessed)[0];
    EXPECT_GT(rows, 0u);
    EXPECT_LE(rows, 16u + 4u);
    engine.CloseBill(bill);
    engine.Free(s);
  }
  EXPECT_EQ(drafts[0].size(), 4u);
  EXPECT_EQ(drafts[0], drafts[1]);
}

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
