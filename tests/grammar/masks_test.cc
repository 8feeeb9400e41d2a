// SPDX-License-Identifier: Apache-2.0
// Masks against reading every token by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mix.h"
#include "engine/grammar/grammar.h"

namespace tally {
namespace {

// Bytes, pieces of JSON and words, as vocabularies have them; two tokens with the same bytes, one without any, and an end.
std::shared_ptr<const Vocabulary> SomeVocabulary() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  const char* const pieces[] = {"{",
                                "\"",
                                "\":",
                                "\": \"",
                                "\",\"",
                                "\"}",
                                "},{",
                                "true",
                                "tr",
                                "ue",
                                "false",
                                "null",
                                "12",
                                "345",
                                "-1",
                                "0.5",
                                "e+",
                                "name",
                                "na",
                                "me",
                                "age",
                                "Hello",
                                " world",
                                "\\n",
                                "\\u00",
                                "\xc3\xa9",
                                "\xe4\xb8",
                                "\xad\"",
                                "],[",
                                "[1",
                                "]}",
                                "    ",
                                "aaaaaaaaaaaaaaaaaaaaaaaa",
                                "abc\"",
                                "\"abc\",\"na",
                                "2024",
                                "-02-",
                                "29"};
  for (const char* piece : pieces) tokens.emplace_back(piece);
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string word;
    for (uint64_t n = SplitMix64(i) % 6 + 2; word.size() < n;)
      word += "abcdefgh \"0123,:{}[]\\"[SplitMix64(i * 64 + word.size()) % 21];
    tokens.push_back(word);
  }
  tokens.emplace_back("true");
  tokens.emplace_back("");
  tokens.emplace_back("<end>");
  const int32_t end = static_cast<int32_t>(tokens.size()) - 1;
  return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<int32_t>{end});
}

bool Has(const TokenMask& mask, size_t token) { return ((*mask)[token / 64] >> (token % 64) & 1) != 0; }

const char* const kSchemas[] = {
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"enum":["a","abc","Hello"]}}},"required":["name","age"]})",
    R"({"type":"object","properties":{"id":{"type":"string","minLength":40,"maxLength":60},"day":{"type":"string","format":"date"}},"required":["id","day"],"additionalProperties":false})",
    R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"number"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"],"additionalProperties":false}}})",
    R"({"anyOf":[{"type":"string","pattern":"^[a-h]+$","maxLength":30},{"type":"array","minItems":3,"maxItems":40},{"type":"null"}]})",
    R"({"type":"string","format":"uri","minLength":30,"maxLength":110})",
    R"({"type":"string","pattern":"^([a-h]{2,}-?)*[a-h]{2}$","maxLength":100})",
    R"({"type":"string","pattern":"^[a-h]+(-{40}[a-h])?$","maxLength":95})",
    R"({"type":"string","pattern":"^[a-h ]+(,d{86})?$","maxLength":105})",
    "true"};

TEST(Masks, AllowWhatReadingAllows) {
  const std::shared_ptr<const Vocabulary> vocabulary = SomeVocabulary();
  const size_t end = vocabulary->size() - 1;
  int allowed = 0, ended = 0;
  for (const char* schema : kSchemas) {
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(schema);
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    for (uint64_t n = 0; n < 4; ++n) {
      GrammarCursor cursor(*grammar, vocabulary);
      for (uint64_t step = 0; step < 40; ++step) {
        const TokenMask mask = cursor.Mask();
        std::vector<int32_t> may;
        for (size_t token = 0; token < vocabulary->size(); ++token) {
          GrammarCursor copy = cursor;
          const bool takes = copy.Take(static_cast<int32_t>(token));
          ASSERT_EQ(Has(mask, token), takes)
              << schema << " step " << step << " token " << vocabulary->bytes(static_cast<int32_t>(token));
          if (takes) may.push_back(static_cast<int32_t>(token));
        }
        ASSERT_FALSE(may.empty());
        allowed += static_cast<int>(may.size());
        EXPECT_EQ(Has(mask, end), cursor.MayEnd());
        EXPECT_EQ(cursor.IsComplete(), may.size() == 1 && may[0] == static_cast<int32_t>(end));
        const int32_t token = may[SplitMix64(n * 1000 + step) % may.size()];
        ASSERT_TRUE(cursor.Take(token));
        if (cursor.ended()) {
          ++ended;
          break;
        }
      }
    }
  }
  EXPECT_GT(allowed, 10000);
  EXPECT_GT(ended, 0);
}

TEST(Masks, ForcedBytesAreTheOnlyOnes) {
  const std::shared_ptr<const Vocabulary> vocabulary = SomeVocabulary();
  const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(
      R"({"type":"object","properties":{"name":{"type":"string"},"kind":{"enum":["cat","cattle"]}},"required":["name","kind"],"additionalProperties":false})");
  ASSERT_TRUE(grammar.ok());
  GrammarCursor cursor(*grammar, vocabulary);
  EXPECT_EQ(cursor.Forced(), "{\"name\":\"");
  EXPECT_EQ(cursor.Forced(3), "{\"n");
  ASSERT_TRUE(cursor.TakeBytes("{\"name\":\"x"));
  EXPECT_EQ(cursor.Forced(), "");
  ASSERT_TRUE(cursor.TakeBytes("\""));
  EXPECT_EQ(cursor.Forced(), ",\"kind\":\"cat");
  ASSERT_TRUE(cursor.TakeBytes(",\"kind\":\"catt"));
  EXPECT_EQ(cursor.Forced(), "le\"}");
  EXPECT_FALSE(cursor.TakeBytes("x"));
  ASSERT_TRUE(cursor.TakeBytes("le\"}"));
  EXPECT_EQ(cursor.Forced(), "");
  EXPECT_TRUE(cursor.IsComplete());
}

// Counts of counts of counts have more states than masks may visit: the answer ends there, and others are as before.
TEST(Masks, AreRefusedWhereTheyTakeTooLong) {
  const auto vocabulary = SomeVocabulary();
  const auto words = [&](const char* pattern) {
    const std::shared_ptr<Grammar> grammar = *Grammar::FromRegex(pattern);
    GrammarCursor cursor(grammar, vocabulary);
    for (int i = 0; i < 100 && !grammar->is_full(); ++i) {
      const TokenMask mask = cursor.Mask();
      EXPECT_EQ(std::ranges::any_of(*mask, [](uint64_t word) { return word != 0; }), !grammar->is_full());
      const bool is_taken = cursor.TakeBytes("many a word");
      EXPECT_EQ(is_taken, !grammar->is_full()) << i;
    }
    return grammar->is_full();
  };
  EXPECT_TRUE(words("((([a-z ]{0,100}){0,100}){0,100}){0,100}X"));
  EXPECT_FALSE(words("([a-z ]{0,100}){0,100}X"));
}

TEST(Masks, OneGrammarServesManyThreads) {
  const std::shared_ptr<const Vocabulary> vocabulary = SomeVocabulary();
  const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(kSchemas[0]);
  ASSERT_TRUE(grammar.ok());
  const std::string text = R"({"name":"Hello world","age":42,"tags":["a","abc"]})";
  std::vector<std::vector<TokenMask>> masks(4);
  std::vector<std::thread> threads;
  for (std::vector<TokenMask>& of : masks) {
    threads.emplace_back([&] {
      GrammarCursor cursor(*grammar, vocabulary);
      for (const char c : text) {
        of.push_back(cursor.Mask());
        if (!cursor.TakeBytes(std::string(1, c))) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<TokenMask>& of : masks) {
    ASSERT_EQ(of.size(), text.size());
    for (size_t i = 0; i < of.size(); ++i) EXPECT_EQ(*of[i], *masks[0][i]) << i;
  }
}

}  // namespace
}  // namespace tally
