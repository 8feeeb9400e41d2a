// SPDX-License-Identifier: Apache-2.0
// Published vocabularies against published tokenisations: llama.cpp's models/ggml-vocab-*.gguf with their
// .inp and .out.
#include <sstream>

#include "loaders/loaders.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

using test::Encode;
using test::Ids;

const std::string kFolder = test::Shared("tokenizers/llama.cpp-vocabs/ggml-vocab-");
constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";

std::vector<std::string> Inputs(const std::string& path) {
  const std::string all = test::ReadAll(path);
  std::vector<std::string> inputs;
  size_t begin = 0;
  for (size_t at; (at = all.find(kSeparator, begin)) != all.npos; begin = at + kSeparator.size()) {
    inputs.push_back(all.substr(begin, at - begin));
  }
  if (begin < all.size()) inputs.push_back(all.substr(begin));
  return inputs;
}

std::vector<Ids> Outputs(const std::string& path) {
  std::istringstream all(test::ReadAll(path));
  std::vector<Ids> outputs;
  for (std::string line; std::getline(all, line);) {
    std::istringstream numbers(line);
    Ids ids;
    for (int32_t id; numbers >> id;) ids.push_back(id);
    outputs.push_back(std::move(ids));
  }
  return outputs;
}

std::unique_ptr<Tokenizer> Load(const std::string& path) {
  Result<Inventory> inventory = ReadGguf(path);
  EXPECT_TRUE(inventory.ok()) << inventory.status().message();
  if (!inventory.ok()) return nullptr;
  Result<std::unique_ptr<Tokenizer>> tokenizer = TokenizerFor(*inventory);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

class VocabPairs : public testing::TestWithParam<const char*> {};

TEST_P(VocabPairs, Reproduced) {
  const std::string path = kFolder + GetParam() + ".gguf";
  TALLY_SKIP_WITHOUT(path);
  const std::unique_ptr<Tokenizer> tokenizer = Load(path);
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<std::string> inputs = Inputs(path + ".inp");
  const std::vector<Ids> outputs = Outputs(path + ".out");
  ASSERT_EQ(inputs.size(), outputs.size());
  ASSERT_EQ(inputs.size(), 46u);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(Encode(*tokenizer, inputs[i]), outputs[i]) << "test " << i << ": '" << inputs[i] << "'";
    EXPECT_EQ(tokenizer->Decode(outputs[i]), inputs[i]);
  }
}

TEST_P(VocabPairs, SpecialTokensOnRequestOnly) {
  const std::string path = kFolder + GetParam() + ".gguf";
  TALLY_SKIP_WITHOUT(path);
  const std::unique_ptr<Tokenizer> tokenizer = Load(path);
  ASSERT_NE(tokenizer, nullptr);
  const Result<Inventory> inventory = ReadGguf(path);
  const auto tokens = *inventory->metadata.GetStrings("tokenizer.ggml.tokens");
  ASSERT_GE(tokenizer->bos(), 0);
  const std::string bos = (*tokens)[static_cast<size_t>(tokenizer->bos())];
  for (const int32_t id : Encode(*tokenizer, "x" + bos + "y")) EXPECT_FALSE(tokenizer->IsControl(id)) << id;
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "x" + bos + "y")), "x" + bos + "y");
  const Ids parsed = Encode(*tokenizer, bos + "x", {false, true});
  ASSERT_FALSE(parsed.empty());
  EXPECT_EQ(parsed[0], tokenizer->bos());
  EXPECT_TRUE(tokenizer->IsControl(parsed[0]));
  EXPECT_EQ(tokenizer->TokenBytes(parsed[0]), "");
  EXPECT_EQ(tokenizer->Decode(parsed), "x");
  EXPECT_FALSE(tokenizer->eos().empty());
}

INSTANTIATE_TEST_SUITE_P(All, VocabPairs, testing::Values("gpt-2", "llama-spm", "phi-3", "deepseek-coder", "mpt"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(Vocab, BosAsTheFileSays) {
  TALLY_SKIP_WITHOUT(kFolder + "llama-spm.gguf");
  EXPECT_EQ(Encode(*Load(kFolder + "llama-spm.gguf"), "Hello", {true, false}), (Ids{1, 15043}));
  EXPECT_EQ(Encode(*Load(kFolder + "gpt-2.gguf"), "Hello", {true, false}), (Ids{15496}));
  EXPECT_EQ(Encode(*Load(kFolder + "deepseek-coder.gguf"), "Hello", {true, false}), (Ids{32013, 17535}));
}

TEST(Vocab, Phi3TokensTakeTheSpaceAfterThem) {
  TALLY_SKIP_WITHOUT(kFolder + "phi-3.gguf");
  const auto tokenizer = Load(kFolder + "phi-3.gguf");
  EXPECT_EQ(Encode(*tokenizer, "<|user|>\n \nHello<|end|>\n", {false, true}), (Ids{32010, 15043, 32007}));
  EXPECT_EQ(tokenizer->eos(), (std::vector<int32_t>{32000, 32007}));
}

TEST(Vocab, Gpt2FromGgufAndFromJsonAgree) {
  const std::string json = test::Shared("tokenizers/hf/gpt2.tokenizer.json");
  TALLY_SKIP_WITHOUT(json);
  TALLY_SKIP_WITHOUT(kFolder + "gpt-2.gguf");
  const auto a = Load(kFolder + "gpt-2.gguf");
  auto b = TokenizerFromJson(json);
  ASSERT_TRUE(b.ok()) << b.status().message();
  EXPECT_EQ(a->vocab_size(), (*b)->vocab_size());
  for (const std::string& input : Inputs(kFolder + "gpt-2.gguf.inp")) EXPECT_EQ(Encode(*a, input), Encode(**b, input)) << input;
  const std::string text = test::ReadAll(test::Shared("text/war-and-peace.txt")).substr(0, 100'000);
  EXPECT_EQ(Encode(*a, text), Encode(**b, text));
  for (int32_t id = 0; id < a->vocab_size(); ++id) ASSERT_EQ(a->TokenBytes(id), (*b)->TokenBytes(id)) << id;
  EXPECT_EQ(a->eos(), (*b)->eos());
}

TEST(Vocab, SharedTokenizersLoadAndRoundTrip) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int found = 0;
  std::vector<std::string> paths = {test::Shared("weights/tinystories-656k-bf16/tokenizer.json"),
                                    test::Shared("weights/tiny-random-gpt2/tokenizer.json"),
                                    test::Shared("weights/stories260K-gguf/stories260Ktok512.gguf")};
  if (std::filesystem::exists(test::Shared("tokenizers/hf"))) {
    for (const auto& entry : std::filesystem::directory_iterator(test::Shared("tokenizers/hf"))) {
      if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
    }
  }
  for (const std::string& path : paths) {
    if (!std::filesystem::exists(path)) continue;
    ++found;
    SCOPED_TRACE(path);
    const bool json = path.ends_with(".json");
    std::unique_ptr<Tokenizer> tokenizer;
    if (json) {
      auto loaded = TokenizerFromJson(path);
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      tokenizer = std::move(*loaded);
    } else {
      tokenizer = Load(path);
      ASSERT_NE(tokenizer, nullptr);
    }
    const std::string story = "Once upon a time, there was a little girl named Lily. She said: \"Hello,  world!\"\n\nThe end.";
    EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, story)), story);
    EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, " " + story)), " " + story);
    if (path.find("656k") != path.npos) continue;  // it has unknown characters
    for (int round = 0; round < 50; ++round) {
      const std::string text = test::RandomText(random, random() % 60);
      ASSERT_EQ(tokenizer->Decode(Encode(*tokenizer, text)), text);
    }
  }
  if (found == 0) GTEST_SKIP() << test::Shared("weights") << " is absent";
}

TEST(Vocab, TinyStories) {
  const std::string path = test::Shared("weights/tinystories-656k-bf16/tokenizer.json");
  TALLY_SKIP_WITHOUT(path);
  const auto tokenizer = TokenizerFromJson(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->bos(), 1);
  EXPECT_EQ((*tokenizer)->eos(), (std::vector<int32_t>{2}));
  EXPECT_EQ((*tokenizer)->vocab_size(), 2048);
  EXPECT_TRUE((*tokenizer)->DropsLeadingSpace());
  const Ids with = Encode(**tokenizer, "Once", {true, false}), without = Encode(**tokenizer, "Once");
  ASSERT_EQ(with.size(), without.size() + 1);
  EXPECT_EQ(with[0], 1);
  // Its special tokens are normalized ones: looked for with the prepended U+2581, which they take along.
  EXPECT_EQ(Encode(**tokenizer, "<|start_story|>", {false, true}), (Ids{1}));
}

TEST(Vocab, ModelsWithoutVocabularyHaveNoTokenizer) {
  const std::string path = TALLY_SOURCE_DIR "/tests/goldens/gpt2/gpt2-a-f32-release-names/model.gguf";
  Result<Inventory> inventory = ReadGguf(path);
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  Result<std::unique_ptr<Tokenizer>> none = TokenizerFor(*inventory);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
}

}  // namespace
}  // namespace tally
