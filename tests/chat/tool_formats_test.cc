// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/tool_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/chat/answer_samples.h"

namespace tally {
namespace {

// A piece of output that owns its text.
struct OwnedPiece {
  std::string text;
  bool control = false;
};

struct Parsed {
  ChatAnswer answer;
  std::string joined;  // the texts of all parts
};

Parsed Parse(std::string_view signs, std::string_view prompt, const std::vector<OwnedPiece>& pieces,
             const std::vector<std::string>& tools = {}) {
  const auto parser = NewAnswerParser(DetectAnswerSyntax(signs), prompt, tools);
  std::vector<OutputPart> parts;
  for (const OwnedPiece& piece : pieces) parser->Push({piece.text, piece.control}, &parts);
  parser->Finish(&parts);
  Parsed parsed;
  parsed.answer.Add(parts);
  for (const OutputPart& part : parts) parsed.joined += part.text;
  return parsed;
}

std::vector<OwnedPiece> CutAt(std::string_view text, size_t at) {
  return {{std::string(text.substr(0, at))}, {std::string(text.substr(at))}};
}

std::vector<OwnedPiece> Bytes(std::string_view text) {
  std::vector<OwnedPiece> pieces;
  for (const char c : text) pieces.push_back({std::string(1, c)});
  return pieces;
}

// Marks that are control tokens in the vocabularies of one model or another.
const std::vector<std::string_view>& ControlTokens() {
  static const std::vector<std::string_view> kTokens = {"<think>",
                                                        "</think>",
                                                        "<tool_call>",
                                                        "</tool_call>",
                                                        "<arg_key>",
                                                        "</arg_key>",
                                                        "<arg_value>",
                                                        "</arg_value>",
                                                        "<seed:think>",
                                                        "</seed:think>",
                                                        "<seed:tool_call>",
                                                        "</seed:tool_call>",
                                                        "<minimax:tool_call>",
                                                        "</minimax:tool_call>",
                                                        "｜DSML｜",
                                                        "<｜tool▁calls▁begin｜>",
                                                        "<｜tool▁calls▁end｜>",
                                                        "<｜tool▁call▁begin｜>",
                                                        "<｜tool▁call▁end｜>",
                                                        "<｜tool▁sep｜>",
                                                        "<|tool_calls_section_begin|>",
                                                        "<|tool_calls_section_end|>",
                                                        "<|tool_call_begin|>",
                                                        "<|tool_call_end|>",
                                                        "<|tool_call_argument_begin|>",
                                                        "[TOOL_CALLS]",
                                                        "[ARGS]",
                                                        "[CALL_ID]",
                                                        "[THINK]",
                                                        "[/THINK]",
                                                        "<|channel>",
                                                        "<channel|>",
                                                        "<|tool_call>",
                                                        "<tool_call|>",
                                                        "<|\"|>",
                                                        "<start_function_call>",
                                                        "<end_function_call>",
                                                        "<escape>",
                                                        "<|tool_call_start|>",
                                                        "<|inner_prefix|>",
                                                        "<|inner_suffix|>",
                                                        "<|tools_prefix|>",
                                                        "<|tools_suffix|>",
                                                        "<|START_THINKING|>",
                                                        "<|END_THINKING|>",
                                                        "<|START_ACTION|>",
                                                        "<|END_ACTION|>",
                                                        "<|START_RESPONSE|>",
                                                        "<|END_RESPONSE|>",
                                                        "<|tool_call|>",
                                                        "<|/tool_call|>",
                                                        "<|python_tag|>",
                                                        "<|python_start|>",
                                                        "<|python_end|>",
                                                        "]<]minimax[>[",
                                                        "<mm:think>",
                                                        "</mm:think>",
                                                        "<function",
                                                        "<param",
                                                        "</param>",
                                                        "<|role_sep|>",
                                                        "<|message_sep|>",
                                                        "<|function_call|>",
                                                        "<|think|>",
                                                        "<|end|>",
                                                        "<|begin|>",
                                                        "<|content|>",
                                                        "<|tool_calls|>",
                                                        "<|calls|>",
                                                        "<|tool_call:begin|>",
                                                        "<|tool_call:name|>",
                                                        "<|tool_call:args|>",
                                                        "<|tool_call:end|>",
                                                        "<think:opensource>",
                                                        "</think:opensource>",
                                                        "<tool_calls:opensource>",
                                                        "</tool_calls:opensource>",
                                                        "<tool_call:opensource>",
                                                        "</tool_call:opensource>",
                                                        "<tool_sep:opensource>",
                                                        "<arg_key:opensource>",
                                                        "</arg_key:opensource>",
                                                        "<arg_value:opensource>",
                                                        "</arg_value:opensource>",
                                                        "<tool_sep>",
                                                        "<tool_calls>",
                                                        "</tool_calls>",
                                                        "[BEGIN FINAL RESPONSE]"};
  return kTokens;
}

std::vector<OwnedPiece> WithControlTokens(std::string_view text) {
  std::vector<OwnedPiece> pieces;
  while (!text.empty()) {
    const auto begins = [&](std::string_view token) { return text.starts_with(token); };
    const auto token = std::ranges::find_if(ControlTokens(), begins);
    const bool control = token != ControlTokens().end();
    const size_t size = control ? token->size() : 1;
    pieces.push_back({std::string(text.substr(0, size)), control});
    text.remove_prefix(size);
  }
  return pieces;
}

std::string Shown(const ChatAnswer& answer) {
  std::string text = "content: " + answer.content + "\nreasoning: " + answer.reasoning + "\n";
  for (const ToolCall& call : answer.calls) text += "call " + call.id + ": " + call.name + " " + call.arguments + "\n";
  return text;
}

std::string Shown(const AnswerSample& sample) {
  return Shown(ChatAnswer{std::string(sample.content), std::string(sample.reasoning), sample.calls});
}

TEST(ToolFormats, SamplesHoweverTheyAreCut) {
  for (const AnswerSample& sample : AnswerSamples()) {
    SCOPED_TRACE(sample.output);
    EXPECT_EQ(AnswerSyntaxName(DetectAnswerSyntax(sample.signs)), sample.format);
    const auto expect = [&](const std::vector<OwnedPiece>& pieces) {
      const Parsed parsed = Parse(sample.signs, sample.prompt, pieces, sample.tools);
      EXPECT_EQ(Shown(parsed.answer), Shown(sample));
      EXPECT_EQ(parsed.joined, sample.output);
    };
    for (size_t at = 0; at <= sample.output.size() && !HasFailure(); ++at) expect(CutAt(sample.output, at));
    expect(Bytes(sample.output));
    expect(WithControlTokens(sample.output));
  }
}

// What comes out at once.
std::string Pushed(OutputParser& parser, std::string_view text) {
  std::vector<OutputPart> parts;
  parser.Push({text}, &parts);
  std::string shown;
  for (const OutputPart& part : parts) shown += part.text;
  return shown;
}

// A key that holds the arguments and has no value: what follows it stays.
TEST(ToolFormats, ArgumentsWithoutAValue) {
  for (const char* body :
       {"{\"name\": \"f\", \"arguments\"", "{\"name\": \"f\", \"arguments\":", "{\"name\": \"f\", \"arguments\": ]x",
        "{\"name\": \"f\", \"arguments\" x}", "{\"name\": \"f\", \"arguments\":, \"x\": 1}"}) {
    const std::string output = std::string("<tool_call>") + body + "</tool_call>";
    const Parsed whole = Parse("<tool_call>", "", {{output}});
    ASSERT_EQ(whole.answer.calls.size(), 1u) << body;
    EXPECT_EQ(Parse("<tool_call>", "", Bytes(output)).answer.calls, whole.answer.calls) << body;
  }
}

// What stands on both sides of a call does not grow together.
TEST(ToolFormats, ContentGoesOnBehindACall) {
  constexpr std::string_view kCall = "<tool_call>{\"name\": \"f\"}</tool_call>";
  const auto content = [&](const std::string& output) {
    const std::string whole = Parse("<tool_call>", "", {{output}}).answer.content;
    EXPECT_EQ(Parse("<tool_call>", "", Bytes(output)).answer.content, whole) << output;
    return whole;
  };
  const std::string call(kCall);
  EXPECT_EQ(content("One moment.\n" + call + "\n\nDone."), "One moment.\n\nDone.");
  EXPECT_EQ(content("a " + call + " b " + call + " c"), "a b c");
  EXPECT_EQ(content("a\n" + call + "\n" + call + "\nb\n" + call + "\n"), "a\nb");
  EXPECT_EQ(content("a " + call + " <think>t</think> b"), "a b");
  EXPECT_EQ(content("<think>t</think>\n" + call + "\nb"), "b");
  EXPECT_EQ(content("a" + call + std::string(70, ' ') + "<think>t</think>b"), "ab");  // more than is held back
  EXPECT_EQ(content("a" + call + std::string(70, ' ') + "b"), "a     b");
}

TEST(ToolFormats, ContentComesOutAtOnce) {
  const auto parser = NewAnswerParser(DetectAnswerSyntax("<tool_call>"), "", {});
  const auto pushed = [&](std::string_view text) { return Pushed(*parser, text); };
  EXPECT_EQ(pushed("Hello"), "Hello");
  EXPECT_EQ(pushed(", "), ",");
  EXPECT_EQ(pushed("a < b"), " a < b");
  EXPECT_EQ(pushed(" <tool"), "");
  EXPECT_EQ(pushed("s>"), " <tools>");
  EXPECT_EQ(pushed("\n<tool_call>\n{\"name\""), "");
  EXPECT_EQ(pushed(": \"f\""), "\n<tool_call>\n{\"name\": \"f\"");  // now it is a call
  EXPECT_EQ(pushed(", \"arguments\": {"), ", \"arguments\": {");
}

TEST(ToolFormats, WhatIsNoCallIsNotHeldBack) {
  const auto parser = NewAnswerParser(DetectAnswerSyntax("<tool_call>"), "", {});
  EXPECT_EQ(Pushed(*parser, "<tool_call> is the mark"), "<tool_call> is the mark");
}

TEST(ToolFormats, ThinkingIsHeldBackFromACallOn) {
  const auto parser = NewAnswerParser(DetectAnswerSyntax("<tool_call>"), "<think>", {});
  const auto pushed = [&](std::string_view text) { return Pushed(*parser, text); };
  EXPECT_EQ(pushed("The <tool_call> mark"), "The <tool_call> mark");
  EXPECT_EQ(pushed(". <tool_call>{\"name\": \"f\"}</tool_call>, or"), ".");
  EXPECT_EQ(pushed(" not</think"), "");
  EXPECT_EQ(pushed(">"), " <tool_call>{\"name\": \"f\"}</tool_call>, or not</think>");
}

// Each time the end of the thinking is looked for: if in all that follows, this takes a minute.
TEST(ToolFormats, ManyCallsWhileThinking) {
  constexpr size_t kCalls = 20'000;
  const auto parser = NewAnswerParser(DetectAnswerSyntax("<tool_call>"), "<think>", {});
  std::string text;
  for (size_t i = 0; i < kCalls; ++i) text += "<tool_call>{\"name\": \"f\"}</tool_call>\n<think>";
  std::vector<OutputPart> parts;
  parser->Push({text}, &parts);
  parser->Finish(&parts);
  EXPECT_EQ(static_cast<size_t>(std::ranges::count_if(parts, [](const OutputPart& part) { return part.call.has_value(); })),
            kCalls);
}

TEST(ToolFormats, JsonAnswersOfLlamaAreNotHeldBack) {
  const auto parser = NewAnswerParser(DetectAnswerSyntax("<|start_header_id|>ipython"), "", {});
  std::vector<OutputPart> parts;
  parser->Push({"{ \"na"}, &parts);
  EXPECT_TRUE(parts.empty());
  parser->Push({"tion\": \"France"}, &parts);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].text, "{ \"nation\": \"France");
  EXPECT_EQ(parts[0].kind, OutputPart::Kind::kContent);
}

// Qwen3-Coder and GLM write arguments without their types.
TEST(ToolFormats, BareTextIsWhatTheToolDeclares) {
  struct Case {
    std::string schema, text, json;
  };
  const std::vector<Case> cases = {
      {R"({"type": "string"})", "90210", R"("90210")"},
      {R"({"type": "string"})", "\"x\"", R"("\"x\"")"},
      {R"({"type": "string"})", " null", R"(" null")"},
      {R"({"type": ["string", "null"]})", "90210", R"("90210")"},
      {R"({"type": ["string", "null"]})", "None", "null"},
      {R"({"anyOf": [{"type": "string"}, {"type": ["null"]}]})", "true", R"("true")"},
      {R"({"oneOf": [{"type": "string"}, {"anyOf": [{"type": "array"}, {"type": "integer"}]}]})", "[1]", "[1]"},
      {R"({"oneOf": [{"type": "string"}, {"type": "array"}]})", "90210", R"("90210")"},
      {R"({"type": "integer"})", " 90210", "90210"},
      {R"({"type": "integer"})", "many", R"("many")"},
      {R"({"type": "boolean"})", "True", "true"},
      {R"({"type": "object"})", "{\"a\": {}}", R"({"a": {}})"},
      {R"({"type": "object"})", "{'a': [None, 'b\\'c']}", R"({"a": [null, "b'c"]})"},
      {R"({"type": ["object", "string"]})", "{'a': 1}", R"("{'a': 1}")"},
      {R"({"type": "object"})", "{a}", R"("{a}")"},
      {"{}", "['a']", R"("['a']")"},
      {R"({"enum": ["1", "2"]})", "1", R"("1")"},
      {R"({"enum": ["auto", 1]})", "1", "1"},
      {R"({"enum": ["auto", 1]})", "true", R"("true")"},
      {R"({"type": ["string", "integer"], "enum": ["1"]})", "1", R"("1")"},
      {R"({"const": "7"})", "7", R"("7")"},
      {R"({"const": [7]})", "['7']", R"(["7"])"},
      {R"({"allOf": [{"description": "code"}, {"type": "string"}]})", "7", R"("7")"},
      {R"({"allOf": [{"type": ["string", "integer"]}, {"type": ["string", "null"]}]})", "7", R"("7")"},
      {R"({"type": "string", "nullable": true})", "null", "null"},
      {R"({"type": "string", "nullable": true})", "7", R"("7")"},
      {R"({"properties": {}})", "{'a': 1}", R"({"a": 1})"},
      {R"({"items": {}})", "['a']", R"(["a"])"},
      {R"({"$ref": "#/properties/zip"})", "90210", R"("90210")"},
      {R"({"anyOf": [{"$ref": "#/properties/zip"}, {"type": "null"}]})", "90210", R"("90210")"},
      {R"({"anyOf": [{"type": "string"}, {"$ref": "#"}]})", "{\"a\": 1}", R"({"a": 1})"},
      {R"({"$ref": "#/properties/a~1~0b"})", "7", R"("7")"},
      // Contradictions and circles.
      {R"({"type": "string", "const": 7})", "7", "7"},
      {R"({"$ref": "#/properties/a"})", "7", "7"},
      {R"({"type": "string", "allOf": [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]})", "7", R"("7")"},
      // Nothing is known.
      {"{}", "90210", "90210"},
      {R"({"type": "text"})", "90210", "90210"},
      {R"({"type": []})", "90210", "90210"},
      {R"({"type": [1]})", "90210", "90210"},
      {R"({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/none"}]})", "90210", "90210"},
      {R"({"anyOf": [{"type": "string"}, {"$ref": "other.json"}, {"$ref": 1}]})", "90210", "90210"},
      {R"({"anyOf": {"type": "string"}})", "90210", "90210"},
      {"true", "x", R"("x")"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.schema + " " + c.text);
    const std::string output = "<tool_call>f<arg_key>a</arg_key><arg_value>" + c.text + "</arg_value></tool_call>";
    const Parsed parsed = Parse("<tool_call><arg_key>", "", {{output}},
                                {ToolOfTypes({{"a", c.schema}, {"zip", R"({"type": "string"})"}, {"a/~b", R"({"const": ""})"}})});
    ASSERT_EQ(parsed.answer.calls.size(), 1u);
    EXPECT_EQ(parsed.answer.calls[0].arguments, "{\"a\": " + c.json + "}");
  }
  // Of another tool, and tools that are none.
  for (const char* tool : {R"({"function": {"name": "g", "parameters": {"properties": {"a": {"type": "string"}}}}})", "{", "[]",
                           R"({"function": {"name": 1, "parameters": []}})", R"({"function": {"name": "f", "parameters": 1}})"}) {
    const Parsed parsed =
        Parse("<tool_call><arg_key>", "", {{"<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"}}, {tool});
    ASSERT_EQ(parsed.answer.calls.size(), 1u);
    EXPECT_EQ(parsed.answer.calls[0].arguments, R"({"a": 1})");
  }
}

// A list in Python is calls where it is all of the answer, and well-formed.
TEST(ToolFormats, ListsInPythonThatAreContent) {
  for (const std::string_view output :
       {"[f(a=1)", "[f(a=1),", "[f(a=1)] calls f.", "[f(a=1)][g()]", "[f(a=1)]; {\"name\": \"g\", \"parameters\": {}}", "[]",
        "[1]", "[f(1)]", "[f(a=g(1))]", "[f(x) for x in y]", "[f(a=1]", "[f(a=1);g()]", "[a link](https://example.org)",
        "[f(a=\"x)]", "{\"name\": \"g\", \"parameters\": {}}; [f()]", "f(a=1)"}) {
    SCOPED_TRACE(output);
    for (const auto& pieces : {std::vector<OwnedPiece>{{std::string(output)}}, Bytes(output)}) {
      const Parsed parsed = Parse("<|header_start|>ipython", "", pieces, {ToolOfTypes({})});
      EXPECT_EQ(Shown(parsed.answer), Shown(ChatAnswer{std::string(output), "", {}}));
      EXPECT_EQ(parsed.joined, output);
    }
  }
}

// What is not as the format says: an answer for each, and nothing lost.
TEST(ToolFormats, Malformed) {
  struct Case {
    std::string_view signs, output, content;
    std::vector<ToolCall> calls;
    std::string_view reasoning = {};
    std::string_view prompt = {};
  };
  static constexpr std::string_view kDeepSeek = "<｜tool▁calls▁begin｜>";
  const std::vector<Case> cases = {
      // Marks in prose.
      {"<tool_call>", "Write <tool_call> before it.", "Write <tool_call> before it.", {}},
      {"<tool_call>", "<tool_call>\n</tool_call>\n", "<tool_call>\n</tool_call>\n", {}},
      {"<tool_call>", "<tool_call>{\"city\": 1}</tool_call>", "<tool_call>{\"city\": 1}</tool_call>", {}},
      {"<tool_call>", "x<tool_call> <tool_call>{\"name\": \"f\"}</tool_call>", "x", {{"", "f", "{}"}}},
      {"<|header_start|>ipython", "<|python_start|>f(1) <|python_end|>Yes.", "Yes.", {{"", "f", "1"}}},
      {"<|header_start|>ipython", "<|python_start|>Hi<|python_end|>there", "<|python_start|>Hi<|python_end|>there", {}},
      {"[TOOL_CALLS]", "[TOOL_CALLS] is a mark [", "[TOOL_CALLS] is a mark [", {}},
      {"<|start_header_id|>ipython", "<|python_tag|>import os\nprint(1)", "<|python_tag|>import os\nprint(1)", {}},
      {"<tool_call><function=", "<tool_call>f()</tool_call>", "<tool_call>f()</tool_call>", {}},
      {"<tool_call><function=", "Say <function= and", "Say <function= and", {}},
      // Calls without the mark before them.
      {"<tool_call><function=", "So:\n<function=f>\n</function>\n</tool_call>", "So:", {{"", "f", "{}"}}},
      {kDeepSeek, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "", {{"", "f", "{}"}}},
      // Calls that do not end, or not where they should.
      {"<tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "", {{"", "f", "{\"a\": \"b"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\"", "", {{"", "f", ""}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\", \"city\": \"Par", "", {{"", "f", "{\"city\": \"Par"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\", \"n\": 1, \"ci", "", {{"", "f", "{\"n\": 1, \"ci"}}},
      {"<tool_call>", "<tool_call>{'name': 'f', 'args': {'a': 'b", "", {{"", "f", "{'a': 'b"}}},
      {"<tool_call>", "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"a", "", {{"", "f", "{\"a"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>", "", {{"", "f", "{\"arguments\": {}}"}}},
      {"<tool_call>", R"(<tool_call>{"name": "f", "arguments": "{"a": "b"}"}</tool_call>)", "", {{"", "f", R"({"a": "b"})"}}},
      {"<tool_call>", R"(<tool_call>{"name": "f", "arguments": "{"a": b}"}</tool_call>)", "", {{"", "f", R"("{"a": b}")"}}},
      {"<tool_call>", R"(<tool_call>{"name": "f", "arguments": "{"a": "b)", "", {{"", "f", R"("{"a": "b)"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": NaN}}</tool_call>", "", {{"", "f", "{\"a\": NaN}"}}},
      {"<tool_call>",
       "<tool_call>{\"function\": {\"name\": \"f\"}, \"n\": 1}</tool_call>",
       "",
       {{"", "f", "{\"function\": {\"name\": \"f\"}, \"n\": 1}"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\", \"id\": [1]}</tool_call>", "", {{"", "f", "{\"id\": [1]}"}}},
      {"<tool_call>", "<tool_call>```json and so", "<tool_call>```json and so", {}},
      {"<tool_call>", "<tool_call>```json\n{\"name\": \"f\"}\n```", "", {{"", "f", "{}"}}},
      {"<|tools_prefix|>", "<|tools_prefix|>[{\"f\": {}, \"g\": {}}]", "", {{"", "f", "{\"f\": {}, \"g\": {}}"}}},
      {"[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]so {\"a\": 1}", "", {{"", "f", "so {\"a\": 1}"}}},
      {"<tool_call><function=",
       "<tool_call><function=f><parameter=a>1</parameter>and<parameter=b>2</parameter></function></tool_call>",
       "",
       {{"", "f", "<parameter=a>1</parameter>and<parameter=b>2</parameter></function>"}}},
      {"]<]minimax[>[",
       "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>1]<]minimax[>[</b>]<]minimax[>[</invoke>",
       "",
       {{"", "f", "]<]minimax[>[<a>1]<]minimax[>[</b>]<]minimax[>[</invoke>"}}},
      {"]<]minimax[>[",
       "]<]minimax[>[<tool_call>]<]minimax[>[<invoke "
       "name=\"f\">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</b>]<]minimax[>[</invoke>",
       "",
       {{"", "f", "]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</b>]<]minimax[>[</invoke>"}}},
      {"]<]minimax[>[", "]<]minimax[>[<tool_call> is the mark.", "]<]minimax[>[<tool_call> is the mark.", {}},
      {"<function name=<param name=",
       "<function name=\"f\"><param name=\"a\"><![CDATA[x</param></function>",
       "",
       {{"", "f", "<param name=\"a\"><![CDATA[x</param></function>"}}},
      {"<function name=<param name=", "<function name=\"a b\">", "<function name=\"a b\">", {}},
      {"<|role_sep|><|message_sep|>", "function call<|role_sep|>\nnone", "function call<|role_sep|>\nnone", {}},
      {"<|tool_call:begin|>", "<|tool_call:begin|>a<|tool_call:name|>f<|tool_call:args|>x", "", {{"a", "f", "x"}}},
      {"<tool_sep>", "<tool_calls><tool_call>f<tool_sep><arg_key>a", "", {{"", "f", "<arg_key>a"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f", "<tool_call>{\"name\": \"f", {}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call> Hi", "Hi", {{"", "f", "{\"a\": 1}"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "", {{"", "f", "{\"a\": 1}"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\"}<tool_call>{\"name\": \"g\"}", "", {{"", "f", "{}"}, {"", "g", "{}"}}},
      {"<tool_call>", "<tool_call>{\"name\": \"f\"} and so", "and so", {{"", "f", "{}"}}},
      {"[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]{\"a\": [", "", {{"", "f", "{\"a\": ["}}},
      {"[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]", "", {{"", "f", ""}}},
      {"[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]{}\n\nI called f.", "I called f.", {{"", "f", "{}"}}},
      {kDeepSeek,
       "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       {{"", "f", "{\"a\": 1"}}},
      {kDeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n", "", {{"", "f", ""}}},
      {"<tool_call><function=", "<tool_call><function=f><parameter=a>\nhalf of", "", {{"", "f", "<parameter=a>\nhalf of"}}},
      {"<tool_call><function=",
       "<tool_call><function=f><parameter=a>\n1\n</function></tool_call>",
       "",
       {{"", "f", "{\"a\": 1}"}}},
      {"<tool_call><function=",
       "<tool_call><function=f><parameter=a>\n1\n</function></tool_call> Hi",
       "",
       {{"", "f", "<parameter=a>\n1\n</function></tool_call> Hi"}}},
      {"<tool_call><function=", "<tool_call><function=f", "<tool_call><function=f", {}},
      {"<tool_call><arg_key>",
       "<tool_call>f<arg_key>a</arg_key><arg_value>1",
       "",
       {{"", "f", "<arg_key>a</arg_key><arg_value>1"}}},
      {"<|tool_list_start|>", "<|tool_call_start|>[f(1, 2)]<|tool_call_end|>", "", {{"", "f", "1, 2"}}},
      {"<start_function_call>",
       "<start_function_call>call:f{a:<escape>}<end_function_call>",
       "",
       {{"", "f", "a:<escape>}<end_function_call>"}}},
      // Thinking.
      {"<tool_call>", "<think>a <tool_call>{\"name\": \"f\"", "", {}, "a <tool_call>{\"name\": \"f\""},
      {"<tool_call>", "<think>a <tool_call>{\"name\": \"f\"} b", "b", {{"", "f", "{}"}}, "a"},
      {"<tool_call>", "<think>a <tool_call>{\"city\": 1}</tool_call> b", "", {}, "a <tool_call>{\"city\": 1}</tool_call> b"},
      {"<tool_call>", "<think>a <tool_call>{\"x\": </think>b", "b", {}, "a <tool_call>{\"x\":"},
      {"<tool_call>", "still <think", "", {}, "still <think", "<think>\n"},
      {"<tool_call>", "</think>Yes.", "Yes.", {}, "", "<think>\n\n</think>\n\n"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.output);
    for (const auto& pieces : {std::vector<OwnedPiece>{{std::string(c.output)}}, Bytes(c.output), WithControlTokens(c.output)}) {
      const Parsed parsed = Parse(c.signs, c.prompt, pieces);
      EXPECT_EQ(Shown(parsed.answer), Shown(ChatAnswer{std::string(c.content), std::string(c.reasoning), c.calls}));
      EXPECT_EQ(parsed.joined, c.output);
    }
  }
}

TEST(ToolFormats, ControlTokensOfNoFormatAreMarks) {
  Parsed parsed = Parse("<tool_call>", "", {{"Hi <to"}, {"<|im_end|>", true}, {" there"}});
  EXPECT_EQ(parsed.answer.content, "Hi <to there");
  parsed = Parse("<tool_call>", "", {{"<tool_call>{\"name\": \"f\", \"arguments\": {"}, {"<|im_end|>", true}});
  ASSERT_EQ(parsed.answer.calls.size(), 1u);
  EXPECT_EQ(parsed.answer.calls[0].arguments, "{");
  parsed = Parse("<|start_header_id|>ipython", "", {{"{\"name\": \"f\", \"parameters\": {}}"}, {"<|eom_id|>", true}});
  ASSERT_EQ(parsed.answer.calls.size(), 1u);
  EXPECT_EQ(parsed.answer.content, "");
}

// However marks, brackets, quotes and letters follow one another: nothing is lost, and what comes of it does not depend on the cuts.
TEST(ToolFormats, AnyOutputIsTakenWhole) {
  std::vector<std::string> scraps = {"{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}",
                                     "{\"name\": \"",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     "(",
                                     ")",
                                     "\"",
                                     "\\",
                                     "'",
                                     ":",
                                     ",",
                                     "=",
                                     "name",
                                     "f(a=1)",
                                     "[f(a=1), g(b='x')]",
                                     "functools[",
                                     "<｜tool calls begin｜>",
                                     "call:f{",
                                     "<function=f>",
                                     "</function>",
                                     "<parameter=a>",
                                     "</parameter>",
                                     "<invoke name=\"f\">",
                                     "</invoke>",
                                     "<parameter name=\"a\" string=\"true\">",
                                     "function",
                                     "\n",
                                     " ",
                                     "```json\n",
                                     "é",
                                     "漢",
                                     "<",
                                     "<|",
                                     "｜",
                                     "text"};
  for (const std::string_view token : ControlTokens()) scraps.emplace_back(token);
  const char* given = std::getenv("TALLY_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("TALLY_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::vector<AnswerSample>& samples = AnswerSamples();
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    const AnswerSample& sample = samples[random() % samples.size()];
    std::vector<std::string_view> own = {"<think>", "</think>"};  // half of the scraps are marks of the format
    for (const std::string_view token : ControlTokens()) {
      if (sample.output.find(token) != sample.output.npos) own.push_back(token);
    }
    std::string text;
    for (uint64_t n = 1 + random() % 24; n > 0; --n) {
      text += random() % 2 == 0 ? own[random() % own.size()] : std::string_view(scraps[random() % scraps.size()]);
    }
    const Parsed whole = Parse(sample.signs, sample.prompt, {{text}}, sample.tools);
    const Parsed cut = Parse(sample.signs, sample.prompt, Bytes(text), sample.tools);
    EXPECT_EQ(whole.joined, text) << sample.format;
    EXPECT_EQ(cut.joined, text) << sample.format;
    EXPECT_EQ(Shown(whole.answer), Shown(cut.answer)) << sample.format << ": " << text;
    EXPECT_EQ(Parse(sample.signs, sample.prompt, WithControlTokens(text), sample.tools).joined, text) << sample.format;
  }
}

}  // namespace
}  // namespace tally
