// SPDX-License-Identifier: Apache-2.0
// Random JSON Schemas of all keywords that are held, and documents that may or may not be valid under them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mix.h"

namespace tally {

class RandomSchemas {
 public:
  using Json = nlohmann::ordered_json;
  explicit RandomSchemas(uint64_t seed) : state_(seed) {}

  uint64_t Below(uint64_t n) { return (state_ = SplitMix64(state_)) % n; }
  template <class T>
  const T& Any(const std::vector<T>& of) {
    return of[Below(of.size())];
  }

  // One in four of draft 7, the others of 2020-12. $defs refer to one another and to themselves, where a member or an item lies between.
  Json Document() {
    old_ = Below(4) == 0;
    defs_ = Below(3) == 0 ? 3 : 0;
    Json schema = Json::object();
    schema["$schema"] = old_ ? "http://json-schema.org/draft-07/schema#" : "https://json-schema.org/draft/2020-12/schema";
    schema.update(Schema(3, /*below=*/false, 0, /*object=*/true));
    if (defs_ > 0) {
      Json defs = Json::object();
      for (size_t i = 0; i < defs_; ++i) {
        Json def = Schema(2, /*below=*/false, i + 1, /*object=*/true);
        if (!old_ && i == 2) def["$anchor"] = "last";
        defs["d" + std::to_string(i)] = std::move(def);
      }
      schema[Defs()] = std::move(defs);
    }
    return schema;
  }

  Json Value(int depth) {
    switch (Below(depth > 0 ? 8 : 5)) {
      case 0: return nullptr;
      case 1: return Below(2) == 0;
      case 2: return Integer();
      case 3: return Fraction();
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

  // The document with one thing in it that is otherwise.
  Json Changed(Json document) {
    Json* at = &document;
    while (at->is_structured() && !at->empty() && Below(4) != 0) {
      auto part = at->begin();
      std::advance(part, static_cast<std::ptrdiff_t>(Below(at->size())));
      at = &*part;
    }
    if (Below(6) == 0) {
      *at = Value(1);
    } else if (at->is_object() && at->size() > 1 && Below(3) == 0) {  // in another order
      Json members = Json::object();
      for (auto member = at->end(); member != at->begin();) {
        --member;
        members[member.key()] = member.value();
      }
      *at = std::move(members);
    } else if (at->is_object()) {
      Json members = Json::object();
      const uint64_t out = at->empty() || Below(2) == 0 ? at->size() : Below(at->size());
      uint64_t i = 0;
      for (const auto& member : at->items()) {
        if (i++ != out) members[member.key()] = member.value();
      }
      if (out == at->size()) members[Name()] = Value(1);
      *at = std::move(members);
    } else if (at->is_array()) {
      if (!at->empty() && Below(2) == 0) {
        at->erase(at->begin() + static_cast<std::ptrdiff_t>(Below(at->size())));
      } else {
        at->push_back(at->empty() || Below(2) == 0 ? Value(1) : Json(at->front()));
      }
    } else if (at->is_string()) {
      std::string text = at->get<std::string>();
      if (text.empty() || Below(2) == 0) {
        text += Any(kPieces);
      } else {
        text = text.substr(0, text.find_last_of(std::string(text.rbegin(), text.rend()).substr(0, 1)));
        while (!text.empty() && (static_cast<uint8_t>(text.back()) & 0x80) != 0) text.pop_back();
      }
      *at = text;
    } else if (at->is_number()) {
      const double by = Below(2) == 0 ? 1 : 0.5;
      *at = at->get<double>() + (Below(2) == 0 ? by : -by);
    } else {
      *at = Value(0);
    }
    return document;
  }

 private:
  const char* Defs() const { return old_ ? "definitions" : "$defs"; }
  Json Integer() { return static_cast<int64_t>(Below(24)) - 8; }
  Json Fraction() { return static_cast<double>(static_cast<int64_t>(Below(400)) - 100) / (Below(2) == 0 ? 4 : 100); }
  std::string Text() { return Below(3) == 0 ? Any(kSamples) : Any(kPieces) + (Below(2) == 0 ? "" : Any(kPieces)); }
  std::string Name() { return Any(std::vector<std::string>{"a", "b", "ab", "n_1", "b_s", "c", "\xc3\xa9", "q\"\\"}); }
  Json Scalar() { return Value(0); }

  // `below`: within a member or an item, where a reference may lead anywhere; else to definitions from the `first` on.
  Json Schema(int depth, bool below, size_t first, bool object = false) {
    if (!object && Below(10) == 0) return Below(5) != 0;
    Json s = Json::object();
    if (Below(2) == 0) s["type"] = Type();
    if (Below(8) == 0) s["type"] = {Type(), Type()};
    if (s.contains("type") && s["type"].is_array() && s["type"][0] == s["type"][1]) s["type"] = s["type"][0];
    for (uint64_t n = Below(depth > 0 ? 3 : 2) + (object ? 1 : 0); n > 0; --n) {
      switch (Below(depth > 0 ? 12 : 5)) {
        case 0: Numbers(s); break;
        case 1:
        case 2: Strings(s); break;
        case 3:
          if (Below(2) == 0)
            s["enum"] = {Scalar(), Value(depth > 0 ? 1 : 0), Text()};
          else
            s["const"] = Value(depth > 0 && Below(4) == 0 ? 1 : 0);
          break;
        case 4:
        case 5: Reference(s, below, first); break;
        case 6: Lists(s, depth, first); break;
        case 7:
        case 8:
        case 9: Objects(s, depth, below, first); break;
        default: Combined(s, depth, below, first);
      }
    }
    // ajv adds null to the type alone; here it is one more value, whatever else is said.
    const auto says = [&](const char* keyword) { return s.contains(keyword); };
    const auto kOthers = {"enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "$ref"};
    if (!object && says("type") && s["type"].is_string() && std::ranges::none_of(kOthers, says) && Below(6) == 0)
      s["nullable"] = true;
    return s;
  }

  std::string Type() {
    return Any(std::vector<std::string>{"integer", "number", "string", "string", "null", "boolean", "array", "object", "object"});
  }

  void Numbers(Json& s) {
    switch (Below(5)) {
      case 0: s["minimum"] = Below(2) == 0 ? Integer() : Fraction(); break;
      case 1: s["exclusiveMaximum"] = Below(2) == 0 ? Integer() : Fraction(); break;
      case 2: s["maximum"] = Below(2) == 0 ? Integer() : Fraction(); break;
      case 3: s["exclusiveMinimum"] = Below(2) == 0 ? Integer() : Fraction(); break;
      default: s["multipleOf"] = Any(std::vector<Json>{1, 2, 3, 7, 10, 0.5, 0.25, 0.01, 1.5, 0.3}); break;
    }
  }

  void Strings(Json& s) {
    switch (Below(5)) {
      case 0: s["minLength"] = Below(4); break;
      case 1: s["maxLength"] = Below(8); break;
      case 2:
        s["format"] = Any(kFormats);
        s.erase("pattern");  // beside which it may be an annotation
        break;
      default: s["pattern"] = Below(2) == 0 ? Any(kPatterns) : Pattern(2); s.erase("format");
    }
  }

  std::string Pattern(int depth) {
    std::string text;
    for (uint64_t n = Below(3) + 1; n > 0; --n) {
      std::string atom = Any(std::vector<std::string>{"a", "b", "1", "[ab]", "[^a]", ".", "\\d", "\\w", "-", "\\u00e9"});
      switch (Below(depth > 0 ? 12 : 8)) {
        case 8: text += "(?=" + Pattern(depth - 1) + ")"; continue;
        case 9: text += "(?!" + Pattern(depth - 1) + ")"; continue;
        case 10:
        case 11: atom = "(?:" + Pattern(depth - 1) + ")"; break;
        default: break;
      }
      text += atom + Any(std::vector<std::string>{"", "", "", "*", "+?", "?", "{2}", "{1,3}", "{2,}"});
    }
    switch (Below(10)) {
      case 0: return "^" + text;
      case 1: return text + "$";
      case 2: return "^" + text + "$";
      case 3: return text + "|" + Pattern(0);
      case 4: return "^" + text + "|" + Pattern(0) + "$";
      default: return text;
    }
  }

  void Reference(Json& s, bool below, size_t first) {
    if (below && Below(3) == 0) {
      s["$ref"] = "#";
    } else if (defs_ > 0 && (below || first < defs_)) {
      const size_t to = below ? Below(defs_) : first + Below(defs_ - first);
      s["$ref"] = !old_ && to == 2 ? "#last" : std::string("#/") + Defs() + "/d" + std::to_string(to);
    }
  }

  void Lists(Json& s, int depth, size_t first) {
    const auto part = [&] { return Schema(depth - 1, /*below=*/true, first); };
    switch (Below(6)) {
      case 0: s["items"] = part(); break;
      case 1:
        s[old_ ? "items" : "prefixItems"] = {part(), part()};
        if (Below(4) != 0) s[old_ ? "additionalItems" : "items"] = part();
        break;
      case 2:
        s["contains"] = part();
        if (!old_ && Below(2) == 0) s["minContains"] = Below(3);
        if (Below(3) == 0) s["items"] = part();
        break;
      case 3:
        s["items"] = {{"enum", {Text(), Scalar(), Scalar()}}};
        if (Below(2) == 0) s["items"]["not"] = {{"type", Type()}};
        s["uniqueItems"] = true;
        break;
      default: break;
    }
    if (Below(3) == 0) s["minItems"] = Below(3);
    if (Below(3) == 0) s["maxItems"] = Below(4);
  }

  void Objects(Json& s, int depth, bool below, size_t first) {
    const auto part = [&] { return Schema(depth - 1, /*below=*/true, first); };
    for (uint64_t n = Below(4); n > 0; --n) s["properties"][Name()] = part();
    if (Below(2) == 0) s["required"] = Json::array({Name()});
    if (Below(2) == 0) s["additionalProperties"] = Below(2) == 0 ? Json(false) : part();
    if (Below(6) == 0) s["maxProperties"] = Below(4);
    if (Below(6) == 0) s["minProperties"] = Below(3);
    if (Below(5) == 0) s["patternProperties"] = {{Any(kPatterns), part()}, {"^n_", part()}};
    if (Below(8) == 0)
      s["propertyNames"] = Any(std::vector<Json>{{{"pattern", Any(kPatterns)}},
                                                 {{"maxLength", Below(3) + 1}},
                                                 {{"enum", {Name(), Name()}}},
                                                 {{"not", {{"const", Name()}}}}});
    if (Below(8) == 0) s[old_ ? "dependencies" : "dependentRequired"] = {{Name(), Json::array({Name()})}};
    if (Below(8) == 0) s[old_ ? "dependencies" : "dependentSchemas"] = {{Name(), Schema(depth - 1, below, first)}};
    if (!old_ && !s.contains("additionalProperties") && Below(8) == 0) s["unevaluatedProperties"] = part();
  }

  void Combined(Json& s, int depth, bool below, size_t first) {
    const auto part = [&] { return Schema(depth - 1, below, first); };
    switch (Below(6)) {
      case 0: s["allOf"] = {part(), part()}; break;
      case 1: s["anyOf"] = {part(), part()}; break;
      case 2: s["oneOf"] = {part(), part()}; break;
      case 3: {  // told apart by a member
        Json x = {{"type", "object"}, {"properties", {{"t", {{"const", "x"}}}, {Name(), Schema(depth - 1, true, first)}}}};
        Json y = {{"type", "object"}, {"properties", {{"t", {{"const", "y"}}}, {Name(), Schema(depth - 1, true, first)}}}};
        x["required"] = y["required"] = Json::array({"t"});
        s["oneOf"] = {x, y};
        break;
      }
      case 4: s["not"] = part(); break;
      default:
        s["if"] = part();
        if (Below(4) != 0) s["then"] = part();
        if (Below(4) != 0) s["else"] = part();
    }
  }

  inline static const std::vector<std::string> kPatterns = {"^a",
                                                            "b$",
                                                            "[ab]c?",
                                                            "^(a|bc)*$",
                                                            "a|b",
                                                            "^\\d{2,4}$",
                                                            "^[^a-y]+$",
                                                            "^\\w+@\\w+\\.com$",
                                                            "^(?:x|yz)",
                                                            "\\s",
                                                            "^\\S*$",
                                                            "\\p{Lu}",
                                                            "^\\P{L}*$",
                                                            "^.{2,3}$",
                                                            "^$",
                                                            "^(?=.*\\d)[a-z\\d]{2,6}$",
                                                            "\\u00e9",
                                                            "^\\$[0-9]+(\\.[0-9]{2})?$",
                                                            "^(?!ab)[a-c]*$",
                                                            "\"|\\\\",
                                                            "^-?(0|[1-9]\\d*)$",
                                                            "^[\\w-]+$",
                                                            "^n_",
                                                            "_s$",
                                                            "(?:^|-)a(?!b)",
                                                            "^[ab]?(?=.*\\d)(?:b|(?!a)\\w)*$"};
  // Not those that ajv-formats has otherwise than the standard: a host name that ends with a dot (RFC 1123, section 2.1, has none), no
  // e-mail to a single label or from a quoted name (RFC 5321, section 4.1.2), no URI that ends with its scheme (RFC 3986, section 3.3).
  inline static const std::vector<std::string> kFormats = {"date", "date-time", "duration",     "ipv4",
                                                           "ipv6", "time",      "json-pointer", "uuid"};
  inline static const std::vector<std::string> kPieces = {
      "", "a", "b", "ab", "bc", "1", "23", " ", "\"", "\\", "\n", "\xc3\xa9", "\xf0\x9f\x98\x80", "Z", "-", "_s", "x", "$5"};
  inline static const std::vector<std::string> kSamples = {"2024-02-29",
                                                           "2023-02-29",
                                                           "2024-02-29T10:20:30Z",
                                                           "2024-02-29T10:20:30.5+01:00",
                                                           "10:20:30Z",
                                                           "25:00:00Z",
                                                           "P1Y2M3DT4H5M6S",
                                                           "P2W",
                                                           "PT",
                                                           "a.b@example.com",
                                                           "a@@b",
                                                           "example.com",
                                                           "-x.com",
                                                           "192.168.0.1",
                                                           "256.1.1.1",
                                                           "::1",
                                                           "2001:db8::ff00:42:8329",
                                                           "1::2::3",
                                                           "/a~1b/~0",
                                                           "/a~2",
                                                           "https://example.com/a?b=c#d",
                                                           "no uri",
                                                           "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
                                                           "f81d4fae7dec11d0a76500a0c91e6bf6"};

  uint64_t state_;
  bool old_ = false;
  size_t defs_ = 0;
};

}  // namespace tally
