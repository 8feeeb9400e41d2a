// SPDX-License-Identifier: Apache-2.0
// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "tests/support/temp_folder.h"

namespace tally::test {

using Ids = std::vector<int32_t>;

inline std::string Shared(const std::string& path) { return std::string(TALLY_SOURCE_DIR "/../shared/") + path; }

using tally::ReadAll;

#define TALLY_SKIP_WITHOUT(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent"

// Encodes user text: no BOS, no special tokens. An error fails the test.
inline Ids Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {false, false}) {
  Result<Ids> ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids{-1};
}

// Text of characters of every kind that pre-tokenizers tell apart.
inline std::string RandomText(std::mt19937& random, size_t characters) {
  static const std::vector<std::string> kKinds = {"a",
                                                  "b",
                                                  "e",
                                                  "s",
                                                  "t",
                                                  "A",
                                                  "Z",
                                                  " ",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\r\n",
                                                  "\t",
                                                  "'s",
                                                  "'LL",
                                                  "'",
                                                  "1",
                                                  "23",
                                                  "4567",
                                                  ".",
                                                  "!?",
                                                  "<|",
                                                  "=",
                                                  "+",
                                                  "$",
                                                  "_",
                                                  "-",
                                                  "/",
                                                  "é",
                                                  "ß",
                                                  "É",
                                                  "я",
                                                  "Ж",
                                                  "中",
                                                  "文",
                                                  "ひ",
                                                  "가",
                                                  "ऄ",
                                                  "ी",
                                                  "á",
                                                  "\xCC\x81",
                                                  "\xC2\xA0",
                                                  "\xE3\x80\x80",
                                                  "\xE2\x80\x89",
                                                  "\xE1\xA0\x8E",
                                                  "ǅ",
                                                  "ʰ",
                                                  "½",
                                                  "Ⅷ",
                                                  "٣",
                                                  "🙂",
                                                  "👍🏽",
                                                  "—",
                                                  "。",
                                                  "，",
                                                  "\xE2\x80\x8D",
                                                  "\xEF\xB8\x8F",
                                                  "the",
                                                  "hello",
                                                  " world",
                                                  "ing",
                                                  std::string(1, '\0'),
                                                  "\xC2\x85"};
  std::string text;
  for (size_t i = 0; i < characters; ++i) text += kKinds[random() % kKinds.size()];
  return text;
}

}  // namespace tally::test
