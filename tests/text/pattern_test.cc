// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pattern.h"

#include <ctime>

#include "tests/support/sanitizers.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

// All matches, joined by '|'.
std::string Matches(std::string_view regex, std::string_view text) {
  Result<Pattern> pattern = Pattern::Compile(regex, "test");
  if (!pattern.ok()) return "error: " + pattern.status().message();
  Matcher matcher(text.size());
  std::string out;
  for (size_t from = 0; from <= text.size();) {
    Result<Matcher::Match> match = matcher.Find(*pattern, text, from);
    if (!match.ok()) return "error: " + match.status().message();
    if (!match->found) break;
    out += (out.empty() ? "" : "|") + std::string(text.substr(match->begin, match->end - match->begin));
    from = std::max(match->end, match->begin + 1);
    while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
  }
  return out;
}

TEST(Pattern, SpaceIsWhiteSpace) {
  // U+180E is no white space since Unicode 6.3, though PCRE2's \s has it; U+0085 is.
  EXPECT_EQ(Matches(R"(\s+)",
                    "a \t\xC2\x85"
                    "b\xE1\xA0\x8E"
                    "c\xE3\x80\x80"),
            " \t\xC2\x85|\xE3\x80\x80");
  EXPECT_EQ(Matches(R"([\s]+)",
                    "a\xE2\x80\xA8"
                    "b\xE1\xA0\x8E"),
            "\xE2\x80\xA8");
  EXPECT_EQ(Matches(R"([^\s]+)",
                    "a\xC2\xA0\xE1\xA0\x8E"
                    "c"),
            "a|\xE1\xA0\x8E"
            "c");
  EXPECT_EQ(Matches(R"(\S+)",
                    "a\xC2\xA0\xE1\xA0\x8E"
                    "c"),
            "a|\xE1\xA0\x8E"
            "c");
  EXPECT_EQ(Matches(R"([\S]+)",
                    "a\xC2\xA0\xE1\xA0\x8E"
                    "c"),
            "a|\xE1\xA0\x8E"
            "c");
  EXPECT_EQ(Matches(R"(\s+(?!\S))", "a   b  "), "  |  ");
}

TEST(Pattern, DialectDifferencesAreTranslated) {
  EXPECT_EQ(Matches(R"(\w+)", "na\xC3\xAFve_1 \xC2\xBD e\xCC\x81"),
            "na\xC3\xAFve_1|e\xCC\x81");  // U+00BD is no \w
  EXPECT_EQ(Matches(R"(\u0041\x{42}?)", "ABA"), "AB|A");
  EXPECT_EQ(Matches(R"(b$)", "ab\nb"), "b|b");  // $ stands at the end of each line
  EXPECT_EQ(Matches(R"(\s+$)", "  x  \t"), "  \t");
  EXPECT_EQ(Matches(R"(\s+$)", "   "), "   ");
  EXPECT_EQ(Matches(R"((?i:'s))", "'S's"), "'S|'s");
  EXPECT_EQ(Matches(R"([\]\[a]+)", "[a]b"), "[a]");
  EXPECT_EQ(Matches(R"(\p{L}+)", "a1b"), "a|b");
}

TEST(Pattern, WhatNoTokenizerNeedsIsRefused) {
  const std::pair<const char*, int> refused[] = {
      // At byte: flags, groups, and what stands for a place.
      {"a(?i)b|c", 1},
      {"(?i)a", 0},
      {"(?m:x)", 0},
      {"(?#a)a", 0},
      {"(?<n>a)", 0},
      {"(?P<n>a)", 0},
      {"(?>a)", 0},
      {"(?<=a)b", 0},
      {"b(?<!a)", 1},
      {"(a)(?1)", 3},
      {"(?R)", 0},
      {"(?(1)a)", 0},
      {"(?C1)a", 0},
      {"(?|a|b)", 0},
      {"(*NO_JIT)a", 0},
      {R"(a\b+)", 3},
      {R"(\Aa)", 0},
      {R"(\Ga)", 0},
      {R"(\z)", 0},
      // Escapes.
      {R"((a)\1)", 3},
      {R"(\h)", 0},
      {R"(\K)", 0},
      {R"(\Qa)", 0},
      {R"(\v)", 0},
      {R"(\x41)", 0},
      {R"(\u12)", 0},
      {R"(\p{L)", 0},
      {R"(\pL)", 0},
      {"a\\", 1},
      // Classes.
      {"a[a&&]", 1},
      {"[&&a]", 0},
      {"[a&&b&&]", 0},
      {"[a[b[c[d]]]]", 0},  // deeper than any that is published
      {R"([a\b])", 0},
      {"[[:alpha:]]", 0},
      {"[]a]", 0},
      {R"([\W])", 0},
      {R"([a-\d])", 0},
      {R"([\s-z])", 0},
      {"[a-c-e]", 0},
      {"x[", 1},
      {"[a", 0},
      // Quantifiers: of another one, of nothing, too large, of the wrong form.
      {R"(\p{N}{1,3}+)", 0},
      {"a{2}?", 0},
      {"a**", 0},
      {"+a", 0},
      {"a|*b", 2},
      {"(?=a)*", 4},
      {"a{1000}", 0},
      {"a{,2}", 0},
      {"a{", 0},
      {"a)b", 1},
      {"(?i:a)b)", 7},
      // PCRE2 10.42, PCRE2 10.46 and Oniguruma read these differently.
      {R"((?i:\p{Lu}))", 4},
      {R"((?i:(x|[\p{Ll}y])))", 7},
  };
  for (const auto& [regex, byte] : refused) {
    const std::string error = Matches(regex, "a"), quoted = std::string(regex).substr(static_cast<size_t>(byte), 12);
    EXPECT_EQ(error, "error: test: regular expression with '" + quoted + "' at byte " + std::to_string(byte) +
                         " is not supported: " + regex);
  }
  for (const char* regex : {"(a", "[z-a]", "a{3,2}", R"(\p{Letters})", R"(\x{110000})"}) {
    EXPECT_NE(Matches(regex, "a").find("bad regular expression"), std::string::npos) << regex << " " << Matches(regex, "a");
  }
}

// Expressions of published tokenizer.json files that no pre-tokenizer of a GGUF file has (pretokenizer_test, torture_test).
TEST(Pattern, WhatPublishedTokenizersHaveIsAccepted) {
  const struct {
    const char *regex, *text, *matches;
  } cases[] = {
      // tiktoken's cl100k_base, but for {1,3}+
      {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
       "It'S  a1234 !!\n x  ", "It|'S| | a|123|4| !!\n| x|  "},
      {R"( ?[^(\s|.,!?…。，、।۔،)]+)", "ab (c|d) e。f", "ab|c|d| e|f"},                                 // BLOOM
      {R"( ?[^(\s|[.,!?…。，、।۔،])]+)", "ab (c|d) e。f", "ab|c|d| e|f"},                               // as its file has it
      {R"([\p{Lu}\p{Lo}&&[^\p{Han}]]*[\p{Ll}&&[^\p{Han}]]+|\p{Han}+)", "Ab中文c가d", "Ab|中文|c|가d"},  // Kimi K2
      {R"(\d{1,3}(?=(?:\d{3})*\b))", "1234567 12345a 12.", "1|234|567|12"},                             // Tiny Aya
      {R"([^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\s+)", "ab c d1 e", "ab c d| e"},         // EXAONE
      {R"((?=(\d{3})+(?!\d)))", "12345", ""},                                                           // SuperBPE
      {R"((IMGIMG)((A|B|C){1,4})Z)", "IMGIMGABCZ IMGIMGZ", "IMGIMGABCZ"},                               // Chameleon
      {R"([\p{P}!-/:-@\[-`{-~])", "a^b[c", "^|["},
      {" {2,}", "a   b c", "   "},
      {R"([^\n]+|[\n]+)", "a\n\nb", "a|\n\n|b"},  // Gemma
      {R"([一-龥぀-ゟ]+|\S)", "一二a", "一二|a"},
      {"[-a]+|[+.-]+|[^-b]", "-a-+.-c", "-a-|+.-|c"},
      {"a.c|^b$", "a\nc\nb\nabc", "b|abc"},  // ^ and $ stand at lines, . is not their end
      {R"(\{a\}|]|})", "{a}]}", "{a}|]|}"},
  };
  for (const auto& [regex, text, matches] : cases) EXPECT_EQ(Matches(regex, text), matches) << regex;
}

// Oniguruma's classes in classes: a class in another joins it, && takes what both sides have, ^ turns the whole around.
TEST(Pattern, ClassesInClasses) {
  const struct {
    const char *regex, *text, *matches;
  } cases[] = {
      {"[a-z&&[^aeiou]]+", "hello", "h|ll"},
      {"[^a-z&&[^aeiou]]+", "hello1", "e|o1"},
      {"[x[a-c]]+", "xab-d", "xab"},
      {"[x[^a-y]]+", "xyz1", "x|z1"},
      {"[^x[^a-y]]+", "xyaz1\n", "ya"},
      {"[-[ab]-]+", "a-b&", "a-b"},
      {"[abc&&bcd&&[c-e]]", "abcde", "c"},
      {R"([\p{L}\p{N}&&[^\p{Ll}]&&[^1]]{2})", "A2b1C3", "A2|C3"},
      {R"([\w&&[^\s\d]]+?b)", "a1ab b", "ab"},
      {R"(\bb\b|a\b.)", "b ab,a b", "b|a |b"},
      {R"(\b.)", "\xC3\xA9\xCC\x81 _a", "\xC3\xA9| |_"},
  };
  for (const auto& [regex, text, matches] : cases) EXPECT_EQ(Matches(regex, text), matches) << regex;
}

class Clock {
 public:
  ~Clock() {
#if defined(TALLY_SHADOW_MEMORY)
    constexpr double kMostSeconds = 100;
#else
    constexpr double kMostSeconds = 10;
#endif
    EXPECT_LT(static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC, kMostSeconds);
  }

 private:
  std::clock_t begin_ = std::clock();
};

// The bound holds for backtracking, for long reads between few backtracks, for long classes and many alternatives, and for places that
// are tried in vain one after another. Without it each of these takes minutes or hours.
TEST(Pattern, CostlyExpressionsEndInAnErrorSoon) {
  std::string words, many = "!", of_many = "[";
  while (words.size() < 200'000) words += "\xC3\xA0y12";
  words += "?!";
  for (int i = 0; i < 300; ++i) many += R"(|\w*\w)" + std::to_string(i) + "!";
  for (int c = 0x100; c < 0x800; c += 2) of_many += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
  std::string possessive;
  for (int i = 0; i < 700; ++i) possessive += "a*+(?:b|c)|";
  const std::string run = std::string(200'000, 'a') + "?!c";  // so that a missing ! or c does not tell
  const std::pair<std::string, std::string> cases[] = {
      {"(?:a|aa)+[0-9]", run},
      {R"(\w*\w*\w*ww\*|!\SS)", words},
      {R"(\w*\w*\w*!)", words},
      {R"(\w*\w*(?=\w*!))", words},
      {R"((?:\w*\w*)*!)", words},
      {R"(\w*?\w*?\w*?!)", words},
      {R"(\w*\w{255}!)", run},
      {many, run},
      {of_many.substr(0, 2000) + "a]*[ab]*?[^?]!", run},
      {possessive + "x", run},
      {"a(?:b?a)*+$", run},
      {"a+$", run},
      {"a+c", run},
      {"a(?=a*c)|a", run},
      {"(?:a|b)+?c", run},
      {R"((?=(\d{3})+(?!\d)))", std::string(200'000, '1')},
      {R"((?:[a-z&&[^x]]+[a-z&&[^y]]*)+!)", run},
      {R"([a-z&&[^x]]*[a-z&&[^y]]*[0-9])", run},
  };
  for (const auto& [regex, text] : cases) {
    const Clock clock;
    const std::string error = Matches(regex, text);
    EXPECT_TRUE(error.starts_with("error: regular expression too costly for this text (") && error.ends_with(": " + regex))
        << regex << ": " << error.substr(0, 80);
  }
  EXPECT_EQ(Matches("a+\\?", run), run.substr(0, 200'001));
  EXPECT_EQ(Matches("x|z", run), "");
}

// All searches of a Matcher share its budget: cutting a text in many places is no way around it.
TEST(Pattern, SearchesShareABudget) {
  const Clock clock;
  std::string text;
  while (text.size() < 200'000) text += std::string(200, 'a') + "!";
  EXPECT_NE(Matches("[ab]*[ac]*b|!", text).find("too costly"), std::string::npos);
  EXPECT_EQ(Matches("[ab]*[ac]*b|!", text.substr(0, 201)), "!");
}

TEST(Pattern, ScriptsAreThoseOfTheCharactersAlone) {
  // U+3002 and U+30FC are of no script, though Han and Katakana are among those that use them.
  const std::string text =
      "\xE4\xB8\xAD\xE3\x80\x82\xE3\x82\xAB\xE3\x83\xBC"
      "a";
  EXPECT_EQ(Matches(R"(\p{Han}+)", text), "\xE4\xB8\xAD");
  EXPECT_EQ(Matches(R"([\p{Han}\p{Katakana}]+)", text), "\xE4\xB8\xAD|\xE3\x82\xAB");
  EXPECT_EQ(Matches(R"(\p{^Han}+)", text), text.substr(3));
  EXPECT_EQ(Matches(R"(\P{Han}+)", text), text.substr(3));
  EXPECT_EQ(Matches(R"(\p{L}+)", text),
            "\xE4\xB8\xAD|\xE3\x82\xAB\xE3\x83\xBC"
            "a");
  EXPECT_EQ(Matches(R"(\p{Ll})", text), "a");
}

TEST(Pattern, SpacesAtTheEndAreFoundFromAnyPlace) {
  const Result<Pattern> pattern = Pattern::Compile(R"(\s+$)", "test");
  const std::string text = "a  \n b \t";
  Matcher matcher(text.size());
  const std::pair<size_t, size_t> found[] = {{1, 3}, {1, 3}, {2, 3}, {6, 8}, {6, 8}, {6, 8}, {6, 8}, {7, 8}};
  for (size_t from = 0; from < std::size(found); ++from) {
    const Result<Matcher::Match> match = matcher.Find(*pattern, text, from);
    ASSERT_TRUE(match.ok() && match->found) << from;
    EXPECT_EQ(std::pair(match->begin, match->end), found[from]) << from;
  }
  EXPECT_FALSE(matcher.Find(*pattern, text, text.size())->found);
}

TEST(Pattern, LongMatchesAreNoProblem) {
  const std::string text(1 << 22, 'a');
  EXPECT_EQ(Matches(R"(\p{L}+)", text).size(), text.size());
  EXPECT_EQ(Matches(R"((?:[ab]|c)+)", text).size(), text.size());  // remembers every step
}

}  // namespace
}  // namespace tally
