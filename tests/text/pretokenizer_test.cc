// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pretokenizer.h"

#include "engine/text/normalizer.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

std::string Cut(const PreTokenizer& pre, std::string_view text) {
  Matcher matcher(text.size());
  std::string out;
  Growth growth(text.size(), pre.size());
  const Status status = pre.Run(text, true, matcher, growth, [&](std::string_view piece) {
    out += (out.empty() ? "" : "|") + std::string(piece);
    return Status();
  });
  return status.ok() ? out : "error: " + status.message();
}

std::string CutBy(const char* name, std::string_view text) {
  const Result<NamedPreTokenizer> named = PreTokenizerByName(name, "test");
  return named.ok() ? Cut(named->pre, text) : "error: " + named.status().message();
}

PreTokenizer One(PreStep step) {
  PreTokenizer pre;
  pre.Add(std::move(step));
  return pre;
}

// The behaviours on "the-final--countdown" are the example in the documentation of Hugging Face tokenizers.
TEST(PreTokenizer, Behaviours) {
  const std::pair<SplitBehavior, const char*> kCases[] = {{SplitBehavior::kRemoved, "the|final|countdown"},
                                                          {SplitBehavior::kIsolated, "the|-|final|-|-|countdown"},
                                                          {SplitBehavior::kMergedWithPrevious, "the-|final-|-|countdown"},
                                                          {SplitBehavior::kMergedWithNext, "the|-final|-|-countdown"},
                                                          {SplitBehavior::kContiguous, "the|-|final|--|countdown"}};
  for (const auto& [behavior, expected] : kCases) {
    PreStep literal;
    literal.kind = PreStep::Kind::kLiteral;
    literal.literal = "-";
    literal.behavior = behavior;
    EXPECT_EQ(Cut(One(literal), "the-final--countdown"), expected);
    PreStep regex;
    regex.regex = *Pattern::Compile("-", "test");
    regex.behavior = behavior;
    EXPECT_EQ(Cut(One(regex), "the-final--countdown"), expected);
    PreStep inverted = regex;
    inverted.regex = *Pattern::Compile("-+", "test");
    inverted.invert = true;
    if (behavior == SplitBehavior::kRemoved) {
      EXPECT_EQ(Cut(One(inverted), "a--b"), "--");
    }
    PreStep punctuation;
    punctuation.kind = PreStep::Kind::kPunctuation;
    punctuation.behavior = behavior;
    EXPECT_EQ(Cut(One(punctuation), "the-final--countdown"), expected);
  }
}

TEST(PreTokenizer, DigitsPunctuationMetaspace) {
  PreStep digits;
  digits.kind = PreStep::Kind::kDigits;
  EXPECT_EQ(Cut(One(digits),
                "a12\xC2\xBD"
                "b3"),
            "a|1|2|\xC2\xBD|b|3");
  digits.behavior = SplitBehavior::kContiguous;
  EXPECT_EQ(Cut(One(digits), "a12b3"), "a|12|b|3");
  PreStep meta;
  meta.kind = PreStep::Kind::kMetaspace;
  meta.literal = "_";
  EXPECT_EQ(Cut(One(meta), "Hey  friend"), "_Hey|_|_friend");
  EXPECT_EQ(Cut(One(meta), " a"), "_a");
  meta.split = false;
  EXPECT_EQ(Cut(One(meta), "Hey friend"), "_Hey_friend");
  meta.prepend = PreStep::Prepend::kNever;
  EXPECT_EQ(Cut(One(meta), "Hey friend"), "Hey_friend");
  PreTokenizer first = One(digits);
  meta.prepend = PreStep::Prepend::kFirst;
  first.Add(meta);
  EXPECT_EQ(Cut(first, "a1b"), "_a|1|b");
}

TEST(PreTokenizer, EmptyMatchesCut) {
  PreTokenizer pre;
  ASSERT_TRUE(pre.AddRegex(R"((?=(\d{3})+(?!\d)))", "test").ok());
  EXPECT_EQ(Cut(pre, "1234567"), "1|234|567");
}

TEST(PreTokenizer, NamedOnes) {
  EXPECT_EQ(CutBy("gpt-2", "I'll go   now 12345!\n\n x"), "I|'ll| go|  | now| 12345|!|\n\n| x");
  EXPECT_EQ(CutBy("llama-bpe", "I'LL go   now 12345!\n\n x"), "I|'LL| go|  | now| |123|45|!\n\n| x");
  EXPECT_EQ(CutBy("qwen2", "a 123"), "a| |1|2|3");
  EXPECT_EQ(CutBy("gpt-4o", "HelloWorld HTTPServer it's/\n e\xCC\x81t 1234"),
            "Hello|World| HTTPServer| it's|/\n| e\xCC\x81t| |123|4");
  EXPECT_EQ(CutBy("deepseek-coder", "a b12\n\xE4\xB8\xAD\xE6\x96\x87 ,x"), "a| b|1|2|\n|\xE4\xB8\xAD\xE6\x96\x87| ,|x");
  EXPECT_EQ(CutBy("deepseek-llm", "ab  cd12\xE4\xB8\xAD, \t \n x  "), "ab| | cd|12|\xE4\xB8\xAD|,| \t |\n| x|  ");
  EXPECT_EQ(CutBy("starcoder", "a12 b"), "a|1|2| b");
  EXPECT_EQ(CutBy("default", "a12345$ b."), "a|123|45|$| b|.");
  // By hand, from the published expressions.
  const std::string mixed = "It's Ab1234 中文x, (it|is)…\n\n 12";
  EXPECT_EQ(CutBy("bloom", mixed), "It's| Ab1234| 中文x|, (|it|||is|)…\n\n| 12");
  EXPECT_EQ(CutBy("poro-chat", mixed), CutBy("bloom", mixed));
  EXPECT_EQ(CutBy("viking", mixed), "It's| Ab|1|2|3|4| 中文x|, (|it|||is|)…\n\n| |1|2");
  EXPECT_EQ(CutBy("kimi-k2", mixed), "It's| Ab|123|4| |中文|x|,| (|it||is|)…\n\n| |12");
  EXPECT_EQ(CutBy("seed-coder", mixed), "It|'s| Ab|1|2|3|4| 中文x|,| (|it||is|)…|\n\n| |1|2");
  EXPECT_EQ(CutBy("superbpe", mixed), "It's Ab|1|234| 中文x, (it|is)…\n\n |12");
  EXPECT_EQ(CutBy("tiny_aya", "It's Ab1234 1234567 x12"), "It's| Ab|1|234| |1|234|567| x|12");
  EXPECT_EQ(CutBy("qwen35", "e\xCC\x81t a12"), "e\xCC\x81t| a|1|2");
  EXPECT_EQ(CutBy("bailingmoe", "'m\n\n x"), "'m|\n\n| x");
  EXPECT_EQ(CutBy("minicpm5", "a12345 b"), "a|123|45| b");
  EXPECT_EQ(CutBy("afmoe", "v1 12 123 1234 1234567 3.14"), "v|1| |12| |123| |1|234| |1|234|567| |3|.|14");
  EXPECT_EQ(CutBy("afmoe", "(It's Ab) 中文x かな ไทย 한국"), "(It|'s| Ab|)| |中文|x| |かな| |ไ|ทย| |한국");
  EXPECT_EQ(CutBy("youtu", "HelloWorld it's 123 中文ㄅ！한 x"), "Hello|World| it's| |1|2|3| |中文|ㄅ|！|한| x");
  EXPECT_NE(CutBy("gpt-9", "x").find("test: pre-tokenizer 'gpt-9' is not supported (known: "), std::string::npos);
}

std::string Normal(std::vector<NormalStep> steps, std::string_view text) {
  Normalizer normalizer;
  for (NormalStep& step : steps) normalizer.Add(std::move(step));
  Matcher matcher(text.size());
  Growth growth(text.size(), normalizer.size());
  return *normalizer.Apply(text, matcher, growth);
}

TEST(Normalizer, Forms) {
  using Kind = NormalStep::Kind;
  EXPECT_EQ(Normal({{.kind = Kind::kNfc}}, "e\xCC\x81\xE1\x84\x80\xE1\x85\xA1"), "\xC3\xA9\xEA\xB0\x80");
  EXPECT_EQ(Normal({{.kind = Kind::kNfc}}, "\xE2\x84\xAB"), "\xC3\x85");  // the angstrom sign
  EXPECT_EQ(Normal({{.kind = Kind::kNfd}}, "\xC3\xA9"), "e\xCC\x81");
  EXPECT_EQ(Normal({{.kind = Kind::kNfkc}}, "\xEF\xAC\x81"), "fi");
  // Marks are ordered by class (U+0323 before U+0301), equal classes left as they are; NUL is text.
  EXPECT_EQ(Normal({{.kind = Kind::kNfd}}, std::string("a\xCC\x81\xCC\xA3\xCC\x80", 7) + '\0'),
            std::string("a\xCC\xA3\xCC\x81\xCC\x80", 7) + '\0');
  EXPECT_EQ(Normal({{.kind = Kind::kLowercase}}, "\xC3\x89\xC4\xB0Z"), "\xC3\xA9i\xCC\x87z");
  EXPECT_EQ(Normal({{.kind = Kind::kPrepend, .content = "_"}}, ""), "");
  EXPECT_EQ(
      Normal({{.kind = Kind::kPrepend, .content = "_"}, {.kind = Kind::kReplaceLiteral, .find = " ", .content = "_"}}, "a  b"),
      "_a__b");
  EXPECT_EQ(Normal({{.kind = Kind::kReplaceRegex, .regex = *Pattern::Compile(" {2,}", "test"), .content = " "}}, "a   b c"),
            "a b c");
}

}  // namespace
}  // namespace tally
