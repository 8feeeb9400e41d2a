// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "counters/books/books.h"
#include "counters/books/closed_form.h"
#include "engine/base/float16.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/studies/synth_noise.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

class SynthTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ / name; }
  TempFolder folder_;
};

SynthOptions Small(DType type) {
  SynthOptions options;
  options.type = type;
  options.layers = 1;
  options.vocab = 320;
  return options;
}

// Published totals: the gpt-oss card's checkpoint, Llama 3.2 1B and 3.1 8B model cards (1.23B and 8.03B), GPT-2; of every model
// what its closed form says.
TEST_F(SynthTest, FullSizesHaveThePublishedParameters) {
  const std::pair<const char*, uint64_t> kPublished[] = {{"gpt-oss-20b", 20914757184u},
                                                         {"llama-3.2-1b", 1235814400u},
                                                         {"llama-3.1-8b", 8030261248u},
                                                         {"gpt2", 124439808u},
                                                         {"gpt2-xl", 1557611200u}};
  for (const auto& [name, parameters] : kPublished) {
    const auto plan = PlanSynth(name, "x.gguf", {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->parameters, parameters) << name;
  }
  SynthOptions q8;
  q8.type = DType::kQ8_0;
  const uint64_t gigabyte = 1000000000;
  EXPECT_NEAR(static_cast<double>(PlanSynth("gpt-oss-20b", "x.gguf", {})->bytes), 13.8e9, 0.2e9);
  EXPECT_LT(PlanSynth("gpt-oss-20b", "x.gguf", q8)->bytes, 13 * gigabyte);
}

// Published models of which a GGUF file cannot say all, or whose architecture it does not have.
const std::set<std::string_view> kNotGguf = {"Falcon-H1-0.5B",                   // no keys of the factors
                                             "StarCoder2-3B",  "StarCoder2-7B",  // no key of the window
                                             "InternLM2.5-7B",                   // no key of the dynamic scaling of rope
                                             "GPT-Neo-1.3B",   "GPT-Neo-2.7B",  "GPT-J-6B", "OPT-125M",
                                             "OPT-350M",       "OPT-1.3B",      "OPT-6.7B", "mini-gpt"};

// Every model of the catalogue as a plan: MakeGguf and MakeHuggingFace read back what they make.
TEST_F(SynthTest, EveryModelOfTheCatalogue) {
  SynthOptions q4;
  q4.type = DType::kQ4_0;
  for (const std::string_view name : CatalogNames()) {  // variants differ in sizes
    const Recipe recipe = FindCatalogModel(name)->recipe;
    const bool many = recipe.all.experts.n_experts * recipe.n_layers > 2000;  // tensors: a few layers tell as much
    SynthOptions bf16;
    bf16.layers = q4.layers = many ? 6 : 0;
    const uint64_t total = books::ClosedFormCounts(recipe).total;
    const auto directory = PlanSynth(name, "x", bf16);
    ASSERT_TRUE(directory.ok()) << name << ": " << directory.status().message();
    EXPECT_EQ(directory->parameters == total, !many) << name;
    const auto gguf = PlanSynth(name, "x.gguf", q4);
    EXPECT_EQ(gguf.ok(), !kNotGguf.contains(name)) << name << ": " << gguf.status().message();
    if (gguf.ok()) {
      const uint64_t more =
          name == "Muse-Glimmer-30B" ? 52 * 2 * 128 : 0;        // GGUF stores ones as the weights of q's and k's norms
      const uint64_t keys = name == "Apertus-8B" ? 32 * 2 : 0;  // GGUF has xIELU's alphas as keys
      EXPECT_EQ(gguf->parameters + keys, directory->parameters + more) << name;
    }
  }
}

// With the layer for multi-token prediction: its parameters are those that the closed form names, in both formats, and it is read back.
TEST_F(SynthTest, LayersForPrediction) {
  for (const char* const name : {"Qwen3.5-4B", "Qwen3.6-35B-A3B", "GLM-4.5-Air", "DeepSeek-V3"}) {
    const Recipe recipe = FindCatalogModel(name)->recipe;
    uint64_t layer = 0;
    for (const books::ParameterForm& p : books::ParameterForms(recipe)) layer += p.apart() ? p.count.value() : 0;
    ASSERT_GT(layer, 0u) << name;
    for (const char* const out : {"x", "x.gguf"}) {
      SynthOptions options;
      options.layers = 4;  // many tensors otherwise
      const auto plain = PlanSynth(name, out, options);
      options.prediction = true;
      const auto with = PlanSynth(name, out, options);
      ASSERT_TRUE(plain.ok() && with.ok()) << name << out << with.status().message();
      EXPECT_EQ(with->parameters - plain->parameters, layer) << name << out;
    }
  }
  SynthOptions options = Small(DType::kF32);
  options.layers = 4;
  options.prediction = true;
  for (const char* const out : {"x", "x.gguf"}) {
    ASSERT_TRUE(Synthesize("Qwen3.5-0.8B", Path(out), options).ok());
    const auto inventory = ReadCheckpoint(Path(out));
    ASSERT_TRUE(inventory.ok());
    const auto with = ReadModelSpec(*inventory, /*prediction=*/true), plain = ReadModelSpec(*inventory);
    ASSERT_TRUE(with.ok() && plain.ok()) << out << with.status().message();
    EXPECT_EQ(plain->recipe, with->recipe) << "the text's stack is the same";
    ASSERT_EQ(with->further.size(), 1u);
    EXPECT_TRUE(with->further[0].prediction());
    EXPECT_EQ(with->further[0].first_layer, plain->recipe.n_layers);
    EXPECT_EQ(plain->parts_not_run.size(), 1u);
  }
  EXPECT_FALSE(PlanSynth("llama-3.2-1b", "x.gguf", options).ok()) << "it has none";
}

// As files: every family reads what is written of it.
TEST_F(SynthTest, FilesAreReadBack) {
  for (const char* const name : {"gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt2", "gemma-3-4b"}) {
    for (const std::string& out : {std::string("x.gguf"), std::string("x")}) {
      SCOPED_TRACE(name + (" as " + out));
      SynthOptions options = Small(out == "x" ? DType::kBF16 : DType::kQ4_0);
      const std::string path = Path(out);
      const auto report = Synthesize(name, path, options);
      ASSERT_TRUE(report.ok()) << report.status().message();
      EXPECT_EQ(fs::file_size(out == "x" ? path + "/model.safetensors" : path), report->bytes);
      const auto inventory = ReadCheckpoint(path);
      ASSERT_TRUE(inventory.ok()) << inventory.status().message();
      EXPECT_EQ(inventory->tensors.size(), report->tensors);
      const auto spec = ReadModelSpec(*inventory);
      ASSERT_TRUE(spec.ok()) << spec.status().message();
      EXPECT_EQ(spec->recipe.n_layers, options.layers);
      EXPECT_EQ(spec->recipe.vocab, options.vocab);
      fs::remove_all(path);
    }
  }
}

TEST_F(SynthTest, NothingIsLeftOfADirectoryThatIsNotFilled) {
  SynthOptions options = Small(DType::kF32);
  options.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ(Synthesize("gpt2", Path("x"), options).status().code(), StatusCode::kInterrupted);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  EXPECT_EQ(Synthesize("gpt2", Path("x"), Small(DType::kQ8_0)).status().message(), "safetensors has no type Q8_0; GGUF has");
}

// 1.3 TB are more than any machine's free space here.
TEST_F(SynthTest, WithoutRoomNothingIsWritten) {
  const Status status = Synthesize("deepseek-v3", Path("x.gguf"), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kNoRoom);
  EXPECT_NE(status.message().find(": needs 1.22 TiB, and its file system has room for "), std::string::npos) << status.message();
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(SynthTest, TheSameSeedGivesTheSameFile) {
  SynthOptions options = Small(DType::kQ8_0);
  for (const char* name : {"a.gguf", "b.gguf"}) ASSERT_TRUE(Synthesize("llama-3.2-1b", Path(name), options).ok());
  options.seed = 1;
  ASSERT_TRUE(Synthesize("llama-3.2-1b", Path("c.gguf"), options).ok());
  const std::string a = ReadAll(Path("a.gguf"));
  EXPECT_EQ(a, ReadAll(Path("b.gguf")));
  const std::string c = ReadAll(Path("c.gguf"));
  ASSERT_EQ(a.size(), c.size());
  EXPECT_NE(a, c);
}

TEST_F(SynthTest, Llama3FactorsAreThoseOfTheReference) {
  SynthOptions options = Small(DType::kQ4_0);
  ASSERT_TRUE(Synthesize("llama-3.2-1b", Path("x.gguf"), options).ok());
  const auto inventory = ReadGguf(Path("x.gguf"));
  ASSERT_TRUE(inventory.ok());
  const StoredTensor* t = inventory->Find("rope_freqs.weight");
  ASSERT_NE(t, nullptr);
  std::vector<float> factors(t->elements());
  ASSERT_EQ(factors.size(), 32u);
  const auto reader = FileReader::Open(Path("x.gguf"));
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(reader->ReadAt(t->offset, {reinterpret_cast<uint8_t*>(factors.data()), t->bytes}).ok());
  EXPECT_EQ(factors.front(), 1.0f);  // fast pairs turn as they did
  EXPECT_EQ(factors.back(), 32.0f);  // slow ones 32 times slower
  for (size_t i = 1; i < factors.size(); ++i) EXPECT_GE(factors[i], factors[i - 1]);
}

TEST_F(SynthTest, Errors) {
  EXPECT_NE(Synthesize("gpt-5", Path("x.gguf"), {}).status().message().find("gpt-"), std::string::npos);
  EXPECT_EQ(ParseWeightType("IQ2_XS").status().code(), StatusCode::kBadInput);
  EXPECT_EQ(*ParseWeightType("q8_0"), DType::kQ8_0);
  EXPECT_EQ(Synthesize("gpt2", Path("no/where.gguf"), Small(DType::kQ8_0)).status().code(), StatusCode::kBadInput);
  SynthOptions predicting = Small(DType::kQ8_0);
  predicting.prediction = true;
  EXPECT_EQ(PlanSynth("gpt2", "x.gguf", predicting).status().message(), PlanSynth("gpt2", "x", predicting).status().message())
      << "a directory cannot hold it either";
  SynthOptions options = Small(DType::kQ8_0);
  options.vocab_from = Path("none.gguf");
  EXPECT_EQ(Synthesize("gpt2", Path("x.gguf"), options).status().code(), StatusCode::kBadInput);
  options = Small(DType::kQ8_0);
  options.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ(Synthesize("gpt2", Path("x.gguf"), options).status().code(), StatusCode::kInterrupted);
  // Types that files have and no model's matrices.
  for (const DType type : {DType::kF64, DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kU8, DType::kU16, DType::kU32,
                           DType::kU64, DType::kBOOL}) {
    for (const Status& status :
         {PlanSynth("gpt2", "x.gguf", Small(type)).status(), Synthesize("gpt2", Path("x.gguf"), Small(type)).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kBadInput) << DTypeName(type);
      EXPECT_EQ(status.message(), "'" + std::string(DTypeName(type)) + "' is not one of " + WeightTypeNames(", "));
    }
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(SynthTest, VocabularyIsCopiedAndPadded) {
  const std::string source = std::string(TALLY_SOURCE_DIR) + "/../shared/tokenizers/llama.cpp-vocabs/ggml-vocab-gpt-2.gguf";
  if (!fs::exists(source)) GTEST_SKIP() << source << " is not here";
  SynthOptions options = Small(DType::kQ4_0);
  options.vocab = 0;
  options.vocab_from = source;
  ASSERT_TRUE(Synthesize("llama-3.2-1b", Path("x.gguf"), options).ok());
  const auto inventory = ReadGguf(Path("x.gguf"));
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  const auto tokens = inventory->metadata.GetStrings("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens.ok() && tokens->has_value());
  ASSERT_EQ((*tokens)->size(), 128256u);
  EXPECT_EQ((**tokens)[50257], "[PAD50257]");
  const auto types = inventory->metadata.GetInts("tokenizer.ggml.token_type");
  ASSERT_TRUE(types.ok() && types->has_value());
  EXPECT_EQ((**types)[50257], 5);
  EXPECT_EQ((**types)[0], 1);
  options.vocab = 100;
  EXPECT_NE(Synthesize("llama-3.2-1b", Path("y.gguf"), options).status().message().find("50257"), std::string::npos);
}

// Lists that do not fit their own vocabulary are not cut or filled up as if they did.
TEST_F(SynthTest, ADamagedVocabularyIsRefused) {
  const std::vector<std::string> tokens = {"a", "b", "c"};
  for (const std::string key : {"tokenizer.ggml.token_type", "tokenizer.ggml.scores"}) {
    for (const size_t count : {2, 3, 4}) {
      GgufWriter source;
      source.Set("tokenizer.ggml.model", std::string("llama"));
      source.Set("tokenizer.ggml.tokens", tokens);
      if (key.ends_with("scores")) {
        source.Set(key, std::vector<double>(count, 0));
      } else {
        source.Set(key, std::vector<int64_t>(count, 1));
      }
      ASSERT_TRUE(source.Write(Path("v"), nullptr).ok());
      SynthOptions options = Small(DType::kF16);
      options.vocab_from = Path("v");
      const Status status = PlanSynth("gpt2", "x.gguf", options).status();
      EXPECT_EQ(status.ok(), count == tokens.size()) << key << " " << count;
      if (count == tokens.size()) continue;
      EXPECT_EQ(status.code(), StatusCode::kBadInput);
      EXPECT_NE(status.message().find(key + " has " + std::to_string(count) + " values for 3 tokens"), std::string::npos);
    }
  }
}

// A tensor's bytes do not depend on the pieces it is asked for in, and its values have the deviation asked for.
TEST(NoisePools, PiecesAndScale) {
  NoisePools pools(3);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kMXFP4}) {
    const uint64_t elements = 1 << 18, bytes = *StoredBytes(type, elements);
    std::vector<uint8_t> whole(bytes), pieces(bytes);
    pools.Fill(5, type, 0.02f, 0, whole);
    for (uint64_t at = 0, n = 1; at < bytes; at += n, n = n * 3 % 10007 + 1) {
      n = std::min(n, bytes - at);
      pools.Fill(5, type, 0.02f, at, {pieces.data() + at, n});
    }
    EXPECT_EQ(whole, pieces) << DTypeName(type);
    double sum = 0, squares = 0;
    auto add = [&](float x) {
      ASSERT_TRUE(std::isfinite(x));
      sum += static_cast<double>(x);
      squares += static_cast<double>(x) * static_cast<double>(x);
    };
    std::vector<float> x(GetDTypeInfo(type).block_size);
    for (uint64_t at = 0; at < bytes; at += GetDTypeInfo(type).block_bytes) {
      FormatOf(type).decode(whole.data() + at, 1, x.data());
      for (const float v : x) add(v);
    }
    const double n = static_cast<double>(elements);
    EXPECT_NEAR(sum / n, 0, 0.0015) << DTypeName(type);
    EXPECT_NEAR(std::sqrt(squares / n), 0.02, type == DType::kMXFP4 ? 0.001 : 0.0004) << DTypeName(type);
  }
  std::vector<uint8_t> a(64), b(64);
  pools.Fill(5, DType::kF32, 1, 0, a);
  pools.Fill(6, DType::kF32, 1, 0, b);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace tally
