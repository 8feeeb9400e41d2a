// SPDX-License-Identifier: Apache-2.0
// The schema check of the tests: each keyword, and that no other passes unread.
#include "tests/support/json_schema.h"

#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

using Json = nlohmann::json;

struct Example {
  const char* schema;
  const char* good;
  const char* bad;
  const char* finding;  // part of what is said of the bad one
};

TEST(JsonSchema, EveryKeywordRefusesAndAccepts) {
  const Example examples[] = {
      {R"({"type": "object"})", "{}", "[]", "[] is not of type \"object\""},
      {R"({"type": ["string", "null"]})", "null", "1", "1 is not of type"},
      {R"({"type": "integer"})", "1.0", "1.5", "1.5 is not of type \"integer\""},
      {R"({"type": "number"})", "1.5", "\"1\"", "is not of type \"number\""},
      {R"({"type": "boolean"})", "true", "1", "is not of type"},
      {R"({"const": 1})", "1", "2", "2 is not 1"},
      {R"({"enum": ["a", 1]})", "1", "\"b\"", "\"b\" is not one of"},
      {R"({"minimum": 1})", "1", "-1", "-1 is below 1"},
      {R"({"minimum": 0})", "18446744073709551615", "-0.5", "is below 0"},
      {R"({"minimum": 1})", "\"no number\"", "0", "below"},
      {R"({"minLength": 2})", "\"ab\"", "\"\u00e9\"", "too short"},
      {R"({"minItems": 1})", "[0]", "[]", "too few items"},
      {R"({"maxItems": 1})", "[0]", "[0, 1]", "too many items"},
      {R"({"minProperties": 1})", R"({"a": 0})", "{}", "too few members"},
      {R"({"items": {"type": "integer"}})", "[1, 2]", "[1, \"2\"]", "/1: "},
      {R"({"required": ["a"]})", R"({"a": null})", R"({"b": 1})", "lacks \"a\""},
      {R"({"properties": {"a": {"const": 1}}})", R"({"a": 1, "b": 2})", R"({"a": 2})", "/a: 2 is not 1"},
      {R"({"properties": {"a": true}, "additionalProperties": false})", R"({"a": 1})", R"({"b": 1})", "/b: is not allowed here"},
      {R"({"additionalProperties": {"type": "null"}})", R"({"a": null})", R"({"a": {"b": 1}})", "/a: "},
      {R"({"anyOf": [{"const": 1}, {"type": "string"}]})", "\"x\"", "2", "fits none"},
      {R"({"definitions": {"n": {"minimum": 3}}, "items": {"$ref": "#/definitions/n", "description": "three"}})", "[3]", "[2]",
       "/0: 2 is below 3"},
  };
  for (const Example& e : examples) {
    const JsonSchema schema(Json::parse(e.schema));
    EXPECT_EQ(schema.Check(Json::parse(e.good)), "") << e.schema;
    const std::string found = schema.Check(Json::parse(e.bad));
    EXPECT_NE(found.find(e.finding), std::string::npos) << e.schema << " of " << e.bad << ": '" << found << "'";
    EXPECT_FALSE(found.empty()) << e.schema;
  }
}

TEST(JsonSchema, WhatItDoesNotKnowIsRefused) {
  for (const char* text :
       {R"({"maximum": 3})", R"({"properties": {"a": {"pattern": "x"}}})", R"({"type": "int"})", R"({"type": ["null", 3]})",
        R"({"items": [{"type": "null"}]})", R"({"$ref": "#/definitions/none"})", R"({"$ref": "other.json"})",
        R"({"definitions": {"a": true}, "items": {"$ref": "#/definitions/a", "minimum": 1}})", R"({"additionalProperties": 1})",
        R"({"anyOf": [{"oneOf": []}]})", R"({"definitions": {"unused": {"format": "date"}}})", R"({"minItems": -1})", "[]"}) {
    EXPECT_THROW(JsonSchema{Json::parse(text)}, std::invalid_argument) << text;
  }
}

}  // namespace
}  // namespace tally
