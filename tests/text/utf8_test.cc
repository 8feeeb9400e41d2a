// SPDX-License-Identifier: Apache-2.0
#include "engine/text/utf8.h"

#include <random>

#include "tests/text/text_test_util.h"

namespace tally {
namespace {

std::string Repair(std::string_view text) {
  std::string storage;
  return std::string(WellFormed(text, &storage));
}

constexpr const char* kBad = "\xEF\xBF\xBD";

// The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11: one U+FFFD for each maximal subpart.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string b = kBad;
  EXPECT_EQ(Repair("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                   "A"),
            b + b + b + b + b + b + b + b + "A");
  EXPECT_EQ(Repair("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                   "A"),
            b + b + b + b + b + b + b + b + "A");
  EXPECT_EQ(Repair("\xF4\x91\x92\x93\xFF"
                   "A\x80\xBF"
                   "B"),
            b + b + b + b + b + "A" + b + b + "B");
  EXPECT_EQ(Repair("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                   "A"),
            b + b + b + b + "A");
  EXPECT_EQ(Repair("ok\xE2\x82"), "ok" + b);
}

TEST(Utf8, LeavesWellFormedTextAlone) {
  std::string all;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code < 0xD800 || code > 0xDFFF) AppendUtf8(code, &all);
  }
  std::string storage;
  const std::string_view same = WellFormed(all, &storage);
  EXPECT_EQ(same.data(), all.data());
  size_t at = 0;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    const Utf8Char c = ReadUtf8(all, at);
    ASSERT_EQ(c.code, static_cast<int32_t>(code));
    at += c.bytes;
    ASSERT_EQ(ReadUtf8Before(all, at).code, static_cast<int32_t>(code));
  }
}

TEST(Utf8, WholeCharactersDoNotDependOnTheCuts) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const char* kParts[] = {"a", "\xC3", "\xA9", "\xE4\xB8", "\xAD", "\xF0\x9F", "\x99\x82", "\xFF", "\xED\xA0", "\xF4\x8F"};
    for (size_t i = random() % 20; i > 0; --i) bytes += kParts[random() % std::size(kParts)];
    std::string whole = Repair(bytes), streamed, held;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(bytes.size() - at, 1 + random() % 3);
      held += bytes.substr(at, n);
      at += n;
      const size_t used = AppendWholeCharacters(held, &streamed);
      held.erase(0, used);
      ASSERT_LE(held.size(), 3u);
    }
    if (!held.empty()) streamed += kBad;
    ASSERT_EQ(streamed, whole);
  }
}

TEST(Utf8, FindsWhatStringsFind) {
  std::mt19937 random(5);
  const auto word = [&](size_t length, int letters) {
    std::string text;
    while (text.size() < length) text += static_cast<char>('a' + random() % static_cast<unsigned>(letters));
    return text;
  };
  size_t hits = 0;
  for (int round = 0; round < 3000; ++round) {
    const int letters = 1 + static_cast<int>(random() % 3);
    std::string text = word(random() % 2000, letters);
    const std::string what = word(random() % (round % 3 == 0 ? 300 : 12), letters);
    if (!text.empty() && round % 2 == 0) text.insert(random() % text.size(), what);
    for (size_t from = 0; from <= text.size() + 1; from += 1 + random() % 200) {
      const size_t at = FindText(text, what, from);
      ASSERT_EQ(at, text.find(what, from)) << text << ", " << what << ", " << from;
      hits += at != text.npos ? 1 : 0;
    }
  }
  EXPECT_GT(hits, 1000u);
}

}  // namespace
}  // namespace tally
