// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/gbnf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"

namespace tally {
namespace {

struct GbnfCase {
  const char* grammar;
  std::vector<const char*> in, out;
};

TEST(Gbnf, TextsOfGrammars) {
  const GbnfCase cases[] = {
      {"root ::= \"a\" | \"b\" c\nc ::= [0-9]+", {"a", "b1", "b42"}, {"b", "c", "a1", ""}},
      {"# comment\nroot ::= ( # within\n  \"x\"\n  | \"y\"\n)* end\nend ::= \"\\n\"", {"\n", "xyx\n"}, {"x", "z\n"}},
      {"root ::= [^\"\\\\\\n]{2,3}", {"ab", "a]c", "\xc3\xa9x"}, {"a", "abcd", "a\"", "a\\b"}},
      {"root ::= item{2} | item{4,} | item{0,1} \"!\"\nitem ::= \"-\"", {"--", "----", "------", "!", "-!"}, {"-", "---", "--!"}},
      {"root ::= \"\\x41\\u00e9\\U0001F600\\\"\" .", {"A\xc3\xa9\xf0\x9f\x98\x80\"z"}, {"A"}},
      {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9] | \"(\" expr \")\"",
       {"1", "1+2", "(1+(2+3))+4"},
       {"1+", "(1", "()"}},
      {"root ::= \"a\"\r\n  | \"b\"", {}, {}},  // an alternative on a line of its own needs parentheses
      {"root ::= \"\" | \"a\" root", {"", "aaa"}, {"b"}},
      {"root ::= \"a\" |\n  \"b\"\nother-rule_1 ::= root", {"a", "b"}, {"c"}},
      {"root ::= [a-z\\-\\]] [\\x30-\\x39]", {"-1", "]9", "q0"}, {"A1", "aa"}},
  };
  for (const GbnfCase& c : cases) {
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromGbnf(c.grammar);
    ASSERT_EQ(grammar.ok(), !c.in.empty()) << c.grammar << ": " << grammar.status().message();
    if (!grammar.ok()) continue;
    for (const char* text : c.in) EXPECT_TRUE((*grammar)->Accepts(text)) << c.grammar << "\n" << text;
    for (const char* text : c.out) EXPECT_FALSE((*grammar)->Accepts(text)) << c.grammar << "\n" << text;
  }
}

// \n, \r, \t, \\ and \xHH.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
    } else if (text[++i] == 'x') {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i] == 't' ? '\t' : text[i];
    }
  }
  return out;
}

// gbnf_cases.txt: what is in grammars of many kinds, and what is not.
TEST(Gbnf, Pairs) {
  std::ifstream file(TALLY_SOURCE_DIR "/tests/grammar/gbnf_cases.txt");
  std::string line, what, text;
  std::shared_ptr<Grammar> grammar;
  int pairs = 0;
  std::getline(file, line);  // what the file is
  while (std::getline(file, line)) {
    if (line.starts_with("== ")) {
      what = line.substr(3), text = "", grammar = nullptr;
    } else if (!line.starts_with("+") && !line.starts_with("-")) {
      text += (line.ends_with("\\r") ? line.substr(0, line.size() - 2) + "\r" : line) + "\n";
    } else {
      if (grammar == nullptr) {
        const Result<std::shared_ptr<Grammar>> made = Grammar::FromGbnf(text);
        ASSERT_TRUE(made.ok()) << what << ": " << made.status().message();
        grammar = *made;
      }
      EXPECT_EQ(grammar->Accepts(Unescaped(line.substr(std::min<size_t>(line.size(), 2)))), line[0] == '+')
          << what << ": " << line;
      ++pairs;
    }
  }
  EXPECT_GE(pairs, 300);
}

TEST(Gbnf, WhatIsWrongIsNamedWithItsLine) {
  const std::pair<const char*, const char*> wrong[] = {{"", "no rule root"},
                                                       {"a ::= \"x\"", "no rule root"},
                                                       {"root ::= b", "line 1: there is no rule b"},
                                                       {"root ::= \"x", "line 1: a literal"},
                                                       {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule root is defined twice"},
                                                       {"root = \"a\"", "::= is expected"},
                                                       {"root ::= (\"a\"", "without its )"},
                                                       {"root ::= [z-a]", "wrong order"},
                                                       {"root ::= root \"a\" | \"b\"", "left recursion"},
                                                       {"root ::= \"a\"{3,2}", "wrong order"},
                                                       {"root ::= <[12]>", "tokens"},
                                                       {"root ::= \"\\q\"", "escape"},
                                                       {"root ::= \"a\" root", "no answer is in it"},
                                                       {"root ::= \"a\" ]", "no part of a rule"},
                                                       {"root ::= \"\\uD800\"", "no character"}};
  for (const auto& [text, what] : wrong) {
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromGbnf(text);
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.status().code(), StatusCode::kBadInput);
    EXPECT_NE(grammar.status().message().find(what), std::string::npos) << text << ": " << grammar.status().message();
  }
}

}  // namespace
}  // namespace tally
