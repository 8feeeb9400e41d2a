// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/schema_compiler.h"

#include <algorithm>

#include "engine/grammar/schema_keywords.h"

namespace tally {
namespace {

using Json = SchemaJson;

constexpr size_t kMostSchemas = 3'000;  // conjunctions of schemas that are compiled
constexpr int kMostDepth = 100;
constexpr size_t kMostIgnoredPlaces = 100;
constexpr uint64_t kMostCount = 1'000'000;

}  // namespace

Result<SchemaParts> SchemaCompiler::Parse() {
  SchemaParts parts;
  TALLY_ASSIGN_OR_RETURN(parts.root, Compile({{&document_.root()}}, 0));
  parts.ignored.assign(ignored_.begin(), ignored_.end());
  return parts;
}

Result<Expr> SchemaCompiler::Arguments(const std::set<std::string>& texts) {
  texts_ = texts;
  static const Json kNothing = Json::object();
  return Compile({{&document_.root()}, {&kNothing, SchemaItem::kExpanded | SchemaItem::kArguments}}, 0);
}

void SchemaCompiler::Ignore(const Json& schema, const std::string& what) {
  if (ignored_.size() >= kMostIgnoredPlaces) return;  // each is searched for in the whole document
  const std::string place = document_.PlaceOf(schema);
  ignored_.insert((place == "/" ? "" : place) + "/" + what);
}

// Documents that are valid under all.
Result<Expr> SchemaCompiler::Compile(const Items& items, int depth) {
  const auto [place, is_new] = known_.try_emplace(items);
  if (!is_new) {
    Known& known = place->second;
    if (!known.open) return known.expr;
    if (known.rule == Expressions::kNone) known.rule = e_.NewRule("a schema that refers to itself");
    return known.rule;
  }
  if (known_.size() > kMostSchemas)
    return Error(*items.front().schema,
                 "with what it refers to, this comes to more than " + std::to_string(kMostSchemas) + " schemas");
  if (depth > kMostDepth) return Error(*items.front().schema, "schemas nested deeper than " + std::to_string(kMostDepth));
  Known& known = place->second;  // of a map: it stays where it is
  TALLY_ASSIGN_OR_RETURN(Expr body, Choose(items, depth));
  if (known.rule != Expressions::kNone) {
    e_.Define(known.rule, body);
    body = known.rule;
  }
  known.expr = body;
  known.open = false;
  return body;
}

Result<Expr> SchemaCompiler::Choose(const Items& items, int depth) {
  Items flat;
  bool none = false;
  for (size_t i = 0; i < items.size(); ++i) TALLY_RETURN_IF_ERROR(Flatten(items[i], flat, none, 0));
  if (none) return Expressions::kNone;
  for (size_t i = 0; i < flat.size(); ++i) {
    std::optional<Choices> choices;
    TALLY_ASSIGN_OR_RETURN(choices, ChoicesOf(flat[i]));
    if (!choices) continue;
    std::vector<Expr> parts;
    for (const std::vector<const Json*>& choice : *choices) {
      Items with = flat;
      for (const Json* schema : choice) with.push_back({schema});
      TALLY_ASSIGN_OR_RETURN(const Expr part, Compile(with, depth + 1));
      parts.push_back(part);
    }
    return e_.Or(parts);
  }
  return Values(flat, depth);
}

// Adds the schema and what it holds together with: $ref, allOf.
Status SchemaCompiler::Flatten(const SchemaItem& item, Items& flat, bool& none, int depth) {
  const Json& schema = *item.schema;
  if (schema.is_boolean()) {
    none |= !schema.get<bool>();
    return {};
  }
  if (!schema.is_object()) return Error(schema, "a schema is an object, true or false");
  if (std::ranges::find(flat, item.schema, &SchemaItem::schema) != flat.end()) return {};
  if (depth > kMostDepth) return Error(schema, "schemas nested deeper than " + std::to_string(kMostDepth));
  if ((item.done & SchemaItem::kExpanded) != 0) {
    flat.push_back(item);
    return {};
  }
  TALLY_RETURN_IF_ERROR(CheckKeywords(schema));
  if (const Json* const nullable = FindKeyword(schema, "nullable"); nullable != nullptr && *nullable == true) {
    const Json*& either = nullable_[&schema];
    if (either == nullptr) {
      Json without = schema;
      without.erase("nullable");
      either = &document_.Make(schema, {{"anyOf", Json::array({std::move(without), Json{{"type", "null"}}})}});
    }
    return Flatten({either, item.done}, flat, none, depth + 1);
  }
  const bool has_ref = schema.contains("$ref");
  if (!has_ref || !document_.is_old()) {
    flat.push_back({.schema = item.schema, .done = static_cast<uint16_t>(item.done | SchemaItem::kExpanded)});
  }
  if (has_ref) {
    TALLY_ASSIGN_OR_RETURN(const Json* target, document_.Resolve(schema));
    if (std::ranges::find(refs_, target) == refs_.end()) {
      refs_.push_back(target);
      const Status status = Flatten({target}, flat, none, depth + 1);
      refs_.pop_back();
      TALLY_RETURN_IF_ERROR(status);
    }
    if (document_.is_old()) return {};
  }
  if (const Json* const all = FindKeyword(schema, "allOf"); all != nullptr) {
    for (const Json& part : *all) TALLY_RETURN_IF_ERROR(Flatten({&part}, flat, none, depth + 1));
  }
  return {};
}

Status SchemaCompiler::CheckKeywords(const Json& schema) {
  if (!checked_.insert(&schema).second) return {};
  if (&schema != &document_.root() && SchemaDocument::HasOwnId(schema)) {
    return Error(schema, "a schema with an $id of its own within another is not supported");
  }
  const auto is_count = [](const Json& value) {
    return value.is_number_unsigned() || (value.is_number_float() && value.get<double>() >= 0 && TypeOf(value) == kIntegerType);
  };
  for (auto it = schema.begin(); it != schema.end(); ++it) {
    const std::string& key = it.key();
    const Json& value = *it;
    if (IsAnnotation(key)) continue;
    const SchemaKeyword* const keyword = KeywordNamed(key);
    if (keyword == nullptr) {
      Ignore(schema, key);
      continue;
    }
    if (keyword->held == "refused") return Error(schema, key + " is not supported");
    const auto wrong = [&](const std::string& what) { return Error(schema, key + " is not " + what); };
    if (key == "type") {
      const Json names = value.is_array() ? value : Json::array({value});
      for (const Json& name : names) {
        if (!name.is_string() || TypeNamed(name.get<std::string>()) == 0) return wrong("a type, or a list of types");
      }
    } else if (key.starts_with("min") || key.starts_with("max")) {
      const bool bound = key == "minimum" || key == "maximum";
      if (bound ? !value.is_number() : !is_count(value)) return wrong(bound ? "a number" : "a count");
      if (!bound && value.get<double>() > kMostCount) return Error(schema, key + " is above " + std::to_string(kMostCount));
    } else if (key == "exclusiveMinimum" || key == "exclusiveMaximum") {
      if (!value.is_number()) return wrong("a number");
    } else if (key == "multipleOf") {
      if (!value.is_number() || value.get<double>() <= 0) return wrong("a number above 0");
    } else if (key == "pattern" || key == "format" || key == "$ref") {
      if (!value.is_string()) return wrong("a string");
    } else if (key == "enum" || key == "allOf" || key == "anyOf" || key == "oneOf" || key == "prefixItems") {
      if (!value.is_array()) return wrong("a list");
      if (value.empty() && key != "enum") return Error(schema, key + " is empty");
    } else if (key == "required") {
      if (!value.is_array() || !std::ranges::all_of(value, [](const Json& name) { return name.is_string(); }))
        return wrong("a list of names");
    } else if (key == "properties" || key == "patternProperties" || key == "dependentSchemas" || key == "dependentRequired" ||
               key == "dependencies") {
      if (!value.is_object()) return wrong("an object");
    } else if (key == "uniqueItems" || key == "nullable") {
      if (!value.is_boolean()) return wrong("true or false");
    }
  }
  return {};
}

// Of the first keyword of the schema that leaves a choice: what is to hold with it, one or the other.
Result<std::optional<SchemaCompiler::Choices>> SchemaCompiler::ChoicesOf(SchemaItem& item) {
  const Json& schema = *item.schema;
  Choices choices;
  if (const Json* const any = FindKeyword(schema, "anyOf"); any != nullptr && (item.done & SchemaItem::kAnyOf) == 0) {
    item.done |= SchemaItem::kAnyOf;
    for (const Json& part : *any) choices.push_back({&part});
    return std::optional(std::move(choices));
  }
  if (const Json* const one = FindKeyword(schema, "oneOf"); one != nullptr && (item.done & SchemaItem::kOneOf) == 0) {
    item.done |= SchemaItem::kOneOf;
    TALLY_ASSIGN_OR_RETURN(choices, OneOf(schema, *one));
    return std::optional(std::move(choices));
  }
  const Json *const condition = FindKeyword(schema, "if"), *const yes = FindKeyword(schema, "then"),
                    *const no = FindKeyword(schema, "else");
  if (condition != nullptr && (yes != nullptr || no != nullptr) && (item.done & SchemaItem::kIf) == 0) {
    item.done |= SchemaItem::kIf;
    TALLY_ASSIGN_OR_RETURN(const std::vector<const Json*> opposite, document_.Negate(*condition));
    choices.push_back({condition});
    if (yes != nullptr) choices.back().push_back(yes);
    for (const Json* part : opposite) {
      choices.push_back({part});
      if (no != nullptr) choices.back().push_back(no);
    }
    return std::optional(std::move(choices));
  }
  if (const Json* const opposite = FindKeyword(schema, "not"); opposite != nullptr && (item.done & SchemaItem::kNot) == 0) {
    item.done |= SchemaItem::kNot;
    TALLY_ASSIGN_OR_RETURN(const std::vector<const Json*> parts, document_.Negate(*opposite));
    for (const Json* part : parts) choices.push_back({part});
    return std::optional(std::move(choices));
  }
  if ((item.done & SchemaItem::kDependent) == 0) {
    item.done |= SchemaItem::kDependent;
    std::vector<std::pair<std::string, Json>> dependent;  // a member, and what holds if it is there
    for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const Json* const members = FindKeyword(schema, keyword);
      if (members == nullptr) continue;
      for (auto it = members->begin(); it != members->end(); ++it)
        dependent.emplace_back(it.key(), it->is_array() ? Json{{"required", *it}} : *it);
    }
    if (!dependent.empty()) {  // each: absent, or what depends on it
      std::vector<const Json*> all;
      for (const auto& [name, then] : dependent) {
        const Json absent = {
            {"anyOf",
             Json::array({Json{{"properties", {{name, false}}}},
                          Json{{"type", "object"}, {"required", Json::array({name})}, {"allOf", Json::array({then})}}})}};
        all.push_back(&document_.Make(schema, absent));
      }
      choices.push_back(std::move(all));
      return std::optional(std::move(choices));
    }
  }
  return std::optional<Choices>();
}

Result<SchemaCompiler::Choices> SchemaCompiler::OneOf(const Json& schema, const Json& one) {
  Choices choices;
  for (const Json& part : one) choices.push_back({&part});
  for (size_t i = 0; i < one.size(); ++i) {
    for (size_t k = i + 1; k < one.size(); ++k) {
      if (document_.AreApart(one[i], one[k])) continue;
      const Result<std::vector<const Json*>> opposite = document_.Negate(one[i]);
      const Result<std::vector<const Json*>> other = document_.Negate(one[k]);
      if (!opposite.ok() || !other.ok()) {
        return Error(schema, "oneOf: it is not seen that branches " + std::to_string(i) + " and " + std::to_string(k) +
                                 " are apart; anyOf may be meant");
      }
      const auto any_of = [&](const std::vector<const Json*>& parts) {
        Json all = Json::array();
        for (const Json* part : parts) all.push_back(*part);
        return &document_.Make(schema, all.empty() ? Json(false) : Json{{"anyOf", all}});
      };
      choices[i].push_back(any_of(*other));
      choices[k].push_back(any_of(*opposite));
    }
  }
  return choices;
}

// Valid under all; any value if there are none.
Result<Expr> SchemaCompiler::All(const Items& items, int depth) {
  if (items.empty()) return Any();
  Items distinct;
  for (const SchemaItem& item : items) {
    if (std::ranges::find(distinct, item) == distinct.end()) distinct.push_back(item);
  }
  return Compile(distinct, depth + 1);
}

}  // namespace tally
