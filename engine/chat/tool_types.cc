// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/tool_types.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "engine/chat/json_text.h"
#include "engine/chat/limited_json.h"
#include "engine/chat/marks.h"

namespace tally {
namespace {

constexpr JsonTypes kAnyType = kJsonString | kJsonNumber | kJsonBoolean | kJsonObject | kJsonArray | kJsonNull;

JsonTypes Named(const OrderedJson& name) {
  static constexpr std::array<std::pair<std::string_view, JsonTypes>, 7> kNames = {{{"string", kJsonString},
                                                                                    {"integer", kJsonNumber},
                                                                                    {"number", kJsonNumber},
                                                                                    {"boolean", kJsonBoolean},
                                                                                    {"object", kJsonObject},
                                                                                    {"array", kJsonArray},
                                                                                    {"null", kJsonNull}}};
  const auto* const named =
      std::ranges::find_if(kNames, [&](const auto& type) { return name.is_string() && name == type.first; });
  return named == kNames.end() ? kAnyType : named->second;
}

JsonTypes ValueType(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::string: return kJsonString;
    case OrderedJson::value_t::object: return kJsonObject;
    case OrderedJson::value_t::array: return kJsonArray;
    case OrderedJson::value_t::boolean: return kJsonBoolean;
    case OrderedJson::value_t::null: return kJsonNull;
    default: return kJsonNumber;
  }
}

const OrderedJson* Member(const OrderedJson* json, std::string_view key) {
  if (json == nullptr || !json->is_object()) return nullptr;
  const auto found = json->find(key);
  return found == json->end() ? nullptr : &*found;
}

// The schemas of a list; none where it is no list.
std::span<const OrderedJson> List(const OrderedJson* json) {
  const auto* const list = json == nullptr ? nullptr : json->get_ptr<const OrderedJson::array_t*>();
  return list == nullptr ? std::span<const OrderedJson>() : std::span<const OrderedJson>(*list);
}

// The types that schemas allow, as far as they say (https://json-schema.org/draft/2020-12/json-schema-core). Schemas refer to one
// another within `root`, in circles too: a schema is read up to a depth, and all of a tool's up to a number.
class SchemaReader {
 public:
  explicit SchemaReader(const OrderedJson* root) : root_(root) {}

  // kAnyType where nothing is known.
  JsonTypes Types(const OrderedJson& schema, int depth = 0) {
    if (!schema.is_object() || !Enter(depth)) return kAnyType;
    JsonTypes types = kAnyType;
    if (const OrderedJson* type = Member(&schema, "type")) {
      types = type->is_array() ? Either(List(type), Named) : Named(*type);
    } else if (Member(&schema, "properties") != nullptr) {
      types = kJsonObject;
    } else if (Member(&schema, "items") != nullptr) {
      types = kJsonArray;
    }
    const auto within = [&](const OrderedJson& other) { return Types(other, depth + 1); };
    if (const OrderedJson* value = Member(&schema, "const")) types &= ValueType(*value);
    if (const OrderedJson* values = Member(&schema, "enum")) {
      types &= Either(List(values), [](const OrderedJson& value) { return ValueType(value); });
    }
    for (const char* key : {"anyOf", "oneOf"}) types &= Either(List(Member(&schema, key)), within);
    for (const OrderedJson& one : List(Member(&schema, "allOf"))) types &= within(one);
    if (const OrderedJson* other = Referred(schema)) types &= within(*other);
    if (const OrderedJson* null = Member(&schema, "nullable"); null != nullptr && *null == true) types |= kJsonNull;  // OpenAPI's
    return types == 0 ? kAnyType : types;
  }

  // Of an object's members, found through allOf, anyOf, oneOf and $ref too. A member of several schemas may have any of their types.
  void AddMembers(const OrderedJson& schema, std::map<std::string, JsonTypes, std::less<>>* types, int depth = 0) {
    if (!schema.is_object() || !Enter(depth)) return;
    if (const OrderedJson* members = Member(&schema, "properties"); members != nullptr && members->is_object()) {
      for (const auto& [name, member] : members->items()) (*types)[name] |= Types(member);
    }
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
      for (const OrderedJson& one : List(Member(&schema, key))) AddMembers(one, types, depth + 1);
    }
    if (const OrderedJson* other = Referred(schema)) AddMembers(*other, types, depth + 1);
  }

 private:
  static constexpr int kMaxDepth = 32, kMaxSchemas = 10000;

  bool Enter(int depth) { return depth <= kMaxDepth && ++read_ <= kMaxSchemas; }

  // Any of them; kAnyType where there are none.
  template <typename TypesOf>
  static JsonTypes Either(std::span<const OrderedJson> alternatives, TypesOf types_of) {
    JsonTypes all = 0;
    for (const OrderedJson& one : alternatives) all |= types_of(one);
    return all == 0 ? kAnyType : all;
  }

  // What {"$ref": "#/$defs/NAME"} names; null: there is no such thing, or no reference.
  const OrderedJson* Referred(const OrderedJson& schema) const {
    const OrderedJson* const reference = Member(&schema, "$ref");
    const auto* const text = reference == nullptr ? nullptr : reference->get_ptr<const std::string*>();
    if (text == nullptr || !text->starts_with('#')) return nullptr;
    const OrderedJson* found = root_;
    std::string_view rest = std::string_view(*text).substr(1);
    while (found != nullptr && rest.starts_with('/')) {
      rest.remove_prefix(1);
      const std::string_view escaped = rest.substr(0, rest.find('/'));
      rest.remove_prefix(escaped.size());
      std::string name;
      for (size_t i = 0; i < escaped.size(); ++i) {
        const bool escape = escaped.substr(i).starts_with("~0") || escaped.substr(i).starts_with("~1");
        name += escape ? (escaped[++i] == '0' ? '~' : '/') : escaped[i];
      }
      found = Member(found, name);
    }
    return rest.empty() ? found : nullptr;
  }

  const OrderedJson* root_;
  int read_ = 0;
};

JsonTypes SpelledType(std::string_view json) {
  switch (json.front()) {
    case '"': return kJsonString;
    case '{': return kJsonObject;
    case '[': return kJsonArray;
    case 't':
    case 'f': return kJsonBoolean;
    case 'n': return kJsonNull;
    default: return kJsonNumber;
  }
}

}  // namespace

ToolTypes::ToolTypes(const std::vector<std::string>& tools) {
  for (const std::string& text : tools) {
    const Result<OrderedJson> tool = ParseLimitedJson(text, "tool");
    if (!tool.ok()) continue;  // Render refuses it
    const OrderedJson *function = Member(&*tool, "function"), *name = Member(function, "name");
    if (name == nullptr || !name->is_string()) continue;
    auto& types = tools_[name->get<std::string>()];
    const OrderedJson* const parameters = Member(function, "parameters");
    if (parameters != nullptr) SchemaReader(parameters).AddMembers(*parameters, &types);
  }
}

JsonTypes ToolTypes::Of(std::string_view tool, std::string_view parameter) const {
  const auto types = tools_.find(tool);
  if (types == tools_.end()) return 0;
  const auto found = types->second.find(parameter);
  return found == types->second.end() || found->second == kAnyType ? JsonTypes{0} : found->second;
}

bool ToolTypes::Has(std::string_view tool, std::string_view parameter) const {
  const auto types = tools_.find(tool);
  return types != tools_.end() && types->second.contains(parameter);
}

bool ToolTypes::AnyBeginsWith(std::string_view text) const {
  const auto first = tools_.lower_bound(text);
  return first != tools_.end() && first->first.starts_with(text);
}

std::string BareTextToJson(std::string_view text, JsonTypes declared) {
  std::string json(Trimmed(text));
  if (json == "True") json = "true";
  if (json == "False") json = "false";
  if (json == "None") json = "null";
  const JsonTypes others = declared & ~kJsonString;
  const bool bracketed =
      (json.starts_with('{') && (declared & kJsonObject) != 0) || (json.starts_with('[') && (declared & kJsonArray) != 0);
  if (bracketed && declared == others && !IsJson(json)) json = LooseToJson(json, {});
  if (!IsJson(json)) return QuoteJson(text);
  return declared == others || (SpelledType(json) & others) != 0 ? json : QuoteJson(text);
}

}  // namespace tally
