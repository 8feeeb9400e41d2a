// SPDX-License-Identifier: Apache-2.0
// JSON Schema against documents that are valid and not, by hand, and against a validator that is written here.
#include "engine/grammar/schema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/mix.h"
#include "engine/grammar/grammar.h"

namespace tally {
namespace {

using Json = nlohmann::ordered_json;

struct SchemaCase {
  const char* schema;
  std::vector<const char*> valid, invalid;
};

const SchemaCase kCases[] = {
    {R"({"type":"object","properties":{"a":{"type":"string","enum":["x"],"nullable":true},"n":{"$ref":"#"}},"required":["a"],"nullable":true})",
     {R"({"a":"x"})", R"({"a":null,"n":{"a":null,"n":null}})", "null"},
     {R"({"a":"y"})", R"({"n":null})", "1"}},
    {R"({"type":"integer"})", {"0", "-7", "123456789012345678901234567890", "1.0"}, {"1.5", "\"1\"", "null"}},
    {R"({"type":"integer","minimum":-3,"exclusiveMaximum":12})", {"-3", "0", "9", "11"}, {"-4", "12", "100"}},
    {R"({"minimum":0.5,"maximum":12.25})", {"0.5", "12.25", "12.249", "1", "\"any\""}, {"0.49", "12.26", "13", "-1"}},
    {R"({"exclusiveMinimum":-1.5,"exclusiveMaximum":0})", {"-1.4", "-0.001"}, {"-1.5", "0", "1"}},
    {R"({"type":"integer","multipleOf":7,"minimum":10})", {"14", "21", "7000"}, {"7", "15", "0"}},
    {R"({"multipleOf":0.01})", {"1", "1.5", "19.99", "-0.01"}, {"0.001", "19.999"}},
    {R"({"multipleOf":0.25,"type":"number"})", {"0.25", "1.5", "2"}, {"0.3", "0.125"}},
    {R"({"type":"string","minLength":2,"maxLength":3})", {"\"ab\"", "\"\\u00e9\\u4e2d\\ud83d\\ude00\""}, {"\"a\"", "\"abcd\""}},
    {R"({"type":"string","pattern":"^a.*z$","maxLength":4})", {"\"az\"", "\"abcz\""}, {"\"abcdz\"", "\"bz\""}},
    {R"({"pattern":"b\"c"})", {"\"ab\\\"cd\"", "5"}, {"\"bc\""}},
    {R"({"enum":["a",1,null,{"x":[1,2]},true]})",
     {"\"a\"", "1", "1.0", "null", "{\"x\":[1,2]}", "true"},
     {"\"b\"", "2", "{\"x\":[2,1]}", "false"}},
    {R"({"const":"a/b\n"})", {"\"a/b\\n\""}, {"\"a/b\""}},
    {R"({"$schema":"http://json-schema.org/draft-07/schema#","oneOf":[{"type":"string","$ref":"#/definitions/a"},{"type":"array"}],"definitions":{"a":{}}})",
     {"\"x\"", "1"},  // beside $ref, draft 7 says nothing: the branches are not apart
     {"[]"}},
    {R"({"$schema":"http://json-schema.org/draft-07/schema#","not":{"type":"string","$ref":"#/definitions/a"},"definitions":{"a":{"type":"null"}}})",
     {"1"},
     {"null"}},
    {R"({"$ref":"#a","$defs":{"x":{"const":{"$anchor":"a","type":"null"}},"y":{"$dynamicAnchor":"a","type":"integer"}}})",
     {"1"},
     {"null", "\"\""}},
    {R"({"type":["string","null"]})", {"\"\"", "null"}, {"1", "{}"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["b"]})",
     {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"a":1,"b":"x","c":[null]})", R"({"b":"","zz":{}})"},
     {R"({"a":1})", R"({"a":"1","b":"x"})", "{}"}},
    {R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false})",
     {"{}", R"({"a":1})", R"({"a":1,"b":2})", R"({"b":[]})"},
     {R"({"c":1})", R"({"a":1,"c":1})"}},
    {R"({"type":"object","additionalProperties":{"type":"boolean"},"maxProperties":2})",
     {"{}", R"({"x":true,"y":false})"},
     {R"({"x":1})", R"({"x":true,"y":true,"z":true})"}},
    {R"({"properties":{"a":{},"b":{},"c":{}},"additionalProperties":false,"minProperties":2,"maxProperties":2})",
     {R"({"a":1,"c":2})", R"({"b":1,"c":2})"},
     {R"({"a":1})", R"({"a":1,"b":1,"c":1})"}},
    {R"({"patternProperties":{"^n_":{"type":"number"},"_s$":{"type":"string"}},"additionalProperties":{"type":"null"}})",
     {R"({"n_a":1,"b_s":"x","c":null})", "{}"},
     {R"({"n_a":"x"})", R"({"c":1})", R"({"n_s":1})"}},
    {R"({"properties":{"n_x":{"maximum":5}},"patternProperties":{"^n_":{"minimum":1}}})",
     {R"({"n_x":3})", R"({"n_y":9})"},
     {R"({"n_x":9})", R"({"n_x":0})", R"({"n_y":0})"}},
    {R"({"propertyNames":{"pattern":"^[a-z]+$","maxLength":3}})", {R"({"abc":1})", "{}"}, {R"({"abcd":1})", R"({"A":1})"}},
    {R"({"propertyNames":{"enum":["x","y"]},"additionalProperties":{"type":"integer"}})",
     {R"({"x":1,"y":2})", R"({"y":2})"},
     {R"({"z":1})", R"({"x":"1"})"}},
    {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
     {"[1]", "[1,2,3]"},
     {"[]", "[1,2,3,4]", "[\"a\"]"}},
    {R"({"prefixItems":[{"type":"string"},{"type":"integer"}],"items":false,"minItems":1})",
     {"[\"a\"]", "[\"a\",1]"},
     {"[]", "[1]", "[\"a\",1,2]"}},
    {R"({"prefixItems":[{"type":"string"}],"items":{"type":"null"},"minItems":2})",
     {"[\"a\",null]", "[\"a\",null,null]"},
     {"[\"a\"]", "[\"a\",1]"}},
    {R"({"type":"array","contains":{"const":7},"items":{"type":"integer"}})",
     {"[7]", "[1,7,2]", "[7,7]"},
     {"[]", "[1,2]", "[7,\"a\"]"}},
    {R"({"type":"array","contains":{"const":7},"minContains":2})", {"[7,7]", "[7,\"a\",7]"}, {"[7]", "[1,7]"}},
    {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
     {"[\"a\"]", "[\"c\",\"a\",\"b\"]"},
     {"[]", "[\"a\",\"a\"]", "[\"d\"]"}},
    {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"minimum":3},"b":{"type":"null"}},"required":["b"]}]})",
     {R"({"a":3,"b":null})"},
     {R"({"a":2,"b":null})", R"({"a":3})", R"({"a":3,"b":1})"}},
    {R"({"anyOf":[{"type":"integer","minimum":10},{"type":"string","maxLength":1}]})",
     {"10", "\"a\"", "\"\""},
     {"9", "\"ab\"", "null"}},
    {R"({"type":"object","properties":{"kind":{"enum":["a","b"]}},"required":["kind"],"anyOf":[{"properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["x"]},{"properties":{"kind":{"const":"b"}}}]})",
     {R"({"kind":"a","x":1})", R"({"kind":"b"})"},
     {R"({"kind":"a"})", R"({"kind":"c"})", R"({"x":1})"}},
    {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"x"},"v":{"type":"integer"}},"required":["t","v"]},{"type":"object","properties":{"t":{"const":"y"}},"required":["t"]}]})",
     {R"({"t":"x","v":1})", R"({"t":"y"})"},
     {R"({"t":"x"})", R"({"t":"z"})"}},
    {R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", {"1", "2.5", "\"text\""}, {"3", "1.5"}},
    {R"({"not":{"type":["string","integer"]}})", {"null", "1.5", "[]"}, {"\"a\"", "1"}},
    {R"({"type":"string","not":{"enum":["a","b"]}})", {"\"c\"", "\"\"", "\"ab\""}, {"\"a\"", "\"b\""}},
    {R"({"type":"object","properties":{"a":{"type":"integer"}},"not":{"required":["b"]}})",
     {R"({"a":1})", R"({"c":1})"},
     {R"({"b":1})", R"({"a":1,"b":2})"}},
    {R"({"if":{"properties":{"c":{"const":"US"}},"required":["c"]},"then":{"required":["zip"]},"else":{"properties":{"zip":false}},"properties":{"c":{"type":"string"},"zip":{"type":"string"}},"type":"object"})",
     {R"({"c":"US","zip":"1"})", R"({"c":"DE"})", "{}"},
     {R"({"c":"US"})", R"({"c":"DE","zip":"1"})"}},
    {R"({"dependentRequired":{"a":["b"]},"type":"object"})", {"{}", R"({"a":1,"b":2})", R"({"b":2})"}, {R"({"a":1})"}},
    {R"({"dependentSchemas":{"a":{"properties":{"b":{"type":"integer"}}}}})",
     {R"({"a":1,"b":2})", R"({"b":"x"})", "5"},
     {R"({"a":1,"b":"x"})"}},
    {R"({"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"integer"}],"additionalItems":{"type":"string"}})",
     {"[1]", "[1,\"a\"]", "[]"},
     {"[\"a\"]", "[1,2]"}},
    {R"({"$defs":{"node":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["next"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
     {R"({"next":null})", R"({"next":{"next":{"next":null}}})"},
     {"{}", R"({"next":{}})"}},
    {R"({"$defs":{"a b":{"$anchor":"here","type":"integer"}},"properties":{"x":{"$ref":"#here"},"y":{"$ref":"#/$defs/a%20b"}}})",
     {R"({"x":1,"y":2})"},
     {R"({"x":"a"})", R"({"y":"a"})"}},
    // A chain of choices that refer to the next.
    {R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"object","properties":{"x":{"$ref":"#/$defs/b"}},"required":["x"],"additionalProperties":false}]},"b":{"oneOf":[{"$ref":"#/$defs/c"},{"type":"boolean"}]},"c":{"type":"null"}}})",
     {"null", "true", R"({"x":null})", R"({"x":false})"},
     {"1", "{}", R"({"x":{"x":null}})"}},
    {R"({"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"integer"}]})", {"1", "[]", "[1,[2,[]]]"}, {"null", "[null]"}},
    {R"({"type":"string","format":"date-time"})", {"\"2024-02-29T12:00:00Z\""}, {"\"2023-02-29T12:00:00Z\"", "\"now\""}},
    {"{}", {"null", "[{\"a\":[1e300,-0.5]},\"\\u0000\"]"}, {}},
};

TEST(Schema, ValidDocumentsAreInItAndOthersAreNot) {
  for (const SchemaCase& c : kCases) {
    for (const JsonSpace space : {JsonSpace::kNone, JsonSpace::kOne}) {
      const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(c.schema, {.space = space});
      ASSERT_TRUE(grammar.ok()) << c.schema << ": " << grammar.status().message();
      for (const char* document : c.valid) {
        const Result<bool> accepts = (*grammar)->AcceptsDocument(document);
        EXPECT_TRUE(accepts.ok() && *accepts) << c.schema << "\n" << document;
      }
      for (const char* document : c.invalid) {
        const Result<bool> accepts = (*grammar)->AcceptsDocument(document);
        EXPECT_TRUE(accepts.ok() && !*accepts) << c.schema << "\n" << document;
      }
    }
  }
}

TEST(Schema, DocumentsAreWrittenInOneWay) {
  const char* const schema =
      R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"array","items":{"type":"string"}}},"required":["b","a"],"additionalProperties":false})";
  const Result<std::shared_ptr<Grammar>> compact = Grammar::FromSchema(schema),
                                         spaced = Grammar::FromSchema(schema, {.space = JsonSpace::kOne});
  ASSERT_TRUE(compact.ok() && spaced.ok());
  EXPECT_TRUE((*compact)->Accepts(R"({"b":1,"a":["x","\u00e9\/"]})"));
  EXPECT_FALSE((*compact)->Accepts(R"({"b": 1, "a": ["x"]})"));
  EXPECT_TRUE((*spaced)->Accepts(R"({"b": 1, "a": ["x", "y"]})"));
  EXPECT_FALSE((*compact)->Accepts(R"({"a":["x"],"b":1})"));  // members in the order of properties
  EXPECT_FALSE((*compact)->Accepts(R"({"b":1.0,"a":[]})"));
  EXPECT_FALSE((*compact)->Accepts("{\"b\":1,\"a\":[\"\n\"]}"));
  EXPECT_FALSE((*compact)->Accepts(R"({"b":1,"a":["\ud800"]})"));
}

TEST(Schema, WhatCannotBeHeldIsNamedWithItsPlace) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"properties":{"a":{"$dynamicRef":"#x"}}})", "/properties/a: $dynamicRef"},
      {R"({"$ref":"http://example.com/x"})", "/: $ref http://example.com/x is outside"},
      {R"({"$ref":"#/$defs/none"})", "refers to nothing"},
      {R"({"$ref":"#/$defs/x/items","$defs":{"x":{"$id":"http://a/b","items":{"$ref":"#/$defs/y"},"$defs":{"y":{}}},"y":true}})",
       "/$defs/x/items: $ref within a schema with an $id"},
      {R"({"items":{"type":"strin"}})", "/items: type is not"},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"string"}})", "/: uniqueItems"},
      {R"({"properties":{"a/b":{"pattern":"(a)\\1"}}})", "/properties/a~1b: pattern (a)\\1: a back reference"},
      {R"({"oneOf":[{"type":"string","pattern":"a"},{"type":"string","format":"date"}]})", "oneOf: it is not seen"},
      {R"({"not":{"format":"date"}})", "not of format"},
      {R"({"minLength":-1})", "minLength is not a count"},
      {R"({"required":"a"})", "required is not a list"},
      {R"({"type":"object","minProperties":3})", "minProperties"},
      {R"({"contains":{},"maxContains":2})", "maxContains"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "no answer is in it"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "no answer is in it"},
      {R"({"type":"string","pattern":"^a{5}$","maxLength":4})", "no answer is in it"},
      {R"({"properties":{"a":{"$ref":"#"}},"required":["a"],"type":"object"})", "no answer is in it"},
      {"[]", "a schema is an object"},
      {"{", "schema"},
      {R"({"multipleOf":0.0001234567})", "too many remainders"},
      {R"({"type":"string","allOf":[{"pattern":"^(.*a){23}.*$"},{"pattern":"^(.*b){19}.*$"},{"pattern":"^(.*c){17}.*$"},{"pattern":"^(.*d){13}.*$"}],"maxLength":71})",
       "too many states"},
  };
  for (const auto& [schema, what] : wrong) {
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(schema);
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_TRUE(grammar.status().code() == StatusCode::kBadInput || grammar.status().code() == StatusCode::kNoRoom);
    EXPECT_NE(grammar.status().message().find(what), std::string::npos) << schema << ": " << grammar.status().message();
    EXPECT_EQ(grammar.status().message().find('\n'), std::string::npos);
  }
}

TEST(Schema, AnnotationsAreListed) {
  const Result<std::shared_ptr<Grammar>> grammar =
      Grammar::FromSchema(R"({"title":"x","x-order":1,"properties":{"a":{"type":"string","format":"color","minLenght":3}}})");
  ASSERT_TRUE(grammar.ok());
  EXPECT_EQ((*grammar)->ignored(),
            (std::vector<std::string>{"/properties/a/format: color", "/properties/a/minLenght", "/x-order"}));
  // A format that contradicts the pattern beside it.
  const Result<std::shared_ptr<Grammar>> time =
      Grammar::FromSchema(R"({"type":"string","format":"time","pattern":"^\\d\\d:\\d\\d$"})");
  ASSERT_TRUE(time.ok());
  EXPECT_EQ((*time)->ignored(), std::vector<std::string>{"/format: time"});
  EXPECT_TRUE((*time)->Accepts("\"10:30\""));
}

TEST(Schema, ThePageHasTheTable) {
  std::ifstream file(std::string(TALLY_SOURCE_DIR) + "/docs/structured.md");
  std::stringstream page;
  page << file.rdbuf();
  std::string table = "| Keyword | Held |\n| --- | --- |\n", formats = "\nFormats:";
  for (const SchemaKeyword& keyword : SchemaKeywords()) {
    table += "| `" + std::string(keyword.name) + "` | " + std::string(keyword.held) + " |\n";
  }
  for (const std::string_view format : SchemaFormats())
    formats += (formats.ends_with(':') ? " `" : ", `") + std::string(format) + "`";
  EXPECT_NE(page.str().find(table + formats + "\n"), std::string::npos)
      << "`tally schema --keywords` prints what docs/structured.md is to have";
}

// --- random schemas

bool Equal(const Json& x, const Json& y) { return x.is_number() && y.is_number() ? x.get<double>() == y.get<double>() : x == y; }

bool IsType(const std::string& type, const Json& v) {
  if (type == "integer") return v.is_number() && std::floor(v.get<double>()) == v.get<double>();
  if (type == "number") return v.is_number();
  if (type == "string") return v.is_string();
  if (type == "null") return v.is_null();
  if (type == "boolean") return v.is_boolean();
  return type == "array" ? v.is_array() : v.is_object();
}

size_t Characters(const Json& v) {
  const std::string text = v.get<std::string>();
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

// The standard, of the keywords that RandomSchema makes.
bool IsValid(const Json& s, const Json& v) {
  if (s.is_boolean()) return s.get<bool>();
  const auto all = [&](const char* keyword, const auto& holds) { return !s.contains(keyword) || holds(s[keyword]); };
  const auto count = [](const Json& n) { return n.get<size_t>(); };
  return all("type", [&](const Json& t) { return IsType(t, v); }) && all("const", [&](const Json& c) { return Equal(c, v); }) &&
         all("enum", [&](const Json& e) { return std::ranges::any_of(e, [&](const Json& c) { return Equal(c, v); }); }) &&
         all("minimum", [&](const Json& n) { return !v.is_number() || v.get<double>() >= n.get<double>(); }) &&
         all("exclusiveMaximum", [&](const Json& n) { return !v.is_number() || v.get<double>() < n.get<double>(); }) &&
         all("multipleOf", [&](const Json& n) { return !v.is_number() || std::fmod(v.get<double>(), n.get<double>()) == 0; }) &&
         all("minLength", [&](const Json& n) { return !v.is_string() || Characters(v) >= count(n); }) &&
         all("maxLength", [&](const Json& n) { return !v.is_string() || Characters(v) <= count(n); }) &&
         all("pattern",
             [&](const Json& p) {
               return !v.is_string() || std::regex_search(v.get<std::string>(), std::regex(p.get<std::string>()));
             }) &&
         all("minItems", [&](const Json& n) { return !v.is_array() || v.size() >= count(n); }) &&
         all("maxItems", [&](const Json& n) { return !v.is_array() || v.size() <= count(n); }) &&
         all("prefixItems",
             [&](const Json& p) {
               for (size_t i = 0; v.is_array() && i < std::min(p.size(), v.size()); ++i) {
                 if (!IsValid(p[i], v[i])) return false;
               }
               return true;
             }) &&
         all("items",
             [&](const Json& p) {
               for (size_t i = s.contains("prefixItems") ? s["prefixItems"].size() : 0; v.is_array() && i < v.size(); ++i) {
                 if (!IsValid(p, v[i])) return false;
               }
               return true;
             }) &&
         all("required",
             [&](const Json& r) {
               return !v.is_object() ||
                      std::ranges::all_of(r, [&](const Json& name) { return v.contains(name.get<std::string>()); });
             }) &&
         all("maxProperties", [&](const Json& n) { return !v.is_object() || v.size() <= count(n); }) &&
         (!v.is_object() || std::ranges::all_of(v.items(),
                                                [&](const auto& member) {
                                                  bool listed = false, valid = true;
                                                  if (s.contains("properties") && s["properties"].contains(member.key())) {
                                                    listed = true;
                                                    valid &= IsValid(s["properties"][member.key()], member.value());
                                                  }
                                                  if (s.contains("patternProperties")) {
                                                    for (const auto& pattern : s["patternProperties"].items()) {
                                                      if (!std::regex_search(member.key(), std::regex(pattern.key()))) continue;
                                                      listed = true;
                                                      valid &= IsValid(pattern.value(), member.value());
                                                    }
                                                  }
                                                  if (!listed && s.contains("additionalProperties"))
                                                    valid &= IsValid(s["additionalProperties"], member.value());
                                                  return valid;
                                                })) &&
         all("allOf",
             [&](const Json& of) { return std::ranges::all_of(of, [&](const Json& part) { return IsValid(part, v); }); }) &&
         all("anyOf",
             [&](const Json& of) { return std::ranges::any_of(of, [&](const Json& part) { return IsValid(part, v); }); }) &&
         all("not", [&](const Json& part) { return !IsValid(part, v); }) &&
         (!s.contains("if") || (IsValid(s["if"], v) ? all("then", [&](const Json& part) { return IsValid(part, v); })
                                                    : all("else", [&](const Json& part) { return IsValid(part, v); })));
}

class RandomSchema {
 public:
  explicit RandomSchema(uint64_t seed) : state_(seed) {}
  uint64_t Below(uint64_t n) { return (state_ = SplitMix64(state_)) % n; }

  Json Value(int depth) {
    switch (Below(depth > 0 ? 8 : 5)) {
      case 0: return nullptr;
      case 1: return Below(2) == 0;
      case 2: return static_cast<int64_t>(Below(16)) - 4;
      case 3: return static_cast<double>(static_cast<int64_t>(Below(64)) - 16) / 4;
      case 4: return Text();
      case 5: {
        Json list = Json::array();
        for (uint64_t n = Below(4); list.size() < n;) list.push_back(Value(depth - 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (uint64_t n = Below(4), i = 0; i < n; ++i) object[Name()] = Value(depth - 1);
        return object;
      }
    }
  }

  Json Schema(int depth) {
    if (Below(12) == 0) return Below(4) != 0;
    Json s = Json::object();
    const char* const types[] = {"integer", "number", "string", "null", "boolean", "array", "object"};
    if (Below(2) == 0) s["type"] = types[Below(7)];
    for (uint64_t n = Below(3); n > 0; --n) {
      switch (Below(depth > 0 ? 16 : 8)) {
        case 0: s["minimum"] = static_cast<int64_t>(Below(12)) - 5; break;
        case 1: s["exclusiveMaximum"] = static_cast<double>(Below(40)) / 4; break;
        case 2: s["multipleOf"] = Below(2) == 0 ? Json(0.5) : Json(Below(4) + 1); break;
        case 3: s["minLength"] = Below(3); break;
        case 4: s["maxLength"] = Below(4); break;
        case 5: s["pattern"] = std::vector<const char*>{"^a", "b$", "[ab]c?", "^(a|bc)*$", "a|b"}[Below(5)]; break;
        case 6: s["enum"] = {Scalar(), Scalar(), Scalar()}; break;
        case 7: s["const"] = Scalar(); break;
        case 8: s["items"] = Schema(depth - 1); break;
        case 9: s["minItems"] = Below(3); break;
        case 10: s["maxItems"] = Below(4); break;
        case 11: s["prefixItems"] = {Schema(depth - 1), Schema(depth - 1)}; break;
        case 12:
          s["properties"] = {{Name(), Schema(depth - 1)}, {Name(), Schema(depth - 1)}};
          if (Below(2) == 0) s["required"] = {Name()};
          if (Below(2) == 0) s["additionalProperties"] = Schema(depth - 1);
          if (Below(4) == 0) s["maxProperties"] = Below(3);
          if (Below(4) == 0) s["patternProperties"] = {{"^a", Schema(depth - 1)}, {"b$", Schema(depth - 1)}};
          break;
        case 13: s["allOf"] = {Schema(depth - 1), Schema(depth - 1)}; break;
        case 14: s["anyOf"] = {Schema(depth - 1), Schema(depth - 1)}; break;
        default:
          if (Below(2) == 0) {
            s["not"] = Schema(depth - 1);
          } else {
            s["if"] = Schema(depth - 1);
            s["then"] = Schema(depth - 1);
            s["else"] = Schema(depth - 1);
          }
      }
    }
    return s;
  }

 private:
  std::string Text() {
    std::string text;
    for (uint64_t n = Below(5); text.size() < n;) text += "abc\"\\"[Below(5)];
    return text;
  }
  std::string Name() { return std::vector<const char*>{"a", "b", "ab", "c"}[Below(4)]; }
  Json Scalar() {
    Json value = Value(0);
    return value;
  }

  uint64_t state_;
};

// A document that the grammar has, drawn byte by byte; empty: none was found in 400 bytes.
std::string Drawn(const std::shared_ptr<Grammar>& grammar, uint64_t seed) {
  static const auto vocabulary = std::make_shared<const Vocabulary>(std::vector<std::string>{"x"}, std::vector<int32_t>());
  GrammarCursor cursor(grammar, vocabulary);
  std::string text;
  while (text.size() < 400) {
    const std::array<uint64_t, 4> first = cursor.FirstBytes();
    std::string may, common;
    for (size_t b = 0; b < 256; ++b) {
      if ((first[b / 64] >> (b % 64) & 1) == 0) continue;
      may += static_cast<char>(b);
      if (std::string_view("\"}],:abc01").find(static_cast<char>(b)) != std::string_view::npos) common += static_cast<char>(b);
    }
    seed = SplitMix64(seed);
    if (cursor.MayEnd() && (may.empty() || seed % 3 == 0)) return text;
    const std::string& from = common.empty() || seed % 16 == 0 ? may : common;
    text += from[SplitMix64(seed) % from.size()];
    EXPECT_TRUE(cursor.TakeBytes(text.substr(text.size() - 1))) << text;
  }
  return "";
}

TEST(Schema, RandomSchemasHoldWhatAValidatorSays) {
  int held = 0, valid = 0, invalid = 0, drawn = 0;
  for (uint64_t n = 0; n < 3000; ++n) {
    RandomSchema random(n * 7919 + 1);
    const Json schema = random.Schema(3);
    const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromSchema(schema.dump());
    const bool empty = !grammar.ok() && grammar.status().message() == "no answer is in it";
    if (!grammar.ok() && !empty) continue;
    ++held;
    for (int i = 0; i < 30; ++i) {
      const Json value = random.Value(2);
      const bool expected = IsValid(schema, value);
      (expected ? valid : invalid) += 1;
      const Result<bool> accepts = empty ? Result<bool>(false) : (*grammar)->AcceptsDocument(value.dump());
      ASSERT_TRUE(accepts.ok()) << accepts.status().message();
      ASSERT_EQ(*accepts, expected) << n << ": " << schema.dump() << "\n" << value.dump();
    }
    for (uint64_t i = 0; i < 5 && !empty; ++i) {
      const std::string text = Drawn(*grammar, n * 10 + i);
      static const std::regex large("[eE][+-]?\\d{3}|\\d{15}");  // valid, and beyond what doubles hold
      if (text.empty() || std::regex_search(text, large)) continue;
      ++drawn;
      const Json value = Json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema.dump() << "\n" << text;
      ASSERT_TRUE(IsValid(schema, value)) << n << ": " << schema.dump() << "\n" << text;
    }
  }
  EXPECT_GT(held, 2000);
  EXPECT_GT(valid, 5000);
  EXPECT_GT(invalid, 5000);
  EXPECT_GT(drawn, 3000);
}

}  // namespace
}  // namespace tally
