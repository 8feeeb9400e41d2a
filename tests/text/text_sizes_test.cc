// SPDX-License-Identifier: Apache-2.0
// Large and awkward texts: there and back, in time that grows with the text and not with its square. A quarter of a million bytes of one
// letter must take less than half a second; so must everything else here. Time is the processor's, so that neighbours do not count.
#include <ctime>
#include <set>
#include <string>

#include "engine/text/bpe.h"
#include "loaders/loaders.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

using test::Ids;

constexpr size_t kBytes = 250'000;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kMostSeconds = 20;
#else
constexpr double kMostSeconds = .5;
#endif

struct Large {
  std::string name, text;
};

std::string Repeat(std::string_view part) {
  std::string text;
  while (text.size() < kBytes) text += part;
  return text;
}

std::vector<Large> LargeTexts() {
  std::vector<Large> texts;
  for (const char* part : {"a",
                           "A",
                           " ",
                           "\n",
                           "\t",
                           "\r\n",
                           "1",
                           "!",
                           "<",
                           "'",
                           "中",
                           "🙂",
                           "é",
                           "ש",
                           "̣́",
                           "\u00A0",
                           "ab",
                           "aB",
                           "'s",
                           "<s",
                           "<|",
                           " \n",
                           "a ",
                           " 1",
                           "1a",
                           "a中",
                           "\n\n ",
                           "x̣́",
                           "👨‍👩‍👧‍👦",
                           "\uFEFF",
                           "\u200D"}) {
    texts.push_back({"'" + std::string(part) + "' repeated", Repeat(part)});
  }
  for (const char* part : {"a", " ", "\n", "1", "!", "中"}) {
    texts.push_back({"'" + std::string(part) + "' repeated, then x", Repeat(part) + "x"});
  }
  texts.push_back({"NUL repeated", std::string(kBytes, '\0')});
  std::mt19937 random(1);  // the standard says what it draws
  std::string word, digits, upper;
  while (word.size() < kBytes) word.push_back(static_cast<char>('a' + random() % 26));
  while (digits.size() < kBytes) digits.push_back(static_cast<char>('0' + random() % 10));
  while (upper.size() < kBytes) upper.push_back(static_cast<char>((random() % 2 ? 'a' : 'A') + random() % 26));
  texts.push_back({"a word of random letters", word});
  texts.push_back({"random digits", digits});
  texts.push_back({"random letters of both cases", upper});
  texts.push_back({"text of every kind", test::RandomText(random, kBytes / 2)});
  return texts;
}

// Of those, the ones that merge in ways of their own.
bool MergesInAWayOfItsOwn(const Large& large) {
  static const std::set<std::string> names = {"'a' repeated",      "' ' repeated",  "'1' repeated",
                                              "'中' repeated",     "'ab' repeated", "a word of random letters",
                                              "text of every kind"};
  return names.contains(large.name);
}

// Byte-level, without any file: runs of one byte merge to runs of up to 128, and so do pairs of different letters.
Metadata DoublingBytes(const std::string& pre) {
  Metadata m;
  m.source = "made by the test";
  std::vector<std::string> tokens, merges;
  for (int b = 0; b < 256; ++b) tokens.push_back(AlphabetOfBytes(std::string(1, static_cast<char>(b))));
  for (size_t n = 1; n <= 64; n *= 2) {
    for (const unsigned char byte : std::string("a \n1!\x9F\xCC\x81")) {
      const std::string half = AlphabetOfBytes(std::string(n, static_cast<char>(byte)));
      merges.push_back(half + " " + half);
      tokens.push_back(half + half);
    }
  }
  for (char l = 'b'; l <= 'z'; ++l) {
    for (char r = 'a'; r <= 'z'; ++r) {
      merges.push_back(std::string(1, l) + " " + r);
      tokens.push_back(std::string{l, r});
    }
  }
  m.Set("tokenizer.ggml.model", std::string("gpt2"));
  m.Set("tokenizer.ggml.pre", pre);
  m.Set("tokenizer.ggml.tokens", tokens);
  m.Set("tokenizer.ggml.merges", merges);
  return m;
}

// SentencePiece's way, with the same runs.
Metadata DoublingScored() {
  Metadata m;
  m.source = "made by the test";
  std::vector<std::string> tokens = {"<unk>"};
  std::vector<int64_t> types = {2};
  std::vector<double> scores = {0};
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", b);
    tokens.push_back(text);
    types.push_back(6);
    scores.push_back(0);
  }
  for (const char* character : {"\xE2\x96\x81", "a", "b", "1", "中", "🙂"}) {
    std::string run = character;
    for (int n = 1; n <= 64; n *= 2, run += run) {
      tokens.push_back(run);
      types.push_back(1);
      scores.push_back(-n);
    }
  }
  m.Set("tokenizer.ggml.model", std::string("llama"));
  m.Set("tokenizer.ggml.tokens", tokens);
  m.Set("tokenizer.ggml.token_type", types);
  m.Set("tokenizer.ggml.scores", scores);
  m.Set("tokenizer.ggml.unknown_token_id", uint64_t{0});
  return m;
}

double Seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void ExpectQuickAndWhole(const Result<std::unique_ptr<Tokenizer>>& tokenizer, bool all = true) {
  static const std::vector<Large> texts = LargeTexts();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  for (const Large& large : texts) {
    if (!all && !MergesInAWayOfItsOwn(large)) continue;
    const double start = Seconds();
    const Result<Ids> ids = (*tokenizer)->Encode(large.text, {false, false});
    const double seconds = Seconds() - start;
    ASSERT_TRUE(ids.ok()) << large.name << ": " << ids.status().message();
    EXPECT_LT(seconds, kMostSeconds) << large.name;
    EXPECT_TRUE((*tokenizer)->Decode(*ids) == large.text) << large.name;
  }
}

const char* const kPres[] = {"gpt-2",       "llama-bpe", "gpt-4o", "deepseek-coder", "deepseek-llm",
                             "deepseek-v3", "starcoder", "falcon", "kimi-k2",        "default"};

TEST(TextSizes, MadeByteLevel) {
  for (const char* pre : kPres) {
    SCOPED_TRACE(pre);
    ExpectQuickAndWhole(TokenizerFromGguf(DoublingBytes(pre)));
  }
}

TEST(TextSizes, MadeScored) { ExpectQuickAndWhole(TokenizerFromGguf(DoublingScored())); }

class PublishedSizes : public testing::TestWithParam<const char*> {};

Result<std::unique_ptr<Tokenizer>> FromFile(const std::string& path) {
  if (path.ends_with(".json")) return TokenizerFromJson(path);
  if (path.ends_with(".tiktoken")) return TokenizerFromRanks(path);
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadGguf(path));
  return TokenizerFor(inventory);
}

TEST_P(PublishedSizes, LargeTexts) {
  const std::string path = test::Shared(GetParam());
  TALLY_SKIP_WITHOUT(path);
  ExpectQuickAndWhole(FromFile(path), false);  // all texts in all ways to split them: MadeByteLevel
}

// 3 MB in less than two seconds, and back byte for byte.
TEST_P(PublishedSizes, WarAndPeace) {
  const std::string path = test::Shared(GetParam()), novel = test::Shared("text/war-and-peace.txt");
  TALLY_SKIP_WITHOUT(path);
  TALLY_SKIP_WITHOUT(novel);
  const std::string text = test::ReadAll(novel);
  ASSERT_GT(text.size(), 3'000'000u);
  const auto tokenizer = FromFile(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const double start = Seconds();
  const Result<Ids> ids = (*tokenizer)->Encode(text, {false, false});
  EXPECT_LT(Seconds() - start, 2 * kMostSeconds);
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_TRUE((*tokenizer)->Decode(*ids) == text);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedSizes,
                         testing::Values("tokenizers/llama.cpp-vocabs/ggml-vocab-gpt-2.gguf",
                                         "tokenizers/llama.cpp-vocabs/ggml-vocab-llama-spm.gguf",
                                         "tokenizers/llama.cpp-vocabs/ggml-vocab-deepseek-coder.gguf",
                                         "tokenizers/llama.cpp-vocabs/ggml-vocab-mpt.gguf", "tokenizers/hf/gpt2.tokenizer.json",
                                         "tokenizers/tiktoken/r50k_base.tiktoken", "tokenizers/tiktoken/cl100k_base.tiktoken",
                                         "tokenizers/tiktoken/o200k_base.tiktoken"));

}  // namespace
}  // namespace tally
