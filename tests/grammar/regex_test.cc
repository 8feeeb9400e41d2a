// SPDX-License-Identifier: Apache-2.0
// Regular expressions against std::regex (ECMA-262's syntax for ASCII), and by hand where that does not reach.
#include "engine/grammar/regex.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "engine/base/mix.h"
#include "engine/grammar/formats.h"

namespace tally {
namespace {

struct Regex {
  std::unique_ptr<Expressions> e = std::make_unique<Expressions>();
  Expr root = Expressions::kNone;
  bool Matches(std::string_view text) {
    const Expr end = e->Read(root, text);
    return end != Expressions::kNone && e->MayEnd(end);
  }
};

Result<Regex> Make(std::string_view pattern, bool search = false) {
  Regex regex;
  TALLY_ASSIGN_OR_RETURN(regex.root, ParseRegex(*regex.e, pattern, {.search = search}));
  TALLY_RETURN_IF_ERROR(regex.e->Finish());
  return regex;
}

TEST(Regex, MatchesWhatStdRegexDoes) {
  const char* const patterns[] = {"a",
                                  "ab|cd",
                                  "(a|b)*c",
                                  "a+b?c{2,3}",
                                  "[a-c]+[^a-c]",
                                  "^ab",
                                  "ab$",
                                  "^ab$",
                                  "^a|b$",
                                  "(^a|b)c",
                                  "a(b|c$)",
                                  "a.c",
                                  "\\d+\\.\\d*",
                                  "\\w\\s\\W",
                                  "(?:ab)+",
                                  "(a*)*b",
                                  "a{0}b",
                                  "a{2,}",
                                  "[\\d-]",
                                  "[-a]",
                                  "\\$\\^",
                                  "(?=ab)a.c",
                                  "^(?!ab)[abc]{3}$",
                                  "^(?=.*b)(?=.*c)[abc]+$",
                                  "a(?=b)[bc]d?",
                                  "a?(?:bc|(?=[ab.]{1,3}$)b?\\.?a*)",
                                  "(?:a(?!b|$).(b$)?)?c?|d$",
                                  "(?:a(?=.b)[bc]|d){0,2}b",
                                  "^(?!^[-+.]*$)[-]?1*(?:a|(?=[1.]{1,2}1*$)1?\\.?1*)$",
                                  "(?:^|-)a(?!-)",
                                  "^(?:(?!ab).)*$",
                                  "-(?:b|(?!ac)\\w)+c?(?=$|1)",
                                  "",
                                  "()",
                                  "(a|)b",
                                  "x*"};
  uint64_t seed = 1;
  int matched = 0;
  for (const char* pattern : patterns) {
    for (const bool search : {false, true}) {
      Result<Regex> regex = Make(pattern, search);
      ASSERT_TRUE(regex.ok()) << pattern << ": " << regex.status().message();
      const std::regex reference(pattern, std::regex::ECMAScript);
      for (int i = 0; i < 400; ++i) {
        std::string text;
        for (uint64_t n = (seed = SplitMix64(seed)) % 6; text.size() < n;) text += "abcd.$^ -1x"[(seed = SplitMix64(seed)) % 11];
        const bool expected = search ? std::regex_search(text, reference) : std::regex_match(text, reference);
        EXPECT_EQ(regex->Matches(text), expected) << pattern << (search ? " in " : " is ") << text;
        matched += expected ? 1 : 0;
      }
    }
  }
  EXPECT_GT(matched, 1000);
}

TEST(Regex, CharactersAreUnicode) {
  Result<Regex> letters = Make("^\\p{L}{2}$"), any = Make("^.$"), escaped = Make("\\u00e9|\\u{1F600}|\\x41"), space = Make("\\s");
  ASSERT_TRUE(letters.ok() && any.ok() && escaped.ok() && space.ok());
  EXPECT_TRUE(letters->Matches("\xc3\xa9\xe4\xb8\xad"));
  EXPECT_FALSE(letters->Matches("\xc3\xa9"));
  EXPECT_TRUE(any->Matches("\xf0\x9f\x98\x80"));
  EXPECT_FALSE(any->Matches("\xff"));
  EXPECT_FALSE(any->Matches("\xed\xa0\x80"));  // half of a pair of surrogates
  EXPECT_FALSE(any->Matches("\n"));
  for (const char* text : {"\xc3\xa9", "\xf0\x9f\x98\x80", "A"}) EXPECT_TRUE(escaped->Matches(text)) << text;
  EXPECT_TRUE(space->Matches("\xe2\x80\xa8"));
}

TEST(Regex, WhatIsNotHeldIsNamed) {
  const std::pair<const char*, const char*> wrong[] = {{"(a)\\1", "back reference"},
                                                       {"\\bword", "\\b"},
                                                       {"(?<=a)b", "lookbehind"},
                                                       {"(?i)a", "flag"},
                                                       {"a{3,2}", "wrong order"},
                                                       {"[z-a]", "wrong order"},
                                                       {"(a", "without its )"},
                                                       {"a)", "without its ("},
                                                       {"[a", "without its ]"},
                                                       {"*a", "count of nothing"},
                                                       {"a++", "possessive"},
                                                       {"\\p{Klingon}", "Klingon"},
                                                       {"a^b", "^ where"},
                                                       {"a$b", "$ where"},
                                                       {"(^a)*", "repeated"},
                                                       {"((?!a)b?)*", "repeated"},
                                                       {"(((a(?!b)){0,16}){0,16}){0,16}", "too many"},
                                                       {"\\ud800", "no character"},
                                                       {"\\q", "\\q"},
                                                       {"a{99999999}", "count above"}};
  for (const auto& [pattern, what] : wrong) {
    const Result<Regex> regex = Make(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.status().code(), StatusCode::kBadInput);
    EXPECT_NE(regex.status().message().find(what), std::string::npos) << pattern << ": " << regex.status().message();
  }
  EXPECT_FALSE(Make(std::string(5000, '(') + std::string(5000, ')')).ok());
}

TEST(Regex, Formats) {
  const std::tuple<const char*, std::vector<const char*>, std::vector<const char*>> cases[] = {
      {"date", {"2024-02-29", "2000-02-29", "2023-12-31"}, {"2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-1-1"}},
      {"time", {"00:00:00Z", "23:59:60Z", "12:30:45.123+01:30"}, {"24:00:00Z", "12:00:60Z", "12:00:00", "12:00Z"}},
      {"date-time", {"1963-06-19T08:30:06.283185Z"}, {"1963-06-19 08:30:06Z", "1990-02-31T15:59:59Z"}},
      {"duration", {"P3D", "P1Y2M3DT4H5M6S", "PT36H", "P2W"}, {"P", "PT", "P1", "P1Y2W", "P2D1Y"}},
      {"email",
       {"joe.bloggs@example.com", "\"joe bloggs\"@example.com", "te~st@[127.0.0.1]"},
       {"joe", ".a@b.c", "a..b@c.d", "a@"}},
      {"hostname", {"www.example.com", "a"}, {"-a", "a-", "a..b", ".a", "a_b"}},
      {"ipv4", {"192.168.0.1", "0.0.0.0"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}},
      {"ipv6",
       {"::1", "::", "1::", "1:2:3:4:5:6:7:8", "::ffff:192.168.0.1", "1::d6:192.168.0.1"},
       {":", "1:2:3:4:5:6:7", "1::2::3", "12345::", "::1.2.3"}},
      {"uri",
       {"http://foo.bar/?baz=qux#quux", "urn:oasis:names", "ftp://[::1]:80/a%20b"},
       {"//foo.bar", "foo", "http:// a", ":// no"}},
      {"uuid",
       {"2EB8AA08-aa98-11ea-B4AA-73b441d16380"},
       {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08aa9811eab4aa73b441d16380"}},
      {"json-pointer", {"", "/a~1b/0", "/"}, {"a", "/~", "/~2"}},
  };
  EXPECT_EQ(std::size(cases), StringFormats().size());
  for (const auto& [name, right, wrong] : cases) {
    Result<Regex> regex = Make(FormatPattern(name));
    ASSERT_TRUE(regex.ok()) << name << ": " << regex.status().message();
    for (const char* text : right) EXPECT_TRUE(regex->Matches(text)) << name << ": " << text;
    for (const char* text : wrong) EXPECT_FALSE(regex->Matches(text)) << name << ": " << text;
  }
}

}  // namespace
}  // namespace tally
