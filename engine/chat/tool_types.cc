// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/tool_types.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/chat/json_text.h"
#include "engine/chat/limited_json.h"
#include "engine/chat/marks.h"

namespace tally {
namespace {

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
  return named == kNames.end() ? JsonTypes{0} : named->second;
}

// Of all alternatives; 0 where one is not understood.
template <typename TypesOf>
JsonTypes Together(const OrderedJson& alternatives, TypesOf types_of) {
  JsonTypes all = 0;
  for (const OrderedJson& one : alternatives) {
    const JsonTypes types = types_of(one);
    if (types == 0) return 0;
    all |= types;
  }
  return all;
}

JsonTypes Declared(const OrderedJson& schema) {
  if (!schema.is_object()) return 0;
  if (const auto type = schema.find("type"); type != schema.end())
    return type->is_array() ? Together(*type, Named) : Named(*type);
  for (const char* key : {"anyOf", "oneOf"}) {
    if (const auto found = schema.find(key); found != schema.end() && found->is_array()) return Together(*found, Declared);
  }
  return 0;
}

const OrderedJson* Member(const OrderedJson* json, const char* key) {
  if (json == nullptr || !json->is_object()) return nullptr;
  const auto found = json->find(key);
  return found == json->end() ? nullptr : &*found;
}

JsonTypes TypeOf(std::string_view json) {
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
    const OrderedJson* properties = Member(Member(function, "parameters"), "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [parameter, schema] : properties->items()) types[parameter] = Declared(schema);
  }
}

JsonTypes ToolTypes::Of(std::string_view tool, std::string_view parameter) const {
  const auto types = tools_.find(tool);
  if (types == tools_.end()) return 0;
  const auto found = types->second.find(parameter);
  return found == types->second.end() ? JsonTypes{0} : found->second;
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
  return declared == others || (TypeOf(json) & others) != 0 ? json : QuoteJson(text);
}

}  // namespace tally
