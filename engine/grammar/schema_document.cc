// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/schema_document.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/json.h"
#include "engine/grammar/json_numbers.h"

namespace tally {
namespace {

using Json = SchemaJson;

constexpr size_t kMostText = size_t{1} << 20;
constexpr int kMostNegations = 64;
constexpr size_t kMostNegated = 10'000, kMostCompared = 2'000'000, kMostMade = 1'000'000;
constexpr const char* kTypeNames[] = {"null", "boolean", "integer", "string", "array", "object"};
constexpr uint8_t kTypeBits[] = {kNullType, kBooleanType, kIntegerType, kStringType, kArrayType, kObjectType};

const Json* Find(const Json& schema, const char* keyword) {
  if (!schema.is_object()) return nullptr;
  const auto place = schema.find(keyword);
  return place == schema.end() ? nullptr : &*place;
}

std::string Decoded(std::string_view pointer) {  // %25 -> %
  std::string text;
  for (size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '%' && i + 2 < pointer.size()) {
      text += static_cast<char>(std::strtol(std::string(pointer.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      text += pointer[i];
    }
  }
  return text;
}

std::string Escaped(std::string name) {  // of a pointer
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '~')
      name.replace(i, 1, "~0"), ++i;
    else if (name[i] == '/')
      name.replace(i, 1, "~1"), ++i;
  }
  return name;
}

bool FindPath(const Json& from, const Json* to, std::string& path) {
  if (&from == to) return true;
  if (!from.is_structured()) return false;
  size_t index = 0;
  for (auto it = from.begin(); it != from.end(); ++it, ++index) {
    const size_t before = path.size();
    path += "/" + (from.is_object() ? Escaped(it.key()) : std::to_string(index));
    if (FindPath(*it, to, path)) return true;
    path.resize(before);
  }
  return false;
}

// What is in `from`, and whether it is schemas by their names. Not in enum and const, whose values are no schemas.
// `schemas`: `from` is that.
template <class Visit>
void EachPart(const Json& from, bool schemas, const Visit& visit) {
  for (auto it = from.begin(); it != from.end(); ++it) {
    bool of_schemas = false;
    if (from.is_object() && !schemas) {
      if (it.key() == "enum" || it.key() == "const") continue;
      for (const char* keyword : {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
        of_schemas |= it.key() == keyword;
    }
    if (it->is_structured()) visit(*it, of_schemas);
  }
}

size_t ValuesIn(const Json& from) {
  size_t n = 1;
  if (from.is_structured()) {
    for (const Json& part : from) n += ValuesIn(part);
  }
  return n;
}

const Json* FindAnchor(const Json& from, const std::string& anchor, bool is_old, bool schemas = false) {
  if (from.is_object() && !schemas) {
    const auto is_it = [&](const char* keyword, const std::string& value) {
      const Json* const name = Find(from, keyword);
      return name != nullptr && name->is_string() && name->get<std::string>() == value;
    };
    // To a $ref, a $dynamicAnchor is an anchor (2020-12, Core, section 8.2.2).
    if (is_old ? is_it("$id", "#" + anchor) : is_it("$anchor", anchor) || is_it("$dynamicAnchor", anchor)) return &from;
  }
  const Json* found = nullptr;
  EachPart(from, schemas, [&](const Json& part, bool of_schemas) {
    if (found == nullptr) found = FindAnchor(part, anchor, is_old, of_schemas);
  });
  return found;
}

// Adds the schemas with a $ref in what has an $id of its own, where it says what # is.
void FindInner(const Json& from, bool schemas, bool inner, std::set<const Json*>& found) {
  if (from.is_object() && !schemas && inner && from.contains("$ref")) found.insert(&from);
  EachPart(from, schemas, [&](const Json& part, bool of_schemas) {
    FindInner(part, of_schemas, inner || (!of_schemas && SchemaDocument::HasOwnId(part)), found);
  });
}

uint8_t TypesOf(const Json& schema) {
  uint8_t types = kAllTypes;
  if (const Json* const type = Find(schema, "type"); type != nullptr) {
    types = 0;
    if (type->is_string()) types = TypeNamed(type->get<std::string>());
    for (const Json& name : type->is_array() ? *type : Json::array())
      types |= name.is_string() ? TypeNamed(name.get<std::string>()) : uint8_t{0};
  }
  const auto limit = [&](const Json& values) {
    uint8_t of = 0;
    for (const Json& value : values) of |= TypeOf(value);
    types &= of;
  };
  if (const Json* const values = Find(schema, "enum"); values != nullptr && values->is_array()) limit(*values);
  if (const Json* const value = Find(schema, "const"); value != nullptr) types &= TypeOf(*value);
  return types;
}

// What enum and const leave; none: anything.
std::optional<std::vector<const Json*>> ValuesOf(const Json& schema) {
  if (const Json* const value = Find(schema, "const"); value != nullptr) return std::vector<const Json*>{value};
  if (const Json* const values = Find(schema, "enum"); values != nullptr && values->is_array()) {
    std::vector<const Json*> all;
    for (const Json& value : *values) all.push_back(&value);
    return all;
  }
  return std::nullopt;
}

bool Requires(const Json& schema, const std::string& name) {
  const Json* const required = Find(schema, "required");
  return required != nullptr && required->is_array() && std::ranges::find(*required, Json(name)) != required->end();
}

}  // namespace

uint8_t TypeNamed(std::string_view name) {
  if (name == "number") return kIntegerType | kFractionType;
  if (name == kFraction) return kFractionType;
  const auto* const place = std::ranges::find(kTypeNames, name);
  return place == std::end(kTypeNames) ? 0 : kTypeBits[place - std::begin(kTypeNames)];
}

uint8_t TypeOf(const Json& value) {
  if (value.is_null()) return kNullType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_string()) return kStringType;
  if (value.is_array()) return kArrayType;
  if (value.is_object()) return kObjectType;
  if (value.is_number_float()) return std::trunc(value.get<double>()) == value.get<double>() ? kIntegerType : kFractionType;
  return kIntegerType;
}

bool AreEqual(const Json& x, const Json& y) {
  if (x.is_number() && y.is_number()) {
    const auto a = Decimal::Parse(x.dump()), b = Decimal::Parse(y.dump());
    return a && b ? *a == *b : x == y;
  }
  if (x.type() != y.type() || x.size() != y.size()) return false;
  if (x.is_array()) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (!AreEqual(x[i], y[i])) return false;
    }
    return true;
  }
  if (x.is_object()) {
    for (auto it = x.begin(); it != x.end(); ++it) {
      const auto other = y.find(it.key());
      if (other == y.end() || !AreEqual(*it, *other)) return false;
    }
    return true;
  }
  return x == y;
}

Result<SchemaDocument> SchemaDocument::Parse(std::string_view text) {
  if (text.size() > kMostText) return BadInput("schema: more than 1 MiB of text");
  TALLY_ASSIGN_OR_RETURN(Json json, ReadJson<Json>("schema", std::string(text), kOrderedJsonLimits));
  if (!json.is_object() && !json.is_boolean()) return BadInput("/: a schema is an object, true or false");
  SchemaDocument document;
  document.documents_.push_back(std::move(json));
  document.root_ = &document.documents_.front();
  if (const Json* const draft = Find(document.root(), "$schema"); draft != nullptr && draft->is_string()) {
    const std::string name = draft->get<std::string>();
    for (const char* old : {"draft-04", "draft-06", "draft-07"}) document.is_old_ |= name.find(old) != std::string::npos;
  }
  FindInner(document.root(), false, false, document.inner_);
  return document;
}

bool SchemaDocument::HasOwnId(const Json& schema) {
  const Json* const id = Find(schema, "$id");
  return id != nullptr && id->is_string() && !id->get<std::string>().starts_with('#');
}

Result<const Json*> SchemaDocument::Resolve(const Json& from) const {
  if (inner_.contains(&from)) return Error(from, "$ref within a schema with an $id of its own is not supported");
  const Json& value = from.at("$ref");
  if (!value.is_string()) return Error(from, "$ref is no string");
  std::string ref = value.get<std::string>();
  if (const Json* const id = Find(root(), "$id"); id != nullptr && id->is_string()) {
    std::string base = id->get<std::string>();
    base = base.substr(0, base.find('#'));
    if (!base.empty() && ref.rfind(base, 0) == 0 && (ref.size() == base.size() || ref[base.size()] == '#'))
      ref.erase(0, base.size());
  }
  if (ref.empty() || ref == "#") return root_;
  if (ref[0] != '#') return Error(from, "$ref " + ref + " is outside this document");
  const std::string fragment = Decoded(std::string_view(ref).substr(1));
  const Json* found = nullptr;
  if (fragment[0] == '/') {
    found = root_;
    std::string_view rest = fragment;
    while (found != nullptr && !rest.empty()) {
      rest.remove_prefix(1);
      std::string name(rest.substr(0, rest.find('/')));
      rest.remove_prefix(name.size());
      for (size_t i = 0; (i = name.find('~', i)) != std::string::npos; ++i) {
        if (i + 1 < name.size()) name.replace(i, 2, name[i + 1] == '1' ? "/" : "~");
      }
      if (found->is_object()) {
        found = Find(*found, name.c_str());
      } else if (found->is_array() && !name.empty() && name.size() < 7 &&
                 name.find_first_not_of("0123456789") == std::string::npos) {
        const size_t index = static_cast<size_t>(std::stoul(name));
        found = index < found->size() ? &(*found)[index] : nullptr;
      } else {
        found = nullptr;
      }
    }
  } else {
    found = FindAnchor(root(), fragment, is_old_);
  }
  if (found == nullptr) return Error(from, "$ref " + ref + " refers to nothing in this document");
  if (!found->is_object() && !found->is_boolean()) return Error(from, "$ref " + ref + " refers to what is no schema");
  return found;
}

const Json& SchemaDocument::Make(const Json& parent, Json schema) {
  documents_.push_back(std::move(schema));
  made_values_ += ValuesIn(documents_.back());
  made_.emplace_back(&documents_.back(), &parent);
  return documents_.back();
}

std::string SchemaDocument::PlaceOf(const Json& part) const {
  const Json* of = &part;
  for (;;) {
    std::string path;
    if (FindPath(root(), of, path)) return path.empty() ? "/" : path;
    const Json* parent = nullptr;
    for (const auto& [made, from] : made_) {
      std::string ignored;
      if (FindPath(*made, of, ignored)) parent = from;
    }
    if (parent == nullptr) return "/";
    of = parent;
  }
}

Result<std::vector<const Json*>> SchemaDocument::Negate(const Json& schema, int depth) {
  if (depth > kMostNegations) return Error(schema, "not of a schema that is nested too deeply");
  if (++negated_ > kMostNegated || made_values_ > kMostMade) return Error(schema, "not of a schema that comes to too many parts");
  std::vector<const Json*> any;
  const auto add = [&](Json made) { any.push_back(&Make(schema, std::move(made))); };
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) add(true);
    return any;
  }
  if (!schema.is_object()) return Error(schema, "a schema is an object, true or false");
  if (IsAlone(schema)) {
    TALLY_ASSIGN_OR_RETURN(const Json* target, Resolve(schema));
    return Negate(*target, depth + 1);
  }
  static const std::set<std::string> kSilent = {"title",      "description", "default",   "examples", "$comment",
                                                "deprecated", "readOnly",    "writeOnly", "$schema",  "$id",
                                                "$defs",      "definitions", "$anchor"};
  for (auto it = schema.begin(); it != schema.end(); ++it) {
    const std::string& key = it.key();
    const Json& value = *it;
    if (kSilent.contains(key)) continue;
    if (key == "type") {
      uint8_t types = TypesOf(Json{{"type", value}});
      Json others = Json::array();
      for (size_t i = 0; i < std::size(kTypeNames); ++i) {
        if ((types & kTypeBits[i]) == 0) others.push_back(kTypeNames[i]);
      }
      if ((types & kFractionType) == 0) others.push_back(kFraction);
      if (!others.empty()) add({{"type", others}});
    } else if (key == "const" || key == "enum") {
      add({{kNotEnum, key == "const" ? Json::array({value}) : value}});
    } else if (key == "pattern") {
      add({{"type", "string"}, {kNotPattern, value}});
    } else if (key == kNotPattern) {
      add({{"type", "string"}, {"pattern", value}});
    } else if (key == kNotEnum) {
      add({{"enum", value}});
    } else if (key == "required" && value.is_array()) {
      for (const Json& name : value) {
        if (name.is_string()) add({{"type", "object"}, {"properties", {{name.get<std::string>(), false}}}});
      }
    } else if (key == "properties" && value.is_object()) {
      for (auto member = value.begin(); member != value.end(); ++member) {
        TALLY_ASSIGN_OR_RETURN(const std::vector<const Json*> not_it, Negate(*member, depth + 1));
        for (const Json* part : not_it) {
          add({{"type", "object"}, {"required", Json::array({member.key()})}, {"properties", {{member.key(), *part}}}});
        }
      }
    } else if (key == "minimum") {
      add({{"type", "number"}, {"exclusiveMaximum", value}});
    } else if (key == "maximum") {
      add({{"type", "number"}, {"exclusiveMinimum", value}});
    } else if (key == "exclusiveMinimum" && value.is_number()) {
      add({{"type", "number"}, {"maximum", value}});
    } else if (key == "exclusiveMaximum" && value.is_number()) {
      add({{"type", "number"}, {"minimum", value}});
    } else if ((key == "minLength" || key == "minItems") && value.is_number_unsigned()) {
      const bool string = key == "minLength";
      if (value.get<uint64_t>() > 0)
        add({{"type", string ? "string" : "array"}, {string ? "maxLength" : "maxItems", value.get<uint64_t>() - 1}});
    } else if ((key == "maxLength" || key == "maxItems") && value.is_number_unsigned()) {
      const bool string = key == "maxLength";
      add({{"type", string ? "string" : "array"}, {string ? "minLength" : "minItems", value.get<uint64_t>() + 1}});
    } else if (key == "not") {
      any.push_back(&value);
    } else if (key == "$ref") {
      TALLY_ASSIGN_OR_RETURN(const Json* target, Resolve(schema));
      TALLY_ASSIGN_OR_RETURN(const std::vector<const Json*> parts, Negate(*target, depth + 1));
      any.insert(any.end(), parts.begin(), parts.end());
    } else if (key == "allOf" && value.is_array()) {
      for (const Json& part : value) {
        TALLY_ASSIGN_OR_RETURN(const std::vector<const Json*> parts, Negate(part, depth + 1));
        any.insert(any.end(), parts.begin(), parts.end());
      }
    } else if (key == "anyOf" && value.is_array()) {
      Json all = Json::array();
      for (const Json& part : value) {
        TALLY_ASSIGN_OR_RETURN(const std::vector<const Json*> parts, Negate(part, depth + 1));
        Json one = Json::array();
        for (const Json* choice : parts) one.push_back(*choice);
        all.push_back(one.empty() ? Json(false) : Json{{"anyOf", one}});
      }
      if (all.empty()) continue;
      add({{"allOf", all}});
    } else {
      return Error(schema, "not of " + key + " is not supported");
    }
  }
  return any;
}

bool SchemaDocument::AreApart(const Json& x, const Json& y, int depth) const {
  const auto may_be_null = [](const Json& schema) { return schema.is_object() && schema.value("nullable", Json()) == true; };
  if (may_be_null(x) || may_be_null(y)) return false;
  if (depth > 8 || ++compared_ > kMostCompared) return false;
  if (x == Json(false) || y == Json(false)) return true;
  if (!x.is_object() || !y.is_object()) return false;
  for (const bool turned : {false, true}) {
    if (const Json& a = turned ? y : x; IsAlone(a)) {
      const Result<const Json*> target = Resolve(a);
      return target.ok() && AreApart(**target, turned ? x : y, depth + 1);
    }
  }
  for (const bool turned : {false, true}) {
    const Json *const a = turned ? &y : &x, *const b = turned ? &x : &y;
    if (a->contains("$ref")) {
      const Result<const Json*> target = Resolve(*a);
      if (target.ok() && AreApart(**target, *b, depth + 1)) return true;
    }
    if (const Json* const all = Find(*a, "allOf"); all != nullptr && all->is_array()) {
      if (std::ranges::any_of(*all, [&](const Json& part) { return AreApart(part, *b, depth + 1); })) return true;
    }
    for (const char* choice : {"anyOf", "oneOf"}) {
      const Json* const any = Find(*a, choice);
      if (any != nullptr && any->is_array() && !any->empty() &&
          std::ranges::all_of(*any, [&](const Json& part) { return AreApart(part, *b, depth + 1); })) {
        return true;
      }
    }
    // A member that one requires and the other forbids.
    const Json* const closed = Find(*b, "additionalProperties");
    const Json* const required = Find(*a, "required");
    if (required != nullptr && required->is_array() && TypesOf(*a) == kObjectType && TypesOf(*b) == kObjectType) {
      const Json* const properties = Find(*b, "properties");
      for (const Json& name : *required) {
        if (!name.is_string()) continue;
        const Json* const member = properties == nullptr ? nullptr : Find(*properties, name.get<std::string>().c_str());
        if (member != nullptr && *member == Json(false)) return true;
        if (member == nullptr && closed != nullptr && *closed == Json(false) && !b->contains("patternProperties")) return true;
      }
    }
  }
  const uint8_t types = TypesOf(x) & TypesOf(y);
  if (types == 0) return true;
  const auto xs = ValuesOf(x), ys = ValuesOf(y);
  if (xs && ys) {
    return std::ranges::none_of(
        *xs, [&](const Json* a) { return std::ranges::any_of(*ys, [&](const Json* b) { return AreEqual(*a, *b); }); });
  }
  if (types == kObjectType) {
    const Json *const a = Find(x, "properties"), *const b = Find(y, "properties");
    if (a != nullptr && b != nullptr && a->is_object() && b->is_object()) {
      for (auto member = a->begin(); member != a->end(); ++member) {
        const Json* const other = Find(*b, member.key().c_str());
        if (other != nullptr && (Requires(x, member.key()) || Requires(y, member.key())) && AreApart(*member, *other, depth + 1))
          return true;
      }
    }
  }
  return false;
}

}  // namespace tally
