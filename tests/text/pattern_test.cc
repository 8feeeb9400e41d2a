#include "engine/text/pattern.h"

#include "tests/text/text_test_util.h"

namespace tally {
namespace {

// All matches, joined by '|'.
std::string Matches(std::string_view regex, std::string_view text) {
  Result<Pattern> pattern = Pattern::Compile(regex, "test");
  if (!pattern.ok()) return "error: " + pattern.status().message();
  Matcher matcher;
  std::string out;
  for (size_t from = 0; from <= text.size();) {
    Result<Matcher::Match> match = matcher.Find(*pattern, text, from);
    if (!match.ok()) return "error: " + match.status().message();
    if (!match->found) break;
    out += (out.empty() ? "" : "|") + std::string(text.substr(match->begin, match->end - match->begin));
    from = std::max(match->end, match->begin + 1);
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
  EXPECT_EQ(Matches(R"(\u0041\v?)",
                    "A\x0B"
                    "A"),
            "A\x0B|A");
  EXPECT_EQ(Matches(R"(b$)", "ab\nb"), "b|b");  // $ stands at the end of each line
  EXPECT_EQ(Matches(R"(\s+$)", "  x  \t"), "  \t");
  EXPECT_EQ(Matches(R"(\s+$)", "   "), "   ");
  EXPECT_EQ(Matches(R"((?i:'s))", "'S's"), "'S|'s");
  EXPECT_EQ(Matches(R"([\]\[a]+)", "[a]b"), "[a]");
  EXPECT_EQ(Matches(R"(\p{L}+)", "a1b"), "a|b");
}

TEST(Pattern, WhatIsReadDifferentlyIsAnError) {
  for (const char* regex : {R"([a&&b])", R"([a[bc]])", R"(\h)", R"(\bx)", R"((?m:x))", R"((?s)x)", R"(\p{N}{1,3}+)", R"(\Qa)",
                            R"([\W])", R"(a\)", R"(\u12)", R"(\p{L)"}) {
    EXPECT_NE(Matches(regex, "a").find("not supported"), std::string::npos) << regex << " " << Matches(regex, "a");
  }
  EXPECT_NE(Matches("(a", "a").find("bad regular expression"), std::string::npos);
}

TEST(Pattern, CostlyExpressionsEndInAnError) {
  const std::string text(200, 'a');
  EXPECT_NE(Matches(R"((?:a|aa)+[0-9])", text).find("error: regular expression too costly"), std::string::npos);
}

TEST(Pattern, LongMatchesAreNoProblem) {
  const std::string text(1 << 22, 'a');
  EXPECT_EQ(Matches(R"(\p{L}+)", text).size(), text.size());
  EXPECT_EQ(Matches(R"((?:[ab]|c)+)", text).size(), text.size());  // remembers every step
}

}  // namespace
}  // namespace tally
