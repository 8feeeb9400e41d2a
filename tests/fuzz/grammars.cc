// SPDX-License-Identifier: Apache-2.0
// JSON Schemas, regular expressions and grammars: any text is refused or compiled in bounded time, and what is compiled reads any text.
#include <memory>

#include "engine/grammar/grammar.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"

namespace tally::fuzz {
namespace {

void Follow(const Result<std::shared_ptr<Grammar>>& grammar, std::string_view text) {
  if (!grammar.ok()) {
    const StatusCode code = grammar.status().code();
    Require(code == StatusCode::kBadInput || code == StatusCode::kNoRoom,
            "not an error of the input: " + grammar.status().message());
    Require(grammar.status().message().find('\n') == std::string::npos, "more than a line: " + grammar.status().message());
    return;
  }
  static const auto vocabulary = std::make_shared<const Vocabulary>(
      std::vector<std::string>{"{", "}", "\"", "[", "]", ",", ":", "a", "1", "ab", "{\"", "\":", "\xc3", "\xa9", "null", "<end>"},
      std::vector<int32_t>{15});
  GrammarCursor cursor(*grammar, vocabulary);
  cursor.Prepare();
  Require(!cursor.Forced(64).empty() || cursor.MayEnd() || cursor.FirstBytes() != std::array<uint64_t, 4>(),
          "a grammar without an answer");
  for (const char c : text.substr(0, 256)) {
    const TokenMask mask = cursor.Mask();
    for (int32_t token = 0; token < 16; ++token) {
      GrammarCursor copy = cursor;
      Require(copy.Take(token) == (((*mask)[0] >> token & 1) != 0), "a mask that reading does not confirm");
    }
    if (!cursor.TakeBytes(std::string_view(&c, 1))) break;
  }
}

void RunGrammar(std::string_view input) {
  const std::vector<std::string_view> parts = Files(input);
  const std::string_view text = parts.size() > 1 ? parts[1] : std::string_view();
  const Result<std::shared_ptr<Grammar>> schema = Grammar::FromSchema(parts[0]);
  Follow(schema, text);
  if (schema.ok()) {
    if (const Result<bool> accepts = (*schema)->AcceptsDocument(text); accepts.ok() && *accepts) {
      Require(!(*schema)->Accepts("\x01"), "a control character is a document");
    }
  }
  Follow(Grammar::FromRegex(parts[0]), text);
  Follow(Grammar::FromGbnf(parts[0]), text);
}

std::vector<std::string> GrammarSeeds() {
  const auto seed = [](std::string grammar, std::string_view text) { return (grammar += kNextFile) += text; };
  return {
      seed(
          R"({"type":"object","properties":{"a":{"type":"integer","minimum":1},"b":{"enum":["x",1,null]}},"required":["a"],"additionalProperties":false})",
          R"({"a":12})"),
      seed(
          R"({"$defs":{"n":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n"},{"items":{"$ref":"#/$defs/n"}}]}},"allOf":[{"$ref":"#/$defs/n"},{"not":{"const":3}}]})",
          "[null]"),
      seed(
          R"({"patternProperties":{"^a":{"multipleOf":0.5}},"propertyNames":{"maxLength":4},"minProperties":1,"maxProperties":3})",
          R"({"ab":1.5})"),
      seed(R"({"type":"string","format":"date-time","pattern":"Z$","minLength":3})", "\"2024-02-29T00:00:00Z\""),
      seed(
          R"({"oneOf":[{"prefixItems":[true,{"type":"string"}],"uniqueItems":false},{"type":"number","exclusiveMaximum":-1e3}],"if":{"minItems":1},"then":{"contains":{"const":1}}})",
          "-2000"),
      seed("^(?=.*[A-Z])(a|b{2,3}|\\p{Lu}[^x-z]*?)+$", "aA"),
      seed(
          R"({"type":"string","format":"duration","pattern":"^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(T(?=\\d)(\\d+H)?(?:(?!H|$).)*)?)$","$ref":"#b","$defs":{"x":{"$anchor":"b","$id":"#b"}}})",
          "\"P1YT2H\""),
      seed("root ::= \"a\" (x | [^b-d]{2,4})* # c\nx ::= \"\\u00e9\" x?", "axx"),
  };
}

}  // namespace

const Target kGrammar = {"grammar", RunGrammar, GrammarSeeds};

}  // namespace tally::fuzz
