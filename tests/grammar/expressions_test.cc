// SPDX-License-Identifier: Apache-2.0
// The machine against languages that are written down by hand, and against a search of all short texts.
#include "engine/grammar/expressions.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "engine/base/mix.h"

namespace tally {
namespace {

bool Accepts(Expressions& e, Expr root, std::string_view text) {
  const Expr end = e.Read(root, text);
  return end != Expressions::kNone && e.MayEnd(end);
}

// Texts over "ab" of at most `most` letters.
std::vector<std::string> Texts(size_t most) {
  std::vector<std::string> texts = {""};
  for (size_t begin = 0, end = 1, n = 0; n < most; ++n) {
    for (size_t i = begin; i < end; ++i) {
      texts.push_back(texts[i] + "a");
      texts.push_back(texts[i] + "b");
    }
    begin = end;
    end = texts.size();
  }
  return texts;
}

// An expression, and the texts of at most kMost letters that are in it, by the definition of each operation.
constexpr size_t kMost = 6;
struct Both {
  Expr expr = Expressions::kNone;
  std::set<std::string> texts;
};

Both RandomBoth(Expressions& e, uint64_t& seed, int depth) {
  seed = SplitMix64(seed);
  const uint64_t choice = depth == 0 ? seed % 3 : seed % 8;
  if (choice == 0) return {Expressions::kEmpty, {""}};
  if (choice < 3) {
    const std::string letter = choice == 1 ? "a" : "b";
    return {e.Literal(letter), {letter}};
  }
  const Both x = RandomBoth(e, seed, depth - 1), y = RandomBoth(e, seed, depth - 1);
  const auto join = [](const std::set<std::string>& p, const std::set<std::string>& q) {
    std::set<std::string> all;
    for (const std::string& a : p) {
      for (const std::string& b : q) {
        if (a.size() + b.size() <= kMost) all.insert(a + b);
      }
    }
    return all;
  };
  Both result;
  switch (choice) {
    case 3: result = {e.Concat(x.expr, y.expr), join(x.texts, y.texts)}; break;
    case 4:
      result = {e.Or({x.expr, y.expr}), x.texts};
      result.texts.insert(y.texts.begin(), y.texts.end());
      break;
    case 5:
      result.expr = e.And({x.expr, y.expr});
      for (const std::string& text : x.texts) {
        if (y.texts.contains(text)) result.texts.insert(text);
      }
      break;
    case 6:
      result.expr = e.And({x.expr, e.Not(y.expr)});
      for (const std::string& text : x.texts) {
        if (!y.texts.contains(text)) result.texts.insert(text);
      }
      break;
    default: {
      const uint32_t min = static_cast<uint32_t>(seed >> 8) % 3, max = min + static_cast<uint32_t>(seed >> 16) % 3;
      const bool unbounded = (seed >> 24) % 3 == 0;
      result.expr = e.Repeat(x.expr, min, unbounded ? Expressions::kUnbounded : max);
      std::set<std::string> power = {""};
      for (uint32_t n = 0; n <= (unbounded ? kMost + min : max); ++n) {
        if (n >= min) result.texts.insert(power.begin(), power.end());
        power = join(power, x.texts);
      }
    }
  }
  return result;
}

TEST(Expressions, HaveTheTextsOfTheirDefinitions) {
  const std::vector<std::string> texts = Texts(kMost);
  int with = 0, dead = 0;
  for (uint64_t n = 0; n < 4000; ++n) {
    Expressions e;
    uint64_t seed = n;
    const Both both = RandomBoth(e, seed, 4);
    ASSERT_TRUE(e.Finish().ok());
    std::set<std::string> begun;  // what begins a text; longer texts may begin so too
    for (const std::string& text : both.texts) {
      for (size_t i = 0; i <= text.size(); ++i) begun.insert(text.substr(0, i));
    }
    for (const std::string& text : texts) {
      ASSERT_EQ(Accepts(e, both.expr, text), both.texts.contains(text)) << n << ": " << text;
      if (begun.contains(text)) {
        ASSERT_FALSE(e.IsNone(e.Read(both.expr, text))) << n << ": " << text;
      }
      with += both.texts.contains(text) ? 1 : 0;
    }
    if (both.texts.empty()) dead += e.IsNone(both.expr) ? 1 : 0;
  }
  EXPECT_GT(with, 1000);
  EXPECT_GT(dead, 20);
}

TEST(Expressions, StatesWithoutAContinuationAreNone) {
  Expressions e;
  const Expr pairs = e.Star(e.Literal("ab"));
  const Expr letters = e.Repeat(e.Or({e.Literal("a"), e.Literal("b")}), 7, 7);
  const Expr odd = e.And({pairs, letters});  // an odd number of letters in pairs
  const Expr even = e.And({pairs, e.Repeat(e.Or({e.Literal("a"), e.Literal("b")}), 4, 8)});
  ASSERT_TRUE(e.Finish().ok());
  EXPECT_TRUE(e.IsNone(odd));
  EXPECT_EQ(e.Next(odd, 'a'), Expressions::kNone);
  EXPECT_TRUE(Accepts(e, even, "abab"));
  EXPECT_EQ(e.Read(even, "ababababa"), Expressions::kNone);
  EXPECT_EQ(e.FirstBytes(e.Read(even, "abababab")), ByteSet());
}

TEST(Expressions, RulesRecur) {
  Expressions e;
  const Expr list = e.NewRule("list"), endless = e.NewRule("endless");
  e.Define(list, e.Concat({e.Literal("("), e.Star(list), e.Literal(")")}));
  e.Define(endless, e.Concat(e.Literal("x"), endless));
  const Expr either = e.Or({list, endless, e.Concat(e.Literal("y"), endless)});
  ASSERT_TRUE(e.Finish().ok());
  EXPECT_TRUE(Accepts(e, list, "(()(()))"));
  EXPECT_FALSE(Accepts(e, list, "(()"));
  EXPECT_EQ(e.Read(list, "())"), Expressions::kNone);
  EXPECT_TRUE(e.IsNone(endless));
  EXPECT_EQ(e.FirstBytes(either), ByteSet::Of('('));  // nothing ends after x or y
  const std::string deep(20000, '(');
  EXPECT_TRUE(Accepts(e, list, deep + std::string(20000, ')')));
}

TEST(Expressions, LeftRecursionIsRefused) {
  Expressions e;
  const Expr a = e.NewRule("first"), b = e.NewRule("second");
  e.Define(a, e.Concat(e.Optional(e.Literal("x")), b));
  e.Define(b, e.Or({e.Literal("y"), e.Concat(a, e.Literal("z"))}));
  const Status status = e.Finish();
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("left recursion"), std::string::npos) << status.message();
}

TEST(Expressions, LongTextsMayHaveMuchInCommon) {
  Expressions e;
  const std::string common(100'000, 'x');
  const Expr root = e.Or({e.Literal(common + "a"), e.Literal(common + "bc"), e.Literal(common), e.Literal("y" + common)});
  ASSERT_TRUE(e.Finish().ok());
  for (const std::string& text : {common, common + "a", common + "bc", "y" + common}) EXPECT_TRUE(Accepts(e, root, text));
  EXPECT_FALSE(Accepts(e, root, common + "b"));
  EXPECT_FALSE(Accepts(e, root, common + "ac"));
}

// (a|b)*a(a|b){n} has 2^n states; only those are made that a text reaches.
TEST(Expressions, StatesAreMadeWhenTextsReachThem) {
  Expressions e;
  const Expr letter = e.Bytes(ByteSet::Range('a', 'b'));
  const Expr root = e.Concat({e.Star(letter), e.Literal("a"), e.Repeat(letter, 200, 200)});
  ASSERT_TRUE(e.Finish().ok());
  std::string text;
  for (uint64_t i = 0; i < 500; ++i) text += SplitMix64(i) % 2 == 0 ? 'a' : 'b';
  EXPECT_EQ(Accepts(e, root, text), text[text.size() - 201] == 'a');
  EXPECT_FALSE(e.is_full());
}

TEST(Expressions, BeyondTheLimitNothingIsAllowed) {
  Expressions e(200);
  const Expr letter = e.Bytes(ByteSet::Range('a', 'b'));
  const Expr root = e.Concat({e.Star(letter), e.Literal("a"), e.Repeat(letter, 20, 20)});
  ASSERT_TRUE(e.Finish().ok());
  Expr state = root;
  for (uint64_t i = 0; i < 200 && state != Expressions::kNone; ++i) state = e.Next(state, SplitMix64(i) % 2 == 0 ? 'a' : 'b');
  EXPECT_TRUE(e.is_full());
  EXPECT_EQ(state, Expressions::kNone);
}

TEST(Expressions, ClippedCountsAreTheSameForShortTexts) {
  Expressions e;
  const Expr letter = e.Bytes(ByteSet::Range('a', 'b'));
  const Expr root = e.Concat({e.Repeat(letter, 100, 200), e.Literal("!"), e.Repeat(e.Literal("x"), 3, 4)});
  ASSERT_TRUE(e.Finish().ok());
  Expr state = root;
  std::set<Expr> clipped;
  for (int i = 0; i < 80; ++i) {
    clipped.insert(e.Clipped(state, 8));
    state = e.Next(state, 'a');
  }
  EXPECT_EQ(clipped.size(), 1u);  // far from both bounds
  for (int i = 80; i < 200; ++i) {
    const Expr other = e.Clipped(state, 8);
    for (const std::string& text : Texts(4)) {
      for (const char* end : {"", "!", "!x", "!xxx", "!xxxx"}) {
        ASSERT_EQ(e.Read(state, text + end) == Expressions::kNone, e.Read(other, text + end) == Expressions::kNone)
            << i << " " << text << end;
      }
    }
    state = e.Next(state, 'b');
  }
}

}  // namespace
}  // namespace tally
