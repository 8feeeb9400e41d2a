// SPDX-License-Identifier: Apache-2.0
#include "counters/books/books.h"

#include <gtest/gtest.h>

#include <sstream>

#include "engine/recipe/recipe.h"
#include "engine/studies/summary.h"
#include "tests/counters/recipes.h"
#include "tests/support/charges.h"

namespace tally::books {
namespace {

// The counts of published models; the figures are those of shared/reference/model_reference.json, whose
// gpt-oss rows reproduce the model card's (arXiv 2508.10925, Table 1) and whose GPT-2 rows the published
// 124,439,808 and 1558M.
std::ostream& operator<<(std::ostream& out, const ParameterCounts& c) {
  return out << c.total << ' ' << c.active_all << ' ' << c.active_head << ' ' << c.active_none;
}

std::string Text(const ParameterCounts& c) {
  std::ostringstream out;
  out << c;
  return out.str();
}

TEST(ClosedForm, PublishedModels) {
  EXPECT_EQ(Text(ClosedFormCounts(GptOss(24, 32))), "20914757184 4187440704 3608307264 3029173824");
  EXPECT_EQ(Text(ClosedFormCounts(GptOss(36, 128))), "116829156672 5711982912 5132849472 4553716032");
  EXPECT_EQ(Text(ClosedFormCounts(Gpt2(12, 768, 12))), "124439808 124439808 123653376 85056000");
  EXPECT_EQ(Text(ClosedFormCounts(Gpt2(48, 1600, 25))), "1557611200 1557611200 1555972800 1475561600");
  EXPECT_EQ(Text(ClosedFormCounts(Decoder(32, 4096, 32, 8, 128, 14336, 128256, false))),
            "8030261248 8030261248 7504924672 6979588096");
  EXPECT_EQ(Text(ClosedFormCounts(Decoder(16, 2048, 32, 8, 64, 8192, 128256, true))),
            "1235814400 1235814400 1235814400 973146112");
  EXPECT_EQ(Text(ClosedFormCounts(Sparse(Decoder(32, 4096, 32, 8, 128, 0, 32000, false), 8, 2, 14336))),
            "46702792704 12879925248 12748853248 12617781248");  // Mixtral 8x7B
  Recipe qwen = Sparse(Decoder(48, 2048, 32, 4, 128, 0, 151936, false), 128, 8, 768);
  ChangeLayers(qwen, [](LayerRecipe& l) { l.attention.qk_norm = QkNormKind::kHead; });
  EXPECT_EQ(Text(ClosedFormCounts(qwen)), "30532122624 3353032704 3041867776 2730702848");
  Recipe qwen25 = Decoder(28, 3584, 28, 4, 128, 18944, 152064, false);
  ChangeLayers(qwen25, [](LayerRecipe& l) { l.attention.q_bias = l.attention.k_bias = l.attention.v_bias = true; });
  EXPECT_EQ(Text(ClosedFormCounts(qwen25)), "7615616512 7615616512 7070619136 6525621760");
}

// gpt-oss-20b's tensors one by one, as a checkpoint of split experts has them.
std::vector<WeightInfo> GptOss20b() {
  std::vector<WeightInfo> table;
  auto add = [&](int32_t layer, Component component, uint32_t slices, uint64_t rows, uint64_t cols,
                 WeightInfo::Kind kind = WeightInfo::Kind::kBlock) {
    WeightInfo w;
    w.layer = layer;
    w.component = component;
    w.slices = slices;
    w.experts = slices > 1;
    w.rows = rows;
    w.cols = cols;
    w.kind = kind;
    table.push_back(w);
  };
  const uint64_t E = 2880, V = 201088;
  add(-1, Component::kEmbedding, 1, V, E, WeightInfo::Kind::kEmbedding);
  add(-1, Component::kHead, 1, V, E, WeightInfo::Kind::kHead);
  add(-1, Component::kOutputNorm, 1, 1, E);
  for (int32_t layer = 0; layer < 24; ++layer) {
    for (const Component norm : {Component::kAttnNorm, Component::kFfnNorm}) add(layer, norm, 1, 1, E);
    for (const auto& [component, rows] :
         {std::pair{Component::kAttnQ, 4096}, {Component::kAttnK, 512}, {Component::kAttnV, 512}}) {
      add(layer, component, 1, rows, E);
      add(layer, component, 1, 1, rows);
    }
    add(layer, Component::kAttnOutput, 1, E, 4096);
    add(layer, Component::kAttnOutput, 1, 1, E);
    add(layer, Component::kAttention, 1, 1, 64);
    add(layer, Component::kRouter, 1, 32, E);
    add(layer, Component::kRouter, 1, 1, 32);
    for (int gate_up_down = 0; gate_up_down < 3; ++gate_up_down) {
      const Component component = gate_up_down < 2 ? Component::kFfnGateUp : Component::kFfnDown;
      add(layer, component, 32, 2880, 2880);
      add(layer, component, 32, 1, 2880);
    }
  }
  return table;
}

TEST(CountParameters, GptOss20b) {
  const std::vector<WeightInfo> table = GptOss20b();
  EXPECT_EQ(Text(CountParameters(table, 4)), "20914757184 4187440704 3608307264 3029173824");
  // One token decoded touches what is active with the head, and one row of the embedding.
  Ledger ledger;
  ledger.SetWeights(table);
  ledger.BeginStep(RowsIn(Phase::kDecode, 1, 1));
  WeightTouches touches;
  for (WeightId id = 0; id < table.size(); ++id) {
    const uint32_t rows = static_cast<uint32_t>(table[id].rows);
    if (id == 0)
      touches.push_back({0, 0, 77, 78});
    else if (table[id].slices == 1)
      touches.push_back({id, 0, 0, rows});
    else
      for (uint32_t expert : {3u, 9u, 11u, 30u}) touches.push_back({id, expert, 0, rows});
  }
  ChargeOnce(ledger, {}, {}, {}, touches);
  ledger.EndStep();
  EXPECT_EQ(ledger.last_step().parameters_touched, 3608310144u);
}

TEST(CountParameters, TiedAndBuffers) {
  WeightInfo tied, rope, position, block;
  tied.kind = WeightInfo::Kind::kTiedEmbeddingHead;
  tied.rows = 10;
  tied.cols = 4;
  rope.kind = WeightInfo::Kind::kBuffer;  // not learned: no parameters
  rope.rows = 1;
  rope.cols = 100;
  position.kind = WeightInfo::Kind::kPosition;
  position.rows = 3;
  position.cols = 4;
  block.rows = block.cols = 4;
  EXPECT_EQ(Text(CountParameters(std::vector<WeightInfo>{tied, rope, position, block}, 0)), "68 68 56 16");
}

TEST(WithThousands, Groups) {
  EXPECT_EQ(WithThousands(uint64_t{0}), "0");
  EXPECT_EQ(WithThousands(uint64_t{999}), "999");
  EXPECT_EQ(WithThousands(uint64_t{1000}), "1,000");
  EXPECT_EQ(WithThousands(uint64_t{123456}), "123,456");
  EXPECT_EQ(WithThousands(uint64_t{20914757184}), "20,914,757,184");
  EXPECT_EQ(WithThousands(UINT64_MAX), "18,446,744,073,709,551,615");
  EXPECT_EQ(WithThousands(1999.5), "2,000");
  EXPECT_EQ(WithThousands(-3.0), "0");
}

// A run of two prompt rows and two decode steps of one row, with figures that are easy to divide.
Ledger ARun(std::vector<WeightInfo> weights, uint64_t unit) {
  Ledger ledger;
  ledger.SetWeights(std::move(weights));
  for (int step = 0; step < 3; ++step) {
    ledger.BeginStep(RowsIn(step == 0 ? Phase::kPrefill : Phase::kDecode, step == 0 ? 2 : 1, 1));
    Cost useful, executed;
    useful.AddFlops(WorkClass::kLinear, 1000 * unit, Arith::kInt8);
    useful.AddFlops(WorkClass::kAttention, (step + 1) * unit);
    useful.AddSpecial(WorkClass::kSoftmax, 7 * unit);
    for (int k = 0; k < kByteKinds; ++k) useful.AddBytes(static_cast<ByteKind>(k), (k + 1) * unit);
    executed.AddFlops(WorkClass::kLinear, 1024 * unit, Arith::kInt8);
    ChargeOnce(ledger, {0, Component::kFfnDown}, useful, executed,
               std::vector<WeightTouch>{{0, 0, 0, static_cast<uint32_t>(step + 1)}});
    ledger.EndStep();
  }
  return ledger;
}

std::vector<WeightInfo> OneWeight() {
  WeightInfo w;
  w.rows = 10;
  w.cols = 4;
  w.kind = WeightInfo::Kind::kTiedEmbeddingHead;
  return {w};
}

TEST(MeasureRun, Figures) {
  const Ledger ledger = ARun(OneWeight(), 100);
  const RunInput input{.prompt_tokens = 2, .generated_tokens = 3, .prompt_seconds = 0.5, .generate_seconds = 0.25};
  const RunFigures f = MeasureRun(ledger, CountParameters(ledger.weights(), 0), input);
  EXPECT_EQ(f.decode_steps, 2u);
  EXPECT_EQ(f.decode_tokens, 2u);
  EXPECT_DOUBLE_EQ(f.prompt_tokens_per_second, 4);
  EXPECT_DOUBLE_EQ(f.decode_tokens_per_second, 8);
  const RunFigures::Work& linear = f.work[static_cast<int>(WorkClass::kLinear)];
  EXPECT_DOUBLE_EQ(linear.useful, 100000);
  EXPECT_DOUBLE_EQ(linear.executed, 102400);
  EXPECT_DOUBLE_EQ(linear.useful_by_type[static_cast<int>(Arith::kInt8)], 100000);
  EXPECT_DOUBLE_EQ(f.work[static_cast<int>(WorkClass::kAttention)].useful, 250);
  EXPECT_DOUBLE_EQ(f.all.useful, 100250);
  EXPECT_DOUBLE_EQ(f.all.special, 700);
  EXPECT_DOUBLE_EQ(f.bytes_per_token[static_cast<int>(ByteKind::kKvRead)], 300);
  EXPECT_DOUBLE_EQ(f.decode_gigabytes_per_second, 2 * (200 + 300 + 400 + 700 + 800) / 0.25 / 1e9);
  EXPECT_DOUBLE_EQ(f.touched_per_decode_step, (8 + 12) / 2.0);
  EXPECT_EQ(f.touched_in_run, 12u);
  EXPECT_TRUE(f.tied);
  EXPECT_EQ(f.parameters.total, 40u);
}

void ExpectFits(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(RunSummary, SaysWhatItShould) {
  const Ledger ledger = ARun(OneWeight(), 100);
  const RunInput input{.prompt_tokens = 2,
                       .generated_tokens = 3,
                       .prompt_seconds = 0.5,
                       .generate_seconds = 0.25,
                       .threads = 2,
                       .target = "AVX2",
                       .used_blas = true};
  const std::string text = RunSummary(MeasureRun(ledger, CountParameters(ledger.weights(), 0), input));
  ExpectFits(text);
  for (const char* expected :
       {"prompt                2 tokens in       500 ms        4.00 tokens/s", "8.00 tokens/s", "100,000", "102,400",
        "touched per decode step", "25.00 %", "active(all)", "active(head)", "active(none)", "tied", "OpenBLAS",
        "2 threads, AVX2 kernels", "weights stored", "weights packed", "KV read", "KV written", "GB/s", "int8"}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
  }
  for (const char* absent : {"rope", "defect"}) EXPECT_EQ(text.find(absent), std::string::npos) << absent << "\n" << text;
}

TEST(RunSummary, FitsWithLargeFigures) {
  const Ledger ledger = ARun(GptOss20b(), 123456789012);
  const RunInput input{.prompt_tokens = 131072,
                       .generated_tokens = 1000000,
                       .prompt_seconds = 12345.678,
                       .generate_seconds = 98765.4,
                       .threads = 192,
                       .target = "AVX3_ZEN4"};
  const std::string text = RunSummary(MeasureRun(ledger, CountParameters(ledger.weights(), 4), input));
  ExpectFits(text);
  EXPECT_NE(text.find("20,914,757,184"), std::string::npos) << text;
}

TEST(RunSummary, NothingDecoded) {
  Ledger ledger;
  const std::string text = RunSummary(MeasureRun(ledger, {}, {.prompt_tokens = 5}));
  ExpectFits(text);
  EXPECT_NE(text.find("no decode step"), std::string::npos) << text;
  EXPECT_EQ(text.find("inf"), std::string::npos) << text;
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

TEST(RunSummary, ADefectIsSaid) {
  Ledger ledger;
  ledger.BeginStep(RowsIn(Phase::kDecode, 1, 1));
  ChargeOnce(ledger, {}, {}, {}, std::vector<WeightTouch>{{3, 0, 0, 1}});
  ledger.EndStep();
  const std::string text = RunSummary(MeasureRun(ledger, {}, {}));
  EXPECT_NE(text.find("defect"), std::string::npos) << text;
}

}  // namespace
}  // namespace tally::books
