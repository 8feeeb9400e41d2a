// SPDX-License-Identifier: Apache-2.0
// Every malformed file given to `tally`: exit code 2, the expected line on standard error, nothing on standard output.
#include <gtest/gtest.h>

#include "tests/app/runner.h"
#include "tests/models/synthetic_files.h"
#include "tests/siege/siege.h"

namespace tally::siege {
namespace {

class CliSiege : public testing::TestWithParam<Case> {};

TEST_P(CliSiege, OneLineAndExitCode2) {
  const TempFolder folder;
  const std::string path = GetParam().write(folder);
  const Ended e = OfTokenizer(GetParam()) ? Tally({"run", path, "-p", "a"}) : Tally({"logits", path, "--tokens", "0"});
  EXPECT_EQ(e.code, 2);
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(e.err, "tally: " + In(folder, GetParam().line) + "\n");
}

// A tokenizer that cannot be read stands in the way of text, not of token ids.
TEST(CliTokenizer, IdsNeedNone) {
  using namespace synthetic;
  const TempFolder folder;
  const Inventory model = HfLlama();
  folder.Write("config.json", ConfigOf(model));
  folder.Write("model.safetensors", SafetensorsOf(HeaderOf(model, 0, model.tensors.size())));
  folder.Write("tokenizer.json", R"({"model":{"type":"Unigram"}})");
  const std::string wrong = folder.path() + "/tokenizer.json: model: type 'Unigram' is not supported";
  for (const std::vector<std::string>& ids : {std::vector<std::string>{"logits", folder.path(), "--tokens", "0"},
                                              {"audit", folder.path(), "--tokens", "0", "-n", "1"},
                                              {"audit", folder.path(), "-n", "1"},
                                              {"run", folder.path(), "--prompt-tokens", "0", "-n", "1"}}) {
    const Ended e = Tally(ids);
    EXPECT_EQ(e.code, 0) << ids[0] << e.err;
  }
  for (const std::vector<std::string>& text : {std::vector<std::string>{"run", folder.path(), "-p", "a"},
                                               {"audit", folder.path(), "-p", "a"},
                                               {"run", folder.path(), "--prompt-tokens", "0", "--stop", "a"},
                                               {"tokenize", folder.path(), "a"}}) {
    const Ended e = Tally(text);
    EXPECT_EQ(e.code, 2) << text[0];
    EXPECT_EQ(e.out, "");
    EXPECT_NE(e.err.find("tally: " + wrong + " ("), std::string::npos) << e.err;
  }
}

// Published models have such tokenizers (hf-internal-testing/tiny-random-gpt2: 50,257 tokens, 1,000 rows), so that one is no reason
// not to load a model. What is encoded to an id without a row is refused.
TEST(CliTokenizer, IdsBeyondTheEmbedding) {
  using namespace synthetic;
  const TempFolder folder;
  const Inventory model = HfLlama();
  folder.Write("config.json", ConfigOf(model));
  folder.Write("model.safetensors", SafetensorsOf(HeaderOf(model, 0, model.tensors.size())));
  folder.Write("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":10,"b":11},"merges":[]},"decoder":{"type":"Fuse"}})");
  for (const char* command : {"run", "audit"}) {
    SCOPED_TRACE(command);
    EXPECT_EQ(Tally({command, folder.path(), "-p", "aa"}).code, 0);
    const Ended e = Tally({command, folder.path(), "-p", "ab"});
    EXPECT_EQ(e.code, 2);
    EXPECT_EQ(e.out, "");
    EXPECT_EQ(e.err, "tally: token 1 of the prompt is 11: ids of this model are 0 to 10\n");
  }
}

class CliRanksSiege : public testing::TestWithParam<Case> {};

TEST_P(CliRanksSiege, OneLineAndExitCode2) {
  const TempFolder folder;
  const Ended e = Tally({"tokenize", "--ranks", GetParam().write(folder), "--pattern", "r50k", "text"});
  EXPECT_EQ(e.code, 2);
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(e.err, "tally: " + In(folder, GetParam().line) + "\n");
}

INSTANTIATE_TEST_SUITE_P(All, CliRanksSiege, testing::ValuesIn(RanksCases()), [](const auto& c) { return c.param.name; });
INSTANTIATE_TEST_SUITE_P(All, CliSiege, testing::ValuesIn(AllCases()), [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace tally::siege
