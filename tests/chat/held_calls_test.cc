// SPDX-License-Identifier: Apache-2.0
// Calls as the grammar of a format lets a model write them: the format's parser reads each of them, and its arguments are what the tool's
// schema allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/chat/harmony.h"
#include "engine/chat/tool_formats.h"
#include "engine/grammar/grammar.h"
#include "tests/chat/answer_samples.h"

namespace tally {
namespace {

const char* const kWeather = R"({"type": "object", "properties": {
  "city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 14}, "metric": {"type": "boolean"},
  "when": {"anyOf": [{"type": "string", "pattern": "^[0-9]{2}$"}, {"type": "null"}]}, "unit": {"enum": ["C", "F", 5, null]},
  "at": {"type": "object", "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}, "note": {"type": "string"}},
         "required": ["lat", "note"], "additionalProperties": false},
  "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3}, "any": {}},
  "required": ["city", "days", "when", "unit", "at"], "additionalProperties": false})";
const char* const kOpen = R"({"type": "object", "properties": {"x": {"type": "string"}}})";

// What bare text makes hard: strings that spell other values, and marks within strings.
const char* const kOdd = R"({"type": "object", "properties": {
  "a": {"anyOf": [{"type": "string", "pattern": "^[0-9x]{2}$"}, {"type": "integer", "minimum": 1, "maximum": 3}]},
  "e": {"type": "string", "enum": ["p", "5"], "nullable": true},
  "b": {"type": "object", "properties": {"c": {"const": "</parameter></arg_value>"}, "s": {"type": "string", "maxLength": 4}},
        "required": ["c", "s"], "additionalProperties": false}},
  "required": ["a", "e", "b"], "additionalProperties": {"type": "string", "pattern": "^[0-9a]{2}$"}, "maxProperties": 4})";

// A text of the grammar, by a walk over bytes that prefers to end.
std::string SampleOf(const std::shared_ptr<Grammar>& grammar, std::mt19937& random) {
  static const auto kNoVocabulary = std::make_shared<const Vocabulary>(std::vector<std::string>(), std::vector<int32_t>());
  GrammarCursor cursor(grammar, kNoVocabulary);
  std::string text;
  while (text.size() < 4000) {
    const std::array<uint64_t, 4> first = cursor.FirstBytes();
    std::vector<char> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      if ((first[static_cast<size_t>(byte) / 64] >> (byte % 64) & 1) != 0) bytes.push_back(static_cast<char>(byte));
    }
    if (bytes.empty() || (cursor.MayEnd() && random() % 2 == 0)) return text;
    // What ends a string or a value more often than chance would have it.
    char next = bytes[random() % bytes.size()];
    for (const char stop : {'"', '}', ')', '<', ']'}) {
      if (random() % 6 == 0 && std::ranges::find(bytes, stop) != bytes.end()) next = stop;
    }
    EXPECT_TRUE(cursor.TakeBytes(std::string(1, next)));
    text += next;
  }
  return text;
}

TEST(HeldCalls, AreReadAndTheirArgumentsFollowTheSchema) {
  const std::vector<CallTool> tools = {{"get_weather", kWeather, {"city"}}, {"f", kOpen, {}}, {"odd", kOdd, {}}};
  const std::vector<std::string> declared = {
      std::string(R"({"type": "function", "function": {"name": "get_weather", "parameters": )") + kWeather + "}}",
      std::string(R"({"type": "function", "function": {"name": "f", "parameters": )") + kOpen + "}}",
      std::string(R"({"type": "function", "function": {"name": "odd", "parameters": )") + kOdd + "}}"};
  const std::shared_ptr<Grammar> weather = *Grammar::FromSchema(kWeather), open = *Grammar::FromSchema(kOpen),
                                 odd = *Grammar::FromSchema(kOdd);
  std::set<std::string_view> formats;
  std::mt19937 random(1);
  int read = 0, several = 0, native = 0;
  for (const AnswerSample& sample : AnswerSamples()) {
    const AnswerSyntax syntax = DetectAnswerSyntax(sample.signs);
    ASSERT_EQ(CallNotationsOf(syntax, false).empty(), !KnowsCalls(syntax)) << sample.format;
    if (!KnowsCalls(syntax) || !formats.insert(sample.signs).second) continue;
    for (const bool json : {false, true}) {
      for (const CallNotation& notation : CallNotationsOf(syntax, json)) {
        native += notation.arguments != ArgumentNotation::kJson ? 1 : 0;
        const Result<std::shared_ptr<Grammar>> grammar =
            Grammar::FromCalls(std::vector{notation}, tools, {.most = notation.once ? 1u : 3u});
        ASSERT_TRUE(grammar.ok()) << sample.format << ": " << grammar.status().message();
        for (int i = 0; i < 5; ++i) {
          const std::string text = SampleOf(*grammar, random);
          if (!(*grammar)->Accepts(text)) continue;  // the walk was too long
          SCOPED_TRACE(std::string(sample.format) + ": " + text);
          const auto parser = NewAnswerParser(syntax, "<|assistant|>\n", declared);
          std::vector<OutputPart> parts;
          parser->Push({text}, &parts);
          parser->Finish(&parts);
          ChatAnswer answer;
          answer.Add(parts);
          EXPECT_EQ(answer.content, "");
          ASSERT_FALSE(answer.calls.empty());
          several += answer.calls.size() > 1 ? 1 : 0;
          for (const ToolCall& call : answer.calls) {
            ASSERT_TRUE(call.name == "get_weather" || call.name == "f" || call.name == "odd") << call.name;
            const Result<bool> valid = (call.name == "f"     ? open
                                        : call.name == "odd" ? odd
                                                             : weather)
                                           ->AcceptsDocument(call.arguments);
            // Open objects may have a name twice, or 1e999.
            if (const std::string error(valid.status().message());
                error.find("overflow") < error.npos || error.find("twice") < error.npos)
              continue;
            ASSERT_TRUE(valid.ok()) << valid.status().message() << ": " << call.arguments;
            ASSERT_TRUE(*valid) << call.arguments;
            ++read;
          }
        }
      }
    }
  }
  EXPECT_GT(formats.size(), 25u);
  EXPECT_GT(native, 12);
  EXPECT_GT(read, 250);
  EXPECT_GT(several, 40);
}

}  // namespace
}  // namespace tally
