// SPDX-License-Identifier: Apache-2.0
// Every family of the registry with random weights: the published configurations of the catalogue, made small, as a Hugging Face
// directory in F32 and as the GGUF file in Q8_0 that is made of it. The reference against Highway, every tensor claimed once, and closed
// form = inventory = executed in prefill, decode and a mixed batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/studies/audit.h"
#include "engine/studies/synth.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"
#include "tests/goldens/closed_forms.h"
#include "tests/goldens/logits.h"
#include "tests/session/drafted.h"
#include "tests/support/gguf_without.h"
#include "tests/support/sanitizers.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

class RandomFamily : public testing::TestWithParam<std::string> {};

std::vector<int32_t> Ids(int32_t vocab) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 20; ++i) ids.push_back((i * i * 7 + 3) % vocab);
  return ids;
}

std::vector<float> LogitsOf(const std::string& path, ImplChoice impl, ActivationMode activations, double* greatest) {
  EngineOptions options = Exact();
  options.impl = impl;
  options.activations = activations;
  options.context = 24;
  Opened opened = Open(path, options);
  if (opened.engine == nullptr) return {};
  const int32_t vocab = opened.model->recipe().vocab;
  const std::vector<int32_t> ids = Ids(vocab);
  std::vector<float> logits = Logits(*opened.engine, ids, ids.size());
  *greatest = MaxAbs({logits.data(), static_cast<int64_t>(ids.size()), vocab});
  return logits;
}

double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  return MaxDifference({a.data(), 1, static_cast<int64_t>(a.size())}, {b.data(), 1, static_cast<int64_t>(b.size())});
}

// `tolerance`: of the reference against Highway, as a share of the greatest logit.
void ExpectHonest(const std::string& path, double tolerance = 1e-5) {
  const auto inventory = ReadCheckpoint(path);
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  const auto spec = ReadModelSpec(*inventory);  // every row of every tensor is claimed once
  ASSERT_TRUE(spec.ok()) << spec.status().message();

  double greatest = 0;
  const std::vector<float> reference = LogitsOf(path, ImplChoice::kRef, ActivationMode::kF32, &greatest);
  const std::vector<float> highway = LogitsOf(path, ImplChoice::kAuto, ActivationMode::kF32, &greatest);
  ASSERT_FALSE(reference.empty());
  EXPECT_GT(greatest, 0);
  EXPECT_LE(Difference(reference, highway), tolerance * greatest);

  const Opened opened = Open(path, closed_forms::Options());
  ASSERT_NE(opened.engine, nullptr);
  closed_forms::ExpectEveryChargeHasItsFormula(*opened.engine);
  AuditOptions audit;
  audit.prompt = Ids(opened.model->recipe().vocab);  // two pieces
  audit.decode_tokens = 4;
  const auto report = Audit(*opened.engine, audit);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->differing, 0u);
  EXPECT_GT(report->compared, 50u);
}

double Rms(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// The published configuration, small, with other settings.
void ExpectHonestWith(const std::string& model, const std::string& settings) {
  SCOPED_TRACE(model + " " + settings);
  OrderedJson config = SmallConfig(model);
  config.merge_patch(OrderedJson::parse(settings));
  const SmallCheckpoint made(config);
  ExpectHonest(made.directory());
  ExpectHonest(made.WriteGguf());
}

TEST(Variants, LimitsOfSwiglu) {
  const std::string limits =
      R"({"expert_swiglu_limit_list": [0, 0, 0.5, 0.25, 0, 4], "share_expert_swiglu_limit_list": [0, 0.25, 0, 0.5, 0, 5]})";
  ExpectHonestWith("Ling-3.0-tiny", limits);
}

// GGUF files without tensors that llama.cpp does without: the gates of experts, and shared experts.
TEST(Variants, FilesWithoutTensors) {
  for (const auto& [model, part] :
       {std::pair{"ERNIE-4.5-21B-A3B", "ffn_gate_exps"}, std::pair{"Mixtral-8x7B", "ffn_gate_exps"},
        std::pair{"Granite-3.0-1B-A400M", "ffn_gate_exps"}, std::pair{"Kimi-Linear-48B-A3B", "_shexp"}}) {
    SCOPED_TRACE(model);
    const SmallCheckpoint made(SmallConfig(model));
    const std::string whole = made.WriteGguf(), rest = made.folder() / "part.gguf";
    WriteGgufWithout(whole, part, rest);
    const auto recipe = [&](const std::string& file) { return ReadModelSpec(ReadGguf(file).value())->recipe; };
    const Recipe with = recipe(whole), without = recipe(rest);
    EXPECT_FALSE(with.all.experts.ungated || with.all.experts.shared_activation);
    EXPECT_TRUE(without.all.experts.ungated != without.all.experts.shared_activation);
    ExpectHonest(rest);
  }
}

// How far int8 may be from the values, as a share of the logits. A product's int8 activations are some 0.5 % off, and six layers of
// random weights add up thirty products. Latent attention has three more in a row for keys and queries; DeepSeek-V2 multiplies what
// the experts give by 16; a short convolution multiplies three outputs of one matrix by one another. A gated delta net normalises what k.q
// multiplies, and random k and q are often nearly orthogonal: a sign that turns is a head's whole output. Where blocks read the residual
// stream without a norm (OLMo 2 and 3, EXAONE 4), products are of vectors that grow.
double Int8Bound(const std::string& name) {
  static const std::map<std::string, double> kMore = {
      {"OLMo-2-7B", 0.025},       {"Muse-Glimmer-30B", 0.025},   {"Gemma-4-E2B", 0.025},         {"DeepSeek-V2-Lite", 0.03},
      {"DeepSeek-V2", 0.05},      {"Codestral-Mamba-7B", 0.025}, {"LFM2-1.2B", 0.045},           {"LFM2-8B-A1B", 0.045},
      {"Qwen3-Coder-Next", 0.06}, {"Qwen3.5-4B", 0.13},          {"Kimi-Linear-48B-A3B", 0.035}, {"Ling-3.0-tiny", 0.035},
      {"Ling-3.0-flash", 0.035}};
  const auto more = kMore.find(name);
  return more == kMore.end() ? 0.02 : more->second;
}

void ExpectInt8NearTheValues(const std::string& name, const std::string& gguf) {
  double greatest = 0;
  const std::vector<float> exact = LogitsOf(gguf, ImplChoice::kAuto, ActivationMode::kF32, &greatest);
  std::vector<float> apart = LogitsOf(gguf, ImplChoice::kAuto, ActivationMode::kInt8, &greatest);
  ASSERT_EQ(apart.size(), exact.size());
  const double most = Difference(exact, apart) / greatest;
  for (size_t i = 0; i < apart.size(); ++i) apart[i] -= exact[i];
  const double share = Rms(apart) / Rms(exact);
  std::printf("%s: int8 is apart by %.2f %% of the logits, by %.2f %% of the greatest at most\n", name.c_str(), 100 * share,
              100 * most);
  EXPECT_LE(share, Int8Bound(name));
}

TEST_P(RandomFamily, IsHonest) {
  const SmallCheckpoint made(SmallConfig(GetParam()));
  ExpectHonest(made.directory(), GetParam() == "Qwen3.5-4B" ? 3e-5 : 1e-5);  // see Int8Bound
  const std::string gguf = GetParam() == "Qwen3.5-4B" ? made.SynthesizeGguf() : made.WriteGguf();
  if (!gguf.empty()) ExpectHonest(gguf);
}

// All experts are used, as a choice that int8 turns is another model's.
class Int8 : public testing::TestWithParam<std::string> {};

TEST_P(Int8, StaysNearTheValues) {
  const SmallCheckpoint made(SmallConfig(GetParam(), true));
  if (const std::string gguf = made.SynthesizeGguf(); !gguf.empty()) ExpectInt8NearTheValues(GetParam(), gguf);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Int8, testing::ValuesIn(OneOfEachKind()), SmallModelName);

// One model whose sequences are run in all ways.
class Recurrent {
 public:
  Recurrent(const std::shared_ptr<const Model>& model, int threads) {
    EngineOptions options = Exact();
    options.threads = threads;
    options.context = 200;
    options.max_batch = 64;
    options.max_logit_rows = 4;
    options.sequences = 4;
    options.share_gain_ns = 0;
    auto engine = NewEngine(model, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (engine.ok()) engine_ = std::move(engine).value();
  }
  Engine& engine() { return *engine_; }
  // Runs the text from the sequence's length on, up to `end`, in pieces. The last row's logits.
  std::vector<float> Run(int32_t s, std::span<const int32_t> text, size_t end, size_t piece) {
    std::vector<float> logits;
    for (size_t at = static_cast<size_t>(engine_->Length(s)); at < end;) {
      std::vector<BatchRow> rows;
      for (const size_t to = std::min(end, at + piece); at < to; ++at) rows.push_back({text[at], s, false});
      rows.back().want_logits = true;
      const auto out = engine_->StepAll(rows);
      EXPECT_TRUE(out.ok()) << out.status().message();
      if (!out.ok()) return {};
      logits.assign(out->Row(0), out->Row(0) + out->cols);
    }
    return logits;
  }

 private:
  std::unique_ptr<Engine> engine_;
};

// The bits of a recurrent model do not depend on the cut of a prompt, on threads and company, nor on how a sequence came to be: rolled
// back within a block and over its border, forked, taken from a file, begun where another was.
class RecurrentFamily : public RandomFamily {};

TEST_P(RecurrentFamily, KeepsItsBits) {
  const SmallCheckpoint made(SmallConfig(GetParam()));
  const std::string path = made.directory();
  const auto model = LoadModel(path, Exact());
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 150; ++i) text.push_back((i * i * 7 + 3 * i + 1) % (*model)->recipe().vocab);
  const size_t n = 140;
  Recurrent one(*model, 1), two(*model, 2);
  Engine& engine = two.engine();
  const int32_t alone = one.engine().NewSequence().value();
  const std::vector<float> at_100 = one.Run(alone, text, 100, 1), wanted = one.Run(alone, text, n, 1);

  const int32_t long_steps = engine.NewSequence().value(), s = engine.NewSequence().value();
  EXPECT_EQ(two.Run(long_steps, text, 100, 64), at_100);
  EXPECT_EQ(two.Run(long_steps, text, n, 40), wanted);
  EXPECT_TRUE(engine.Truncate(long_steps, 100).ok());  // before the last step
  EXPECT_EQ(two.Run(long_steps, text, n, 37), wanted);
  engine.Free(long_steps);
  two.Run(s, text, 50, 50);
  EXPECT_EQ(two.Run(s, text, n, 1), wanted);
  for (const int64_t length : {int64_t{139}, int64_t{129}, int64_t{128}, int64_t{127}, int64_t{108}}) {
    ASSERT_TRUE(engine.Truncate(s, length).ok()) << length;
    EXPECT_EQ(two.Run(s, text, n, static_cast<size_t>(length) % 5 + 1), wanted) << length;
  }
  // A fork in the middle of a block, rows of both in turn in the same steps.
  const int32_t fork = engine.Fork(s, 131).value();
  ASSERT_TRUE(engine.Truncate(s, 131).ok());
  std::vector<float> last;
  for (size_t at = 131; at < n; at += 3) {
    std::vector<BatchRow> rows;
    for (size_t i = at; i < at + 3; ++i) {
      rows.push_back({text[i], s, i + 1 == at + 3});
      rows.push_back({text[i] / 2, fork, i + 1 == at + 3});
    }
    const auto out = engine.StepAll(rows);
    ASSERT_TRUE(out.ok()) << out.status().message();
    last.assign(out->Row(0), out->Row(0) + out->cols);
  }
  EXPECT_EQ(last, wanted);
  // As bytes, and as what others begin with.
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(engine.Truncate(s, 133).ok());
  ASSERT_TRUE(engine
                  .Export(s,
                          [&](std::span<const uint8_t> out) {
                            bytes.insert(bytes.end(), out.begin(), out.end());
                            return Status();
                          })
                  .ok());
  size_t read = 0;
  const auto copy = one.engine().Import([&](std::span<uint8_t> in) {
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(read), in.size(), in.begin());
    read += in.size();
    return Status();
  });
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ(one.Run(*copy, text, n, 2), wanted);
  two.Run(s, text, 136, 1);
  engine.Remember(s, "key", text, 2);
  engine.Free(s);
  const int32_t reused = engine.NewSequenceFor("key", std::span(text).first(n - 1)).value();
  EXPECT_EQ(engine.Length(reused), 136);
  EXPECT_EQ(two.Run(reused, text, n, 3), wanted);
}

// Drafts that are not accepted leave no trace in states.
TEST_P(RecurrentFamily, DraftsGiveTheSame) {
  const SmallCheckpoint made(SmallConfig(GetParam()));
  const std::string path = made.directory();
  EngineOptions options = Exact();
  options.context = 300;
  options.draft_rows = 4;
  options.share_gain_ns = 0;
  const Opened opened = Open(path, options);
  ASSERT_NE(opened.engine, nullptr);
  const auto [prompt, answer] = drafted::Recording(opened.model->recipe().vocab, 50, 200, 3);
  std::vector<drafted::Said> said;
  for (const int64_t draft : {0, 4}) {
    const RequestOptions of_request{.max_tokens = static_cast<int64_t>(answer.size()),
                                    .ignore_eos = true,
                                    .top_logprobs = 1,
                                    .draft = draft,
                                    .replay = answer};
    const auto request = drafted::NewRequest(*opened.engine, prompt, of_request);
    drafted::RunAll(*opened.engine, {request});
    said.push_back(drafted::SaidBy(*request));
    EXPECT_EQ(request->result().accepted > 0, draft > 0);
    EXPECT_EQ(request->result().accepted<request->result().drafted, draft> 0);
  }
  EXPECT_EQ(said[0], said[1]);
}

INSTANTIATE_TEST_SUITE_P(All, RandomFamily, testing::ValuesIn(SmallModels()), SmallModelName);

std::vector<std::string> RecurrentNames() {
  std::vector<std::string> names = SmallModels();
  std::erase_if(names, [](const std::string& name) {
    const Result<CatalogModel> model = FindCatalogModel(name);
    return !model.ok() || !AnyLayer(model->recipe, &LayerRecipe::recurrent);
  });
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, RecurrentFamily, testing::ValuesIn(RecurrentNames()), SmallModelName);

// Old GGUF files have the matrix of keys and values whole. The keys' part, which latent attention needs transposed by head, is F32 in
// memory where it is quantised, and the audit says so.
TEST(RandomFamilies, AWidenedMatrixIsNamed) {
  const TempFolder folder;
  std::ofstream(folder / "config.json") << SmallConfig("DeepSeek-V2-Lite");
  SynthOptions options;
  options.type = DType::kQ8_0;
  ASSERT_TRUE(Synthesize(folder / "config.json", folder / "new.gguf", options).ok());
  const Inventory made = ReadGguf(folder / "new.gguf").value();
  const FileReader reader = FileReader::Open(folder / "new.gguf").value();
  GgufWriter old;
  for (const auto& [key, value] : made.metadata.values()) old.Set(key, value);
  std::vector<const StoredTensor*> sources;
  for (const StoredTensor& t : made.tensors) {
    if (t.name.ends_with("attn_v_b.weight")) continue;
    const bool keys = t.name.ends_with("attn_k_b.weight");  // [heads, rank, nope]; nope = the width of values, 32
    const std::string name = keys ? t.name.substr(0, t.name.size() - 10) + "kv_b.weight" : t.name;
    old.AddTensor(name, t.dtype, keys ? std::vector<uint64_t>{t.shape[0] * 2 * t.shape[2], t.shape[1]} : t.shape);
    sources.push_back(&t);
  }
  const Status written = old.Write(folder / "old.gguf", [&](size_t i, uint64_t offset, std::span<uint8_t> piece) {
    const StoredTensor& t = *sources[i];  // of keys and values: the keys' bytes, and as many again
    ASSERT_TRUE(reader.ReadAt(t.offset + offset % t.bytes, piece.first(std::min<size_t>(piece.size(), t.bytes))).ok());
    if (piece.size() > t.bytes)
      std::copy_n(piece.begin(), piece.size() - t.bytes, piece.begin() + static_cast<ptrdiff_t>(t.bytes));
  });
  ASSERT_TRUE(written.ok()) << written.message();
  const Opened opened = Open(folder / "old.gguf", SmallOptions());
  ASSERT_NE(opened.engine, nullptr);
  AuditOptions audit;
  audit.prompt = {1, 2, 3};
  audit.decode_tokens = 1;
  const auto report = Audit(*opened.engine, audit);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->differing, 0u);
  const uint64_t elements = uint64_t{kLayers} * kHeads * 32 * 32;
  EXPECT_EQ(report->widened_stored, elements / 32 * 34);
  EXPECT_GE(report->widened_packed, elements * sizeof(float));
}

TEST(RandomFamilies, AreAllOfTheRegistry) {
  std::set<const Family*> seen;
  for (const std::string& name : SmallModels()) seen.insert(FamilyOfModel(name));
  for (const Family* family : Families()) EXPECT_EQ(seen.contains(family), family->not_run.empty()) << family->name;
}

}  // namespace
}  // namespace tally
