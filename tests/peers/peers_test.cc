// SPDX-License-Identifier: Apache-2.0
// Our ids beside those of npm's tokenizers (package.json pins them) on the same machine: the awkward strings and War and Peace.
#include "tests/app/runner.h"
#include "tests/support/npm.h"
#include "tests/text/json_spec.h"
#include "tests/text/torture_strings.h"

namespace tally {
namespace {

using test::Encode;
using test::Ids;

const std::string kSources = TALLY_SOURCE_DIR "/tests/peers";
const std::string kInstalled = TALLY_PEERS_DIR;

class Peers : public testing::Test {
 protected:
  static void SetUpTestSuite() { missing_ = new std::string(InstallNpm(kSources, kInstalled, {"encode.mjs"})); }
  static void TearDownTestSuite() { delete missing_; }

  // What the peer gives for each text. `vocabulary`: a name or a folder, as encode.mjs takes them.
  static std::vector<Ids> Peer(const std::string& vocabulary, const std::vector<std::string>& texts) {
    const test::Folder folder;
    std::string command = "node '" + kInstalled + "/encode.mjs' '" + vocabulary + "'";
    for (size_t i = 0; i < texts.size(); ++i) command += " '" + folder.Write(std::to_string(i), texts[i]) + "'";
    EXPECT_EQ(Shell(command + " >'" + folder.path() + "/ids'"), 0) << command.substr(0, 200);
    std::istringstream lines(test::ReadAll(folder.path() + "/ids"));
    std::vector<Ids> all;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream numbers(line);
      Ids ids;
      for (std::string id; std::getline(numbers, id, ',');) ids.push_back(std::stoi(id));
      all.push_back(std::move(ids));
    }
    EXPECT_EQ(all.size(), texts.size());
    all.resize(texts.size());
    return all;
  }

  static void Compare(const Tokenizer& ours, const std::string& vocabulary, const std::vector<std::string>& texts,
                      bool parse_special = false) {
    const std::vector<Ids> theirs = Peer(vocabulary, texts);
    for (size_t i = 0; i < texts.size(); ++i) {
      const Ids ids = Encode(ours, texts[i], {false, parse_special});
      EXPECT_TRUE(ids == theirs[i]) << vocabulary << ": '" << texts[i].substr(0, 400) << "': " << ids.size() << " ids and "
                                    << theirs[i].size() << ", the first that differ at "
                                    << std::mismatch(ids.begin(), ids.end(), theirs[i].begin(), theirs[i].end()).first -
                                           ids.begin();
    }
  }

  static std::vector<std::string> AwkwardTexts() {
    std::vector<std::string> texts;
    for (const auto& [name, text] : test::TortureStrings()) texts.push_back(text);
    for (const std::string& text : test::SpelledSpecials()) texts.push_back(text);
    for (const auto& [given, read] : test::IllFormed()) texts.push_back(given);
    std::mt19937 random(1);
    for (int i = 0; i < 200; ++i) texts.push_back(test::RandomText(random, 1 + random() % 80));
    for (const char* part : {"a", " ", "\n", "7", "中", "🙂", "ab", "\u0301"}) {
      std::string text;
      while (text.size() < 3000) text += part;
      texts.push_back(text);
      texts.push_back(text + "x");
    }
    return texts;
  }

  static std::string* missing_;
};
std::string* Peers::missing_ = nullptr;

#define TALLY_SKIP_WITHOUT_PEERS() \
  if (!missing_->empty()) GTEST_SKIP() << *missing_

class Encodings : public Peers, public testing::WithParamInterface<const char*> {
 protected:
  std::string Path() const { return test::Shared("tokenizers/tiktoken/") + GetParam() + ".tiktoken"; }
  static std::unique_ptr<Tokenizer> Load(const std::string& path) {
    auto made = TokenizerFromRanks(path);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }
};

TEST_P(Encodings, AwkwardTexts) {
  TALLY_SKIP_WITHOUT(Path());
  TALLY_SKIP_WITHOUT_PEERS();
  const auto ours = Load(Path());
  ASSERT_NE(ours, nullptr);
  Compare(*ours, GetParam(), AwkwardTexts());
}

TEST_P(Encodings, WarAndPeace) {
  const std::string novel = test::Shared("text/war-and-peace.txt");
  TALLY_SKIP_WITHOUT(Path());
  TALLY_SKIP_WITHOUT(novel);
  TALLY_SKIP_WITHOUT_PEERS();
  const auto ours = Load(Path());
  ASSERT_NE(ours, nullptr);
  const std::string text = test::ReadAll(novel);
  const std::vector<Ids> theirs = Peer(GetParam(), {text});
  const Ids ids = Encode(*ours, text);
  EXPECT_TRUE(ids == theirs[0]) << "the first that differ at "
                                << std::mismatch(ids.begin(), ids.end(), theirs[0].begin(), theirs[0].end()).first - ids.begin();
  EXPECT_TRUE(ours->Decode(ids) == text);
  // The command, with the file named as it comes from OpenAI.
  const Ended e = Tally({"tokenize", "--ranks", Path(), "-f", novel, "--ids"});
  EXPECT_EQ(e.code, 0) << e.err;
  std::string line;
  for (const int32_t id : theirs[0]) line += (line.empty() ? "" : ",") + std::to_string(id);
  EXPECT_TRUE(e.out == line + "\n");
}

INSTANTIATE_TEST_SUITE_P(All, Encodings, testing::Values("r50k_base", "p50k_base", "cl100k_base", "o200k_base"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_F(Peers, Gpt2FromTokenizerJson) {
  const std::string path = test::Shared("tokenizers/hf/gpt2.tokenizer.json");
  TALLY_SKIP_WITHOUT(path);
  TALLY_SKIP_WITHOUT_PEERS();
  const auto ours = TokenizerFromJson(path);
  ASSERT_TRUE(ours.ok()) << ours.status().message();
  const test::Folder folder;
  folder.Write("tokenizer.json", test::ReadAll(path));
  // JavaScript's \s has U+FEFF and lacks U+0085, other than the expression's author meant; and special tokens are always parsed.
  std::vector<std::string> texts = AwkwardTexts();
  std::erase_if(texts, [](const std::string& t) { return t.find("\u0085") != t.npos || t.find("\uFEFF") != t.npos; });
  EXPECT_GT(texts.size(), 200u);
  Compare(**ours, folder.path(), texts, true);
}

}  // namespace
}  // namespace tally
