// SPDX-License-Identifier: Apache-2.0
// A JSON Schema as a document: its references, the places of its parts, what it says in other words. Internal to the schema's compiler.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace tally {

using SchemaJson = nlohmann::ordered_json;

// What schemas have that are made here, and no document: the opposites of enum, pattern and of the type integer.
inline constexpr const char* kNotEnum = "\x01not enum";
inline constexpr const char* kNotPattern = "\x01not pattern";
inline constexpr const char* kFraction =
    "\x01"
    "fraction";  // a type: the numbers that are no integers

class SchemaDocument {
 public:
  static Result<SchemaDocument> Parse(std::string_view text);

  const SchemaJson& root() const { return *root_; }
  // Drafts before 2019-09: siblings of $ref mean nothing, items may be a list, and additionalItems is what follows it.
  bool is_old() const { return is_old_; }
  // It is a $ref, beside which nothing is said.
  bool IsAlone(const SchemaJson& schema) const { return is_old_ && schema.is_object() && schema.contains("$ref"); }
  static bool HasOwnId(const SchemaJson& schema);
  // What a $ref of `from` refers to: #, #/pointer, #anchor, or the document's own $id before these. kBadInput: nothing there, or outside.
  Result<const SchemaJson*> Resolve(const SchemaJson& from) const;
  // A schema of our own, as a part of `parent`.
  const SchemaJson& Make(const SchemaJson& parent, SchemaJson schema);
  // "/properties/a"; "/" for the root. Of what Make returned: of the parent.
  std::string PlaceOf(const SchemaJson& part) const;
  Status Error(const SchemaJson& part, const std::string& what) const { return BadInput(PlaceOf(part) + ": " + what); }
  // Schemas, one of which holds if and only if `schema` does not. kBadInput: a keyword whose opposite is no schema.
  Result<std::vector<const SchemaJson*>> Negate(const SchemaJson& schema, int depth = 0);
  // No document is valid under both, as far as types, constants and members that both require say.
  bool AreApart(const SchemaJson& x, const SchemaJson& y, int depth = 0) const;

 private:
  std::deque<SchemaJson> documents_;  // the first is what was read; the others were made
  const SchemaJson* root_ = nullptr;
  std::vector<std::pair<const SchemaJson*, const SchemaJson*>> made_;  // and their parents
  std::set<const SchemaJson*> inner_;  // with a $ref, in a schema with an $id that is not the root
  bool is_old_ = false;
  // What Negate and AreApart have done, and how much Make has made: both multiply.
  mutable size_t negated_ = 0, compared_ = 0;
  size_t made_values_ = 0;
};

// Bits of types; numbers are integers and those with a fraction.
enum SchemaTypes : uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAllTypes = 127
};
// Of a name of `type`; 0: there is no such one.
uint8_t TypeNamed(std::string_view name);
uint8_t TypeOf(const SchemaJson& value);
// Equal as JSON Schema has it: 1 and 1.0 are.
bool AreEqual(const SchemaJson& x, const SchemaJson& y);

}  // namespace tally
