// SPDX-License-Identifier: Apache-2.0
// Answers in harmony: sound ones, what models made of it that broke other engines, and random ones.
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "engine/text/tokenizer.h"
#include "tests/chat/harmony_test_util.h"

namespace tally {
namespace {

using test::AnswerOf;
using test::HarmonyData;
using test::Joined;
using test::Parse;
using test::Piece;
using test::Pieces;
using test::Shape;

// What a reader is told: kinds without marks and raw calls. "R[thinking]T[content]C{name|arguments}"
std::string Gist(const std::vector<OutputPart>& parts) {
  std::vector<OutputPart> told;
  for (const OutputPart& part : parts) {
    const bool text = part.kind == OutputPart::Kind::kContent || part.kind == OutputPart::Kind::kReasoning;
    if (text) told.push_back(part);
    if (part.call) told.push_back({.kind = part.kind, .call = part.call});
  }
  return Shape(told);
}

struct PublishedCase {
  std::string output;  // special tokens spelled
  std::string gist;
};

const std::vector<PublishedCase>& SoundAnswers() {
  static const std::vector<PublishedCase> cases = {
      {"<|channel|>analysis<|message|>Sum.<|end|><|start|>assistant<|channel|>final<|message|>4.<|return|>", "R[Sum.]T[4.]"},
      {"<|channel|>final<|message|>Only this", "T[Only this]"},
      {R"(<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>)", R"(C{f|{"a":1}})"},
      {R"(<|channel|>commentary to=functions.f<|constrain|>json<|message|>{"a":1}<|call|>)", R"(C{f|{"a":1}})"},
      {R"(<|channel|>commentary to=functions.f json<|message|>{"a":1}<|call|>)", R"(C{f|{"a":1}})"},
      {R"( to=functions.f<|channel|>commentary <|constrain|>json<|message|>{"a":1}<|call|>)", R"(C{f|{"a":1}})"},
      {R"( to=functions.f<|channel|>commentary<|message|>{"a":1}<|call|>)", R"(C{f|{"a":1}})"},
      {R"(<|channel|>commentary to=browser.search code<|message|>{"query":"x"}<|call|>)", R"(C{browser.search|{"query":"x"}})"},
      {"<|channel|>analysis to=python code<|message|>print(1)<|call|>", "C{python|print(1)}"},
      {"<|channel|>analysis<|message|>Plan.<|end|><|start|>assistant<|channel|>commentary<|message|>**Plan**<|end|>"
       "<|start|>assistant<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>",
       "R[Plan.]T[**Plan**]C{f|{}}"},
      {"<|channel|>commentary to=functions.f json<|message|>{}<|call|><|start|>assistant to=functions.g<|channel|>commentary"
       "<|message|>[]<|call|>",
       "C{f|{}}C{g|[]}"},
  };
  return cases;
}

// Reports of openai/harmony, vLLM, llama.cpp, Ollama, LM Studio and their users, by their numbers there, and what else can go wrong.
const std::vector<PublishedCase>& BrokenAnswers() {
  static const std::vector<PublishedCase> cases = {
      // Words that do not belong to the header: vllm 23567, harmony 38, vllm 51977, tiles 145.
      {"<|channel|>commentary to=functions.f ––commentary json<|message|>{}<|call|>", "T[––commentary json]C{f|{}}"},
      {"<|end|><|start|>assistant––commentary to=functions.f json<|message|>{}<|call|>", "C{f|{}}"},
      {" to=functions.f<|channel|>commentary to=functions.f json<|message|>{}<|call|>", "C{f|{}}"},
      {"<|channel|>commentary to=functions.f <|constrain|>write: edit "
       "file.<|end|><|start|>assistant<|channel|>final<|message|>ok",
       "T[write: edit file.ok]"},
      {"<|end|><|start|>bash to=functions.f<|channel|>commentary<|message|>{}<|call|>", "C{f|{}}"},
      {"<|end|><|start|>bash<|message|>ls", "T[ls]"},
      {"<|channel|>analysis Hm, let me see.<|message|>A sum.<|end|>", "R[Hm, let me see.A sum.]"},
      // Doubled, missing and stray tokens: vllm 43408, 50690, 22515, tenstorrent/vllm 386.
      {"<|start|><|start|>assistant<|channel|>final<|message|>x<|return|>", "T[x]"},
      {"<|channel|>analysis<|message|>a<|end|>:<|start|>assistant<|channel|>final<|message|>b", "R[a]T[:b]"},
      {"<|channel|>analysis<|message|>a<|end|>\n\n<|start|>assistant<|channel|>final<|message|>b", "R[a]T[b]"},
      {"<|channel|><|message|>x<|return|>", "T[x]"},
      {"<|channel|><|channel|>analysis<|message|>x<|end|>", "R[x]"},
      {"<|channel|>analysis<|channel|><|message|>x<|end|>", "R[x]"},
      {"<|channel|>analysis<|channel|>final<|message|>x<|end|>", "T[x]"},
      {"<|message|><|message|>x<|message|>y", "T[xy]"},
      {"<|start|>assistantassistant<|channel|>analysis<|message|>x<|end|>", "R[x]"},
      {"<|start|>assistantanalysis<|message|>x<|end|>", "R[x]"},
      {"assistant<|channel|>final<|message|>x", "T[x]"},
      {"<|channel|>final<|message|>Answer<|end|><|return|>", "T[Answer]"},
      {"<|channel|>final<|message|>Answer<|end|><|end|><|end|>", "T[Answer]"},
      {"<|channel|>analysis<|message|>a<|end|>commentary to=functions.f json<|message|>{}<|call|>", "R[a]C{f|{}}"},
      {"<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b", "R[a]T[b]"},
      {"<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b", "R[a]T[b]"},
      {"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "R[a]T[b]"},
      {"<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b", "R[a]T[b]"},
      // <|message|> is missing: harmony 82.
      {"I must refuse<|end|><|start|>assistant<|channel|>analysis<|message|>Why<|end|>", "T[I must refuse]R[Why]"},
      {"<|channel|>analysis I must refuse<|end|>", "R[I must refuse]"},
      {"<|channel|>commentary Hello<|end|>", "T[Hello]"},
      {"... Let's use it.<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
       "T[... Let's use it.]C{f|{}}"},
      {R"(<|channel|>commentary to=functions.f json {"a":1}<|call|>)", R"(C{f|{"a":1}})"},
      {"<|channel|>commentary to=functions.f I call it<|end|>", "T[I call it]"},
      // Channels that are none: llama.cpp 27720.
      {"<|channel|>?!<|end|><|start|>assistant<|channel|>analysis<|message|>a<|end|>", "T[?!]R[a]"},
      {"<|channel|>commentary 2?<|end|>", "T[2?]"},
      {"<|channel|>commentary?commentary?<|message|>x<|end|>", "T[x]"},
      {"<|channel|>I would say so<|end|>", "T[I would say so]"},
      {"<|channel|>thoughts<|message|>x<|end|>", "T[x]"},
      {"<|channel|>thoughts to=functions.f<|message|>x<|end|>", "T[x]"},
      {R"(<|channel|>thoughts to=functions.f<|message|>{"a":1}<|end|>)", R"(C{f|{"a":1}})"},
      // Recipients that are no tools, and tools without a namespace: llama.cpp 21286, ollama 11704, vllm 42454, vllm 35906.
      {"<|channel|>commentary to=assistant<|channel|>commentary to=functions.f json<|message|>{}<|call|>", "C{f|{}}"},
      {" to=functions.f<|channel|>commentary to=assistant<|message|>{}<|call|>", "C{f|{}}"},
      {R"( to=assistant<|channel|>analysis<|message|>{"command":"./test"}<|call|>)", R"(R[{"command":"./test"}])"},
      {"<|channel|>final to=user<|message|>x<|return|>", "T[x]"},
      {"<|channel|>commentary to=f<|message|>{}<|call|>", "C{f|{}}"},
      {"<|channel|>commentary functions.f json<|message|>{}<|call|>", "C{f|{}}"},
      {"<|channel|>commentary to=functions.<|message|>{}<|call|>", "C{functions.|{}}"},
      {"<|start|>functions.f to=assistant<|channel|>commentary<|message|>{}<|end|>", "T[{}]"},
      {R"(<|channel|>comment to=functions.f<|message|>{"a":1}<|call|>)", R"(C{f|{"a":1}})"},
      {"<|channel|>commentary to=<|constrain|>json<|message|>{}<|end|>", "T[{}]"},
      {"<|channel|>commentary to=functions.f\n<|constrain|>json\n<|message|>{}\n<|call|>", "C{f|{}\n}"},
      // Calls on the channel analysis, and thinking about calls there: dynamo 10366.
      {R"(<|channel|>analysis to=functions.f code<|message|>{"a":1}<|end|>)", R"(C{f|{"a":1}})"},
      {R"(<|channel|>analysis to=functions.f<|message|> {"a":1} )", R"(C{f| {"a":1} })"},
      {"<|channel|>analysis to=functions.f<|message|>a=1<|call|>", "C{f|a=1}"},
      {"<|channel|>analysis to=functions.f<|message|>I should call f.<|end|>", "R[I should call f.]"},
      {"<|channel|>analysis to=functions.f<|message|>{I should call f.", "R[{I should call f.]"},
      {"<|channel|>analysis<|message|>to=functions.f {}<|end|>", "R[to=functions.f {}]"},
      {"<|channel|>final to=functions.f<|message|>{}<|call|>", "C{f|{}}"},
      // Arguments that are no JSON: LM Studio 942.
      {R"(<|channel|>commentary to=functions.f<|constrain|>json<|message|>{"a":{"b":1}<|call|>)", R"(C{f|{"a":{"b":1}})"},
      {"<|channel|>commentary to=functions.f<|message|>{\"a\": \"b", "C{f|{\"a\": \"b}"},
      {"<|channel|>commentary to=functions.f<|message|><|call|>", "C{f|}"},
      // Ends in a header.
      {"<|channel|>analysis<|end|><|start|>assistant<|channel|>final<|message|>x", "T[x]"},
      {"<|channel|>commentary to=functions.f json<|call|>", "C{f|}"},
      {"<|channel|>commentary to=functions.f json<|end|>", ""},
      {"<|channel|>comment", ""},
      {"<|channel|>", ""},
      {"<|start|>assist", ""},
      {"<|start|>assistant<|return|>", ""},
      {"", ""},
      // Text without any header.
      {"Hello", "T[Hello]"},
      {" to be or not to be", "T[ to be or not to be]"},
      {"final answer: 4<|return|>", "T[final answer: 4]"},
      {"final", "T[final]"},
      {" \n ", ""},
      {"<|message|>Hello<|return|>", "T[Hello]"},
      {"json<|message|>Hello<|return|>", "T[Hello]"},
      {"Hello<|channel|>final<|message|> again", "T[Hello again]"},
      {"Hello<|message|> again", "T[Hello again]"},
      // After the end, and tokens that mean nothing where they are.
      {"<|channel|>final<|message|>x<|return|>y", "T[xy]"},
      {"<|channel|>final<|message|>x<|return|><|start|>user<|message|>y<|end|>", "T[xy]"},
      {"<|channel|>final<|message|>x<|endoftext|>", "T[x]"},
      {"<|channel|>final<|message|>a<|constrain|>b<|reserved_200014|>c", "T[abc]"},
      {"<|channel|>analysis to=functions.f<|message|>{<|reserved_200014|>}<|end|>", "C{f|{}}"},
      {"<|channel|>final<|reserved_200014|><|message|>a", "T[a]"},
      {"<|reserved_200014|>a", "T[a]"},
  };
  return cases;
}

std::vector<PublishedCase> AllAnswers() {
  std::vector<PublishedCase> all = SoundAnswers();
  all.insert(all.end(), BrokenAnswers().begin(), BrokenAnswers().end());
  return all;
}

TEST(HarmonyParser, Answers) {
  for (const PublishedCase& c : AllAnswers()) {
    const std::vector<OutputPart> parts = Parse(Pieces(c.output));
    EXPECT_EQ(Gist(parts), c.gist) << c.output;
    EXPECT_EQ(Joined(parts), c.output);
  }
}

TEST(HarmonyParser, MarksAndRawCalls) {
  EXPECT_EQ(Shape(Parse(Pieces("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                               "<|constrain|>json<|message|>{}<|call|>"))),
            "M[<|channel|>analysis<|message|>]R[a]M[<|end|><|start|>assistant<|channel|>commentary to=functions.f "
            "<|constrain|>json<|message|>]K[{}]C{f|{}}M[<|call|>]");
  EXPECT_EQ(Shape(Parse(Pieces("<|channel|>analysis to=functions.f<|message|>{<|constrain|>}<|end|>"))),
            "M[<|channel|>analysis to=functions.f<|message|>]K[{]M[<|constrain|>]K[}]C{f|{}}M[<|end|>]");
  EXPECT_EQ(Shape(Parse(Pieces("<|channel|>analysis  Hm."))), "M[<|channel|>analysis  ]R[Hm.]");
}

TEST(HarmonyParser, SpelledTokensAreText) {
  const std::string spelled = "<|channel|>analysis<|message|>x<|end|>";
  EXPECT_EQ(Shape(Parse({{spelled}})), "T[" + spelled + "]");
  EXPECT_EQ(Shape(Parse({{"<|channel|>", true}, {"final"}, {"<|message|>", true}, {spelled}, {"<|end|>", true}})),
            "M[<|channel|>final<|message|>]T[" + spelled + "]M[<|end|>]");
}

// Each piece of text cut in two at `at`, or into bytes where that is 0.
std::vector<Piece> Cut(const std::vector<Piece>& pieces, size_t at) {
  std::vector<Piece> cut;
  for (const Piece& piece : pieces) {
    if (piece.control) {
      cut.push_back(piece);
    } else if (at == 0) {
      for (const char c : piece.text) cut.push_back({std::string(1, c)});
    } else {
      cut.push_back({piece.text.substr(0, at)});
      if (piece.text.size() > at) cut.push_back({piece.text.substr(at)});
    }
  }
  return cut;
}

TEST(HarmonyParser, CutsDoNotMatter) {
  for (const PublishedCase& c : AllAnswers()) {
    const std::vector<Piece> whole = Pieces(c.output);
    for (size_t at = 0; at < c.output.size(); ++at) ASSERT_EQ(Shape(Parse(Cut(whole, at))), Shape(Parse(whole))) << c.output;
  }
}

// Where a section becomes too long to be a header does not depend on the pieces either.
TEST(HarmonyParser, LongHeaders) {
  const std::string blank(300, ' '), name(300, 'x');
  for (const std::string& output :
       {blank + "Hello", "<|channel|>final" + blank + "<|message|>x",
        "<|channel|>commentary to=functions." + name + "<|message|>{}", "<|start|>bash" + blank + "to=functions.f<|message|>{}",
        "to=" + name, "<|channel|>" + name + "<|end|>"}) {
    const std::vector<Piece> whole = Pieces(output);
    EXPECT_EQ(Joined(Parse(whole)), output);
    for (size_t at = 0; at < 400; ++at) ASSERT_EQ(Shape(Parse(Cut(whole, at))), Shape(Parse(whole))) << at << " " << output;
  }
}

// What each piece brings by itself.
std::vector<std::string> Steps(const std::vector<Piece>& pieces) {
  const std::unique_ptr<OutputParser> parser = NewHarmonyParser();
  std::vector<std::string> steps;
  for (const Piece& piece : pieces) {
    std::vector<OutputPart> parts;
    parser->Push({piece.text, piece.control}, &parts);
    steps.push_back(Shape(parts));
  }
  return steps;
}

TEST(HarmonyParser, WhatIsCertainComesAtOnce) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Steps({{"<|channel|>", true}, {"analysis"}, {"<|message|>", true}, {"a"}, {" b"}, {"<|end|>", true}}),
            (Strings{"M[<|channel|>]", "", "M[analysis<|message|>]", "R[a]", "R[ b]", "M[<|end|>]"}));
  EXPECT_EQ(Steps({{"to"}, {" be"}, {" or"}}), (Strings{"", "T[to be]", "T[ or]"}));
  EXPECT_EQ(Steps({{"<|channel|>", true}, {"analysis"}, {" Hm"}, {", "}, {"so"}}),
            (Strings{"M[<|channel|>]", "", "", "M[analysis ]R[Hm, ]", "R[so]"}));
  EXPECT_EQ(Steps({{"<|channel|>", true}, {"commentary to=f"}, {"<|message|>", true}, {"{"}, {"}"}, {"<|call|>", true}}),
            (Strings{"M[<|channel|>]", "", "M[commentary to=f<|message|>]", "K[{]", "K[}]", "C{f|{}}M[<|call|>]"}));
  EXPECT_EQ(Steps({{"<|channel|>", true}, {"analysis to=f"}, {"<|message|>", true}, {"{"}, {"}"}, {"<|end|>", true}}),
            (Strings{"M[<|channel|>]", "", "M[analysis to=f<|message|>]", "", "", "K[{}]C{f|{}}M[<|end|>]"}));
}

// The 30 cases of openai/gpt-oss, compatibility-test: each call in each shape of header.
TEST(HarmonyParser, CompatibilityCases) {
  std::istringstream lines(HarmonyData("compatibility_cases.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const nlohmann::json test = nlohmann::json::parse(line);
    const std::string name = test.at("tool_name"), arguments = test.at("expected_arguments");
    for (const std::string& role : {std::string(), " to=functions." + name}) {
      for (const std::string channel : {"commentary", "analysis"}) {
        for (const std::string type : {"", " json", " code", " <|constrain|>json", "<|constrain|>json"}) {
          const std::string to = role.empty() ? " to=functions." + name : "";
          const std::string output = "<|channel|>analysis<|message|>" + test.at("input").get<std::string>() +
                                     "<|end|><|start|>assistant" + role + "<|channel|>" + channel + to + type + "<|message|>" +
                                     arguments + "<|call|>";
          const ChatAnswer answer = AnswerOf(Parse(Pieces(output)));
          ASSERT_EQ(answer.calls.size(), 1u) << output;
          EXPECT_EQ(answer.calls[0].name, name);
          EXPECT_EQ(answer.calls[0].arguments, arguments);
          EXPECT_EQ(answer.reasoning, test.at("input"));
          EXPECT_EQ(answer.content, "");
        }
      }
    }
  }
  if (cases == 0) GTEST_SKIP() << test::kShared << "harmony is absent";
  EXPECT_EQ(cases, 30);
}

class PublishedStreams : public testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = TokenizerFromRanks(test::kShared + "tokenizers/tiktoken/o200k_base.tiktoken", "o200k_harmony");
    if (!tokenizer.ok() || HarmonyData("test_simple_tool_call.txt").empty())
      GTEST_SKIP() << test::kShared << " has not all of it";
    tokenizer_ = std::move(*tokenizer);
    for (const std::string& token : test::HarmonyTokens()) {
      const auto ids = tokenizer_->Encode(token, {.add_special = false, .parse_special = true});
      ASSERT_TRUE(ids.ok() && ids->size() == 1) << token;
      spelling_[ids->front()] = token;
    }
  }

  std::string GistOf(const std::vector<int32_t>& ids) const {
    std::vector<Piece> pieces;
    StreamingDecoder decoder(*tokenizer_, false);
    for (const int32_t id : ids) {
      const auto special = spelling_.find(id);
      pieces.push_back(special == spelling_.end() ? Piece{decoder.Push(id)} : Piece{special->second, true});
    }
    const std::vector<OutputPart> parts = Parse(pieces);
    EXPECT_EQ(Joined(parts), Joined(pieces));
    return Gist(parts);
  }

  // Of a file of ids.
  std::string GistOfIds(const std::string& name) const {
    std::istringstream numbers(HarmonyData(name));
    return GistOf({std::istream_iterator<int32_t>(numbers), {}});
  }

  std::string GistOfText(const std::string& name) const {
    return GistOf(*tokenizer_->Encode(HarmonyData(name), {.add_special = false, .parse_special = true}));
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::map<int32_t, std::string> spelling_;
};

TEST_F(PublishedStreams, Ids) {
  EXPECT_EQ(GistOfIds("test_simple_reasoning_response.txt"),
            R"(R[User asks: "What is 2 + 2?" Simple arithmetic. Provide answer.]T[2 + 2 = 4.])");
  EXPECT_EQ(
      GistOfIds("test_simple_tool_call.txt"),
      R"(R[User asks: "What is the weather in Tokyo?" We need to use lookup_weather tool.]C{lookup_weather|{"location": "Tokyo"}})");
}

TEST_F(PublishedStreams, Texts) {
  EXPECT_EQ(GistOfText("test_tool_response_parsing.txt"), R"(T[{"result": "https://openai.com/"}])");
  const std::string stream = GistOfText("test_streamable_parser.txt");
  EXPECT_TRUE(stream.starts_with("R[User asks \"Who is the current US president?\"")) << stream;
  EXPECT_TRUE(stream.ends_with(
      R"(Let's browse to confirm.]C{browser.search|{"query": "current US president July 2025", "topn": 10, "source": "news"}})"
      R"(T[{"result": "https://openai.com/"}])"))
      << stream;
}

// Random sequences of tokens, header words and text: nothing is lost, and neither cuts nor their places matter.
TEST(HarmonyParser, RandomSequences) {
  static const std::vector<std::string> kWords = {"assistant",   "user",    "analysis", "commentary",  "final", "to=functions.f",
                                                  "functions.g", "to=user", "json",     "code",        " ",     " ",
                                                  "\n",          "Hello",   "??",       R"({"a": 1})", "{",     "}",
                                                  "to=",         "bash",    "assis",    "é",           "<|end"};
  const char* given = std::getenv("TALLY_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("TALLY_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto one_of = [&](const std::vector<std::string>& list) { return list[random() % list.size()]; };
  for (int round = 0; round < 40000; ++round) {
    std::vector<Piece> pieces;
    for (uint64_t n = random() % 20; n > 0; --n) {
      const bool control = random() % 5 < 2;
      const std::string text = one_of(control ? test::HarmonyTokens() : kWords);
      if (!control && !pieces.empty() && !pieces.back().control) {
        pieces.back().text += text;
      } else {
        pieces.push_back({text, control});
      }
    }
    const std::vector<OutputPart> parts = Parse(pieces);
    ASSERT_EQ(Joined(parts), Joined(pieces));
    ASSERT_EQ(Shape(Parse(Cut(pieces, 0))), Shape(parts)) << Joined(pieces);
    ASSERT_EQ(Shape(Parse(Cut(pieces, 1 + random() % 12))), Shape(parts)) << Joined(pieces);
    for (const OutputPart& part : parts) ASSERT_TRUE(part.call || !part.text.empty()) << Joined(pieces);
  }
}

}  // namespace
}  // namespace tally
