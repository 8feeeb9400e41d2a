// SPDX-License-Identifier: Apache-2.0
// The cl100k and o200k expressions, against published tokenisations that share their vocabularies: the first
// ids of llama-bpe are cl100k's; those of qwen2 are cl100k's without the numbers of several digits. And all of them against
// ids that other implementations of tiktoken's rule gave.
#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_map>

#include "engine/text/bpe.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

using test::Encode;
using test::Ids;

std::string FromBase64(std::string_view text) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int n = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    if ((n += 6) >= 8) out.push_back(static_cast<char>(bits >> (n -= 8) & 0xFF));
  }
  return out;
}

// Tokens in order of rank.
std::vector<std::string> Ranks(const std::string& path) {
  std::istringstream lines(test::ReadAll(path));
  std::vector<std::string> tokens;
  for (std::string line; std::getline(lines, line);) tokens.push_back(FromBase64(line.substr(0, line.find(' '))));
  return tokens;
}

// A token's merge is what its bytes have become when only better ranks have merged.
std::unique_ptr<Tokenizer> FromRanks(const std::vector<std::string>& tokens, const char* pre) {
  std::unordered_map<std::string, size_t> rank;
  for (size_t i = 0; i < tokens.size(); ++i) rank[tokens[i]] = i;
  std::vector<std::string> spelled, merges;
  for (size_t i = 0; i < tokens.size(); ++i) {
    spelled.push_back(AlphabetOfBytes(tokens[i]));
    std::vector<std::string> parts;
    for (const char c : tokens[i]) parts.push_back(std::string(1, c));
    while (parts.size() > 2) {
      size_t best = i, at = parts.size();
      for (size_t k = 0; k + 1 < parts.size(); ++k) {
        const auto found = rank.find(parts[k] + parts[k + 1]);
        if (found != rank.end() && found->second < best) {
          best = found->second;
          at = k;
        }
      }
      if (at == parts.size()) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    if (parts.size() == 2) merges.push_back(AlphabetOfBytes(parts[0]) + " " + AlphabetOfBytes(parts[1]));
  }
  Metadata m;
  m.source = "ranks";
  m.Set("tokenizer.ggml.model", std::string("gpt2"));
  m.Set("tokenizer.ggml.pre", std::string(pre));
  m.Set("tokenizer.ggml.tokens", spelled);
  m.Set("tokenizer.ggml.merges", merges);
  auto made = TokenizerFromGguf(m);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

// Compares the published pairs of `name` whose ids are all among the shared ones; says how many those are.
size_t ComparePairs(const Tokenizer& tokenizer, const char* name) {
  const std::string path = test::Shared("tokenizers/llama.cpp-vocabs/ggml-vocab-") + name + ".gguf";
  const std::string all = test::ReadAll(path + ".inp");
  std::istringstream outputs(test::ReadAll(path + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  size_t compared = 0, begin = 0;
  for (std::string line; std::getline(outputs, line);) {
    const size_t end = all.find(separator, begin);
    const std::string input = all.substr(begin, end - begin);
    begin = end + separator.size();
    std::istringstream numbers(line);
    Ids ids;
    for (int32_t id; numbers >> id;) ids.push_back(id);
    if (!ids.empty() && *std::max_element(ids.begin(), ids.end()) >= tokenizer.vocab_size()) continue;
    EXPECT_EQ(Encode(tokenizer, input), ids) << name << ": '" << input << "'";
    ++compared;
  }
  return compared;
}

const std::string kFolder = test::Shared("tokenizers/tiktoken/");

TEST(Tiktoken, LlamaBpePairs) {
  TALLY_SKIP_WITHOUT(kFolder + "cl100k_base.tiktoken");
  const auto tokenizer = FromRanks(Ranks(kFolder + "cl100k_base.tiktoken"), "llama-bpe");
  EXPECT_EQ(ComparePairs(*tokenizer, "llama-bpe"), 41u);
}

TEST(Tiktoken, Qwen2Pairs) {
  TALLY_SKIP_WITHOUT(kFolder + "cl100k_base.tiktoken");
  std::vector<std::string> tokens = Ranks(kFolder + "cl100k_base.tiktoken");
  std::erase_if(tokens, [](const std::string& t) {
    return t.size() >= 2 && std::all_of(t.begin(), t.end(), [](char c) { return c >= '0' && c <= '9'; });
  });
  const auto tokenizer = FromRanks(tokens, "qwen2");
  EXPECT_EQ(ComparePairs(*tokenizer, "qwen2"), 40u);
}

// Lines of <vocabulary> <text in hexadecimal> <ids>. tiktoken_ids.txt: Python's regex module and ranks; torture_ids.txt: the strings
// of torture_strings.h through npm's tiktoken 1.0.22 (tests/peers/encode.mjs).
TEST(Tiktoken, IdsOfAnIndependentImplementation) {
  TALLY_SKIP_WITHOUT(kFolder + "o200k_base.tiktoken");
  const std::map<std::string, const char*> pres = {{"r50k", "gpt-2"}, {"cl100k", "cl100k"}, {"o200k", "o200k"}};
  std::map<std::string, std::vector<std::unique_ptr<Tokenizer>>> tokenizers;  // by merges, by ranks
  for (const auto& [name, pre] : pres) {
    const std::string path = kFolder + name + "_base.tiktoken";
    tokenizers[name].push_back(FromRanks(Ranks(path), pre));
    auto made = TokenizerFromRanks(path);
    ASSERT_TRUE(made.ok()) << made.status().message();
    tokenizers[name].push_back(std::move(*made));
  }
  int compared = 0;
  for (const char* file : {"tiktoken_ids.txt", "torture_ids.txt"}) {
    std::istringstream lines(test::ReadAll(TALLY_SOURCE_DIR "/tests/text/" + std::string(file)));
    for (std::string line; std::getline(lines, line); ++compared) {
      std::istringstream fields(line);
      std::string name, hex, text;
      fields >> name >> hex;
      for (size_t i = 0; i + 1 < hex.size(); i += 2) text.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
      Ids ids;
      for (int32_t id; fields >> id;) ids.push_back(id);
      ASSERT_TRUE(tokenizers.contains(name)) << line;
      for (const auto& tokenizer : tokenizers[name]) {
        EXPECT_EQ(Encode(*tokenizer, text), ids) << name << ": '" << text << "'";
        EXPECT_EQ(tokenizer->Decode(ids), text);
      }
    }
  }
  EXPECT_GE(compared, 180);
}

}  // namespace
}  // namespace tally
