#include "engine/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <ctime>

#include "tests/support/sanitizers.h"

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
  for (const char* regex : {R"([a&&b])",      R"([a[bc]])",     R"(\h)",
                            R"(\bx)",         R"((?m:x))",      R"((?s)x)",
                            R"(\p{N}{1,3}+)", R"(\Qa)",         R"([\W])",
                            R"(a\)",          R"(\u12)",        R"(\p{L)",
                            R"(\Ga)",         R"(a{2}?)",       R"((*NO_JIT)a)",
                            R"((?P<n>a))",    R"((?R)a)",       R"((?C1)a)",
                            R"((a)(?1))",     R"((?(1)a))",     R"((?|a|b))",
                            R"((?&n)a)",      R"((?)a)",        R"((?<*a)b)",
                            R"((?#a)a)",      R"((?<=a{65})b)", R"((?<!(?:a{9}){8})b)"}) {
    EXPECT_NE(Matches(regex, "a").find("not supported"), std::string::npos) << regex << " " << Matches(regex, "a");
  }
  EXPECT_NE(Matches("(a", "a").find("bad regular expression"), std::string::npos);
}

// What Oniguruma 6.9.8 (ONIG_SYNTAX_DEFAULT) finds.
TEST(Pattern, AnIsolatedFlagGoesToItsGroupsEnd) {
  const struct {
    const char *regex, *matches;
  } cases[] = {{"a(?i)b|c", "ab|ac"},
               {"(a(?i)b|c)", "ab|ac"},
               {"(?<n>a(?i)b|c)", "ab|ac"},
               {"(?i)a(?i)b|c", "ab|ac|AB|AC"},
               {"(?i:a(?i)b|c)", "ab|ac|AB|AC"},
               {"a|b(?i)c|d", "a|a"},
               {"(?i)b|c", "b|c|B|C|b|B|c|C"},
               {"x|(?i)b|c", "x|b|c|B|C|b|B|c|C"},
               {"((?i))b|c", "b|c|b|c"},
               {"(a(?i))b|c", "ab|c|c"},
               {"a(?i)", "a|a"},
               {"a(?i)|b", "a|a"},
               {"(?<=(?i)b)X|c", "X|c|X|X|X|c"},
               {"a(?!(?i)b|c)|x", "x"},
               {R"(\(?(?i)b|X)", "x|b|X|X|B|X|X|b|X|B|X|X"},
               {"(?i)[(?i)]?c|(?:X)", "x|X|c|X|X|C|X|X|X|c|X|C"}};
  for (const auto& [regex, matches] : cases) EXPECT_EQ(Matches(regex, "xabXacXABXACXbXBXcXC"), matches) << regex;
  for (const char* regex : {"a(?i)b|c)", "(a(?i)b|c", "(?i)*b", "a(?i){2}b", "(?i)a)(b", "x(?i)a)|(b", "a)", "((?i)a))(b"}) {
    EXPECT_NE(Matches(regex, "a").find("bad regular expression"), std::string::npos) << regex << " " << Matches(regex, "a");
  }
}

// (?i:\p{Lu}) finds a in PCRE2 10.46 only, (?i:[\p{Lu}]) in Oniguruma and PCRE2 10.46.
TEST(Pattern, CaseIsNotToldApartAndIgnoredAtOnce) {
  for (const char* regex :
       {R"((?i:\p{Lu}))", R"((?i:[\p{Ll}x]))", R"((?i)\P{Lu})", R"((?i:a(b[^\p{^Lt}])))", R"(a(?i)b|\p{Uppercase})"}) {
    EXPECT_NE(Matches(regex, "a").find("tells cases apart, under the flag i is not supported"), std::string::npos)
        << regex << " " << Matches(regex, "a");
  }
  EXPECT_EQ(Matches(R"((?i:x)\p{Lu}|((?i)x)[\p{Ll}])", "xAXaxbXB"), "xA|Xa|xb|XB");
  EXPECT_EQ(Matches(R"((?i)\p{L}\p{^Han}\p{Latin}[^\p{N}\p{P}])", "aBcDe"), "aBcD");
}

TEST(Pattern, GroupsAreRubys) {
  for (const char* regex :
       {"(?:a)+", "(?>a+)", "(?<n>a)+", "(?'n'a)+", "a(?=a)a", "a(?!b)a", "(?<=a|^)a+", "(?<!b)a+", "(?i)A+", "(?i:A)+"}) {
    EXPECT_EQ(Matches(regex, "aa"), "aa") << regex;
  }
}

TEST(Pattern, CostlyExpressionsEndInAnError) {
  const std::string text(200, 'a');
  EXPECT_NE(Matches(R"((?:a|aa)+[0-9])", text).find("error: regular expression too costly"), std::string::npos);
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

// PCRE2 goes back few times, but reads far each time: minutes, if only its turns were counted.
TEST(Pattern, NorMayTheyReadOnBetweenTurns) {
  const Clock clock;
  std::string words, sixty_thousand(60'000, 'a');
  while (words.size() < 15'000) words += "\xC3\xA0y12";
  for (const char* regex :
       {R"(\w*\w*\w*ww\*|!\SS)", R"(\w*\w*\w*!)", R"(\w*\w*(?=\w*!))", R"((?:\w*\w*)*!)", R"(\w*?\w*?\w*?!)"}) {
    EXPECT_NE(Matches(regex, words).find("error: regular expression too costly"), std::string::npos) << regex;
  }
  EXPECT_NE(Matches(R"(\w*\w{60001}!)", sixty_thousand).find("error: regular expression too costly"), std::string::npos);
  // Looking behind is not paid for, groups that are copied and classes that are long are.
  EXPECT_EQ(Matches(R"((?<=a{64})b)", sixty_thousand + "b"), "b");
  std::string groups = "(?:a*a*";
  for (int i = 0; i < 500; ++i) groups += "(?<n" + std::to_string(i) + ">)";
  EXPECT_NE(Matches(groups + ")!", sixty_thousand + "?!").find("error: regular expression too costly"), std::string::npos);
  std::string of_many = "[";
  for (int c = 0x100; c < 0x800; c += 2) of_many += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
  EXPECT_NE(
      Matches(of_many.substr(0, 2000) + "a]*[ab]*?[^?]!", sixty_thousand + "?!").find("error: regular expression too costly"),
      std::string::npos);
  std::string many = "!";
  for (int i = 0; i < 300; ++i) many += R"(|\w*\w)" + std::to_string(i) + "!";
  EXPECT_NE(Matches(many, sixty_thousand + "1?!").find("error: regular expression too costly"), std::string::npos);
}

// Each of them looks at all that follows, from every place, and finds nothing: by backtracking, by reading on, behind a match.
TEST(Pattern, NorMayTheyTakeTheSquareOfTheText) {
  const Clock clock;  // the square of the text takes minutes each
  const std::string text = std::string(1'000'000, 'a') + "b";
  for (const char* regex : {R"(a(?:b?a)*+$)", R"(a+$)", R"(a+c)", R"(a(?=a*c)|a)", R"((?:a|b)+?c)"}) {
    EXPECT_NE(Matches(regex, text).find("error: regular expression too costly"), std::string::npos) << regex;
  }
  EXPECT_EQ(Matches(R"(a+b)", text), text);
  EXPECT_EQ(Matches(R"(b$)", text), "b");
  EXPECT_EQ(Matches(R"(x|c)", text), "");
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

TEST(Pattern, AQuantifierMayHaveNoLeast) {
  EXPECT_EQ(Matches(R"(ba{,2})", "bbabaabaaa"), "b|ba|baa|baa");
  EXPECT_EQ(Matches(R"(a{2,})", "aaa{2,}"), "aaa");
  EXPECT_EQ(Matches(R"(a\{,2})", "aa{,2}"), "a{,2}");
  EXPECT_EQ(Matches(R"(a{,})", "a{,}"), "a{,}");
  EXPECT_EQ(Matches(R"([a{,2}]+)", "a{,2}"), "a{,2}");
}

// What PCRE2 finds when it is given the whole text at once.
std::string MatchesAtOnce(std::string_view regex, std::string_view text) {
  const Result<std::string> translated = TranslatePattern(regex, "test");
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &where, nullptr);
  pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
  std::string out;
  for (size_t from = 0; from <= text.size();) {
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, 0, data, nullptr);
    EXPECT_TRUE(rc >= 0 || rc == PCRE2_ERROR_NOMATCH) << regex << ": error " << rc;
    if (rc < 0) break;
    const PCRE2_SIZE* const span = pcre2_get_ovector_pointer(data);
    out += (out.empty() ? "" : "|") + std::string(text.substr(span[0], span[1] - span[0]));
    from = std::max(span[1], span[0] + 1);
    while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
  }
  pcre2_match_data_free(data);
  pcre2_code_free(code);
  return out;
}

// Texts are searched in pieces: that must not be seen, wherever the pieces end.
TEST(Pattern, PiecesGiveTheMatchesOfTheWhole) {
  std::mt19937 random(5);
  const char* const regexes[] = {
      R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",  // GPT-2
      (R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
       R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
      R"(\s+$)",
      R"(b$)",
      R"(^.)",
      R"(a*)",
      R"((?<=b)a+)",
      R"((?<!b)a+(?!b))",
      R"((?:a|bb)+c?)",
      R"(\z)",
      R"(x|$)",
      R"(.+)",
      R"(b|)",
      R"((?:ab?)+$)",
      R"(\p{N}+)",
      R"(\n^a)",
      R"(\n+(?=^[aA]))",
      R"(\s*^\S)",
      R"(\A.|\n\z)",
  };
  for (int round = 0; round < 12; ++round) {
    std::string text = round % 2 == 0 ? test::RandomText(random, 1500) : "";
    while (text.size() < 6000) {  // runs about as long as the pieces, and much longer
      const size_t run = random() % (round % 3 == 0 ? 3000 : 600);
      const std::string_view what = std::array<std::string_view, 7>{"a", "ab", " ", "A", "\n", "7", "\xC3\xA4"}[random() % 7];
      for (size_t i = 0; i < run; ++i) text += what;
      if (random() % 2 == 0) text += test::RandomText(random, 5);
    }
    for (const char* regex : regexes)
      ASSERT_TRUE(Matches(regex, text) == MatchesAtOnce(regex, text)) << regex << ", round " << round;
  }
}

// What looks at the character before or after it, at every place about a piece's end.
TEST(Pattern, PiecesEndAnywhere) {
  for (size_t before = 500; before < 520; ++before) {
    const std::string text = std::string(before, 'x') + "\nb" + std::string(700, 'x');
    EXPECT_EQ(Matches(R"(\n^b)", text), "\nb") << before;
    EXPECT_EQ(Matches(R"(^b)", text), "b") << before;
    EXPECT_EQ(Matches(R"(\n+(?=^b))", text), "\n") << before;
    EXPECT_EQ(Matches(R"((?<=x)$)", text.substr(0, text.size() - 700)), "") << before;
    EXPECT_EQ(Matches(R"((?<=\n)b(?=x))", text), "b") << before;
    EXPECT_EQ(Matches(R"(\z|b)", text), "b|") << before;
    EXPECT_EQ(Matches(R"(\n\z)", text.substr(0, before + 1)), "\n") << before;
    EXPECT_EQ(Matches(R"(^(?!.))", text.substr(0, before + 1)), "") << before;  // no line begins at the end
  }
}

// So many steps from one place that the places are tried one by one, among them places in the middle of a character that look like a
// space by themselves: U+0445 is D1 85, U+0420 is D0 A0, U+00E0 is C3 A0.
TEST(Pattern, PlacesThatAreTriedAloneAreCharacters) {
  std::mt19937 random(6);
  std::string text;
  while (text.size() < 8000) {
    for (size_t n = 30 + random() % 40; n > 0; --n) {
      text += std::array<std::string_view, 4>{"\xD1\x85", "\xD0\xA0", "\xC3\xA0", "a"}[random() % 4];
    }
    text += ' ';
  }
  for (const char* regex : {R"(\s\w*\w*\w*!|\s)", R"(\s\w*\w*\w*!|\w\s)", R"((?:\w*\w*!)?\s)"}) {
    EXPECT_TRUE(Matches(regex, text) == MatchesAtOnce(regex, text)) << regex;
  }
}

TEST(Pattern, LongMatchesAreNoProblem) {
  const std::string text(1 << 22, 'a');
  EXPECT_EQ(Matches(R"(\p{L}+)", text).size(), text.size());
  EXPECT_EQ(Matches(R"((?:[ab]|c)+)", text).size(), text.size());  // remembers every step
}

}  // namespace
}  // namespace tally
