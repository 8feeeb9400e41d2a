// SPDX-License-Identifier: Apache-2.0
// Checks JSON documents against a JSON Schema (draft 7, https://json-schema.org/draft-07): the keywords that docs/*.schema.json use.
// A schema with any other keyword is an error, so that nothing in it goes unread.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace tally {

class JsonSchema {
 public:
  using Json = nlohmann::json;

  // Throws std::invalid_argument that names the place where the schema has a keyword or a value that is not known here.
  explicit JsonSchema(Json schema) : root_(std::move(schema)) { Read(root_, "#"); }

  // What is wrong with `value`, first finding only: "/bytes/disk: is not allowed here". Empty: nothing.
  std::string Check(const Json& value) const { return Check(root_, value, ""); }

 private:
  [[noreturn]] static void Refuse(const std::string& at, const std::string& what) {
    throw std::invalid_argument("schema, " + at + ": " + what);
  }

  static bool IsType(const Json& value, const std::string& name) {
    if (name == "object") return value.is_object();
    if (name == "array") return value.is_array();
    if (name == "string") return value.is_string();
    if (name == "boolean") return value.is_boolean();
    if (name == "null") return value.is_null();
    if (name == "number") return value.is_number();
    // 1.0 is an integer.
    return value.is_number_integer() || (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  }

  // The schema that "#/definitions/NAME" names.
  const Json& Target(const Json& reference, const std::string& at) const {
    const std::string text = reference.is_string() ? reference.get<std::string>() : "";
    if (!text.starts_with("#/")) Refuse(at, "$ref is not to a place in this schema");
    const Json::json_pointer pointer(text.substr(1));
    if (!root_.contains(pointer)) Refuse(at, "$ref to " + text + ", which is not there");
    return root_[pointer];
  }

  void ReadType(const Json& name, const std::string& at) const {
    static const Json known = {"object", "array", "string", "boolean", "null", "number", "integer"};
    if (std::find(known.begin(), known.end(), name) == known.end()) Refuse(at, name.dump() + " is no type");
  }

  void Read(const Json& schema, const std::string& at) const {
    if (schema.is_boolean()) return;
    if (!schema.is_object()) Refuse(at, "is no schema");
    for (const auto& [key, value] : schema.items()) {
      const std::string here = at + "/" + key;
      if (key == "$ref") {
        Target(value, here);
        for (const auto& [beside, ignored] : schema.items()) {
          if (beside != "$ref" && beside != "description") Refuse(at, beside + " beside $ref would be ignored");
        }
      } else if (key == "properties" || key == "definitions") {
        if (!value.is_object()) Refuse(here, "is no object");
        for (const auto& [name, inner] : value.items()) Read(inner, here + "/" + name);
      } else if (key == "items" || key == "additionalProperties") {
        Read(value, here);
      } else if (key == "anyOf") {
        if (!value.is_array() || value.empty()) Refuse(here, "is no list of schemas");
        for (const Json& inner : value) Read(inner, here);
      } else if (key == "type") {
        for (const Json& name : value.is_array() ? value : Json::array({value})) ReadType(name, here);
      } else if (key == "enum" || key == "required") {
        if (!value.is_array()) Refuse(here, "is no list");
      } else if (key == "minimum") {
        if (!value.is_number()) Refuse(here, "is no number");
      } else if (key == "minItems" || key == "maxItems" || key == "minLength" || key == "minProperties") {
        if (!value.is_number_unsigned()) Refuse(here, "is no count");
      } else if (key != "const" && key != "$schema" && key != "title" && key != "description") {
        Refuse(here, "a keyword that this check does not know");
      }
    }
  }

  std::string CheckObject(const Json& schema, const Json& value, const std::string& at) const {
    if (value.size() < schema.value("minProperties", size_t{0})) return at + ": has too few members";
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return at + ": lacks " + name.dump();
    }
    static const Json anything = true, none = Json::object();
    const Json& known = schema.contains("properties") ? schema["properties"] : none;
    const Json& others = schema.contains("additionalProperties") ? schema["additionalProperties"] : anything;
    for (const auto& [name, member] : value.items()) {
      std::string found = Check(known.contains(name) ? known[name] : others, member, at + "/" + name);
      if (!found.empty()) return found;
    }
    return "";
  }

  std::string CheckArray(const Json& schema, const Json& value, const std::string& at) const {
    if (value.size() < schema.value("minItems", size_t{0})) return at + ": has too few items";
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>()) return at + ": has too many items";
    for (size_t i = 0; schema.contains("items") && i < value.size(); ++i) {
      std::string found = Check(schema["items"], value[i], at + "/" + std::to_string(i));
      if (!found.empty()) return found;
    }
    return "";
  }

  std::string Check(const Json& schema, const Json& value, const std::string& at) const {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : at + ": is not allowed here";
    if (schema.contains("$ref")) return Check(Target(schema["$ref"], at), value, at);
    if (schema.contains("type")) {
      const Json& type = schema["type"];
      bool is = false;
      for (const Json& name : type.is_array() ? type : Json::array({type})) is = is || IsType(value, name.get<std::string>());
      if (!is) return at + ": " + value.dump() + " is not of type " + type.dump();
    }
    if (schema.contains("const") && value != schema["const"])
      return at + ": " + value.dump() + " is not " + schema["const"].dump();
    if (schema.contains("enum")) {
      const Json& choices = schema["enum"];
      if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
        return at + ": " + value.dump() + " is not one of " + choices.dump();
      }
    }
    if (schema.contains("anyOf")) {
      bool any = false;
      for (const Json& choice : schema["anyOf"]) any = any || Check(choice, value, at).empty();
      if (!any) return at + ": " + value.dump() + " fits none of its schemas";
    }
    if (value.is_number() && schema.contains("minimum") && value < schema["minimum"]) {
      return at + ": " + value.dump() + " is below " + schema["minimum"].dump();
    }
    if (value.is_string()) {
      size_t characters = 0;  // not bytes
      for (const char c : value.get_ref<const std::string&>()) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      if (characters < schema.value("minLength", size_t{0})) return at + ": is too short";
    }
    if (value.is_object()) return CheckObject(schema, value, at);
    if (value.is_array()) return CheckArray(schema, value, at);
    return "";
  }

  Json root_;
};

}  // namespace tally
