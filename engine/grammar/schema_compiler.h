// SPDX-License-Identifier: Apache-2.0
// JSON Schema into expressions: a conjunction of schemas at a time. Internal to schema.h.
//
// Schemas that hold together ($ref, allOf, all that say something of one member) are compiled as one list, so that nothing need be
// intersected afterwards. Choices (anyOf, oneOf, if, not, dependent members) are made one after the other, each in a list of its own.
// A list that is met again within itself becomes a rule.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/json_numbers.h"
#include "engine/grammar/json_writer.h"
#include "engine/grammar/schema.h"
#include "engine/grammar/schema_document.h"

namespace tally {

// Null: the schema does not have it.
inline const SchemaJson* FindKeyword(const SchemaJson& schema, const char* keyword) {
  const auto place = schema.find(keyword);
  return place == schema.end() ? nullptr : &*place;
}

// Of a keyword that is a count; SchemaCompiler has checked that it is one.
inline uint64_t CountOf(const SchemaJson& value) { return static_cast<uint64_t>(value.get<double>()); }

// A schema that is to hold, and which of its choices were made.
struct SchemaItem {
  enum Done : uint16_t {
    kAnyOf = 1,
    kOneOf = 2,
    kIf = 4,
    kNot = 8,
    kDependent = 16,
    kExpanded = 32,   // what it refers to is listed too
    kArguments = 64,  // of the list that it is in: the arguments of a call, in their notation
    kBare = 128,      // of the list that it is in: one argument, its strings bare text
    kText = 256,      // and text whatever it spells: CallTool::texts
  };
  const SchemaJson* schema = nullptr;
  uint16_t done = 0;
  friend auto operator<=>(const SchemaItem&, const SchemaItem&) = default;
};

class SchemaCompiler {
 public:
  using Json = SchemaJson;
  using Items = std::vector<SchemaItem>;

  // `notation`: of arguments; null: JSON.
  SchemaCompiler(Expressions& e, SchemaDocument& document, const SchemaOptions& options, const CallNotation* notation = nullptr)
      : e_(e), document_(document), writer_(e, options.space, notation) {}
  Result<SchemaParts> Parse();
  // `texts`: CallTool::texts.
  Result<Expr> Arguments(const std::set<std::string>& texts);
  // Any value; any list, any object.
  Expr Any();
  Expr AnyArray() { return Any(), any_array_; }
  Expr AnyObject() { return Any(), any_object_; }

 private:
  // One of these holds, with all that stands in it.
  using Choices = std::vector<std::vector<const Json*>>;
  struct Known {
    Expr expr = Expressions::kNone, rule = Expressions::kNone;
    bool open = true;  // being compiled
  };
  struct Listed {
    Expr expr = Expressions::kNone;  // name and value
    bool required = false;
  };

  Status Error(const Json& schema, const std::string& what) const { return document_.Error(schema, what); }
  void Ignore(const Json& schema, const std::string& what);

  // schema_compiler.cc
  Result<Expr> Compile(const Items& items, int depth);  // documents that are valid under all
  Result<Expr> All(const Items& items, int depth);      // the same; any, if there are none
  Result<Expr> Choose(const Items& items, int depth);
  Status Flatten(const SchemaItem& item, Items& flat, bool& none, int depth);
  Status CheckKeywords(const Json& schema);
  Result<std::optional<Choices>> ChoicesOf(SchemaItem& item);
  Result<Choices> OneOf(const Json& schema, const Json& one);

  // schema_values.cc: of schemas whose choices are made
  Result<Expr> Values(const Items& items, int depth);
  Result<Expr> Numbers(const Items& items, uint8_t types, const std::vector<const Json*>& except);
  Result<Expr> Strings(const Items& items, const std::vector<const Json*>& except, StringStyle style);
  Expr BareText(Expr text, bool is_text);
  bool Fits(const Json& schema, std::string_view format);
  Result<Expr> Arrays(const Items& items, int depth);
  Result<Expr> Unique(const Items& items, uint64_t least, uint64_t most);
  const Json* Prefix(const Json& schema) const;
  const Json* Rest(const Json& schema) const;

  // schema_objects.cc
  Result<Expr> Objects(const Items& items, int depth);
  Result<bool> Matches(const Json& schema, const std::string& pattern, const std::string& name);
  Result<const Json*> Additional(const Json& schema, bool combined) const;
  Result<Expr> Assembled(const Json& schema, const std::vector<Listed>& members, Expr others, uint64_t least, uint64_t most,
                         const ObjectMarks& marks);
  const Json& StringSchema();

  Expressions& e_;
  SchemaDocument& document_;
  JsonWriter writer_;
  std::set<std::string> texts_;
  std::map<Items, Known> known_;
  std::map<const Json*, const Json*> nullable_;  // what a schema with OpenAPI's nullable says
  std::vector<const Json*> refs_;                // that are being followed
  std::set<const Json*> checked_;
  std::map<const Json*, bool> fits_;  // of schemas with a pattern and a format
  std::set<std::string> ignored_;
  std::map<std::string, std::pair<std::unique_ptr<Expressions>, Expr>> matchers_;  // by pattern
  const Json* string_schema_ = nullptr;
  Expr any_ = Expressions::kNone, any_object_ = Expressions::kNone, any_array_ = Expressions::kNone;
};

}  // namespace tally
