// SPDX-License-Identifier: Apache-2.0
// JSON schemas as the TypeScript that gpt-oss was trained with. The layout is that of the published encoder (harmony.h), to the byte.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/format.h"
#include "engine/chat/harmony.h"
#include "engine/chat/limited_json.h"

namespace tally {
namespace {

// A member; null where `schema` is no object or has none of that name.
const OrderedJson* SchemaMember(const OrderedJson& schema, const char* key) {
  if (!schema.is_object()) return nullptr;
  const auto found = schema.find(key);
  return found == schema.end() ? nullptr : &*found;
}

const std::string* SchemaText(const OrderedJson& schema, const char* key) {
  const OrderedJson* member = SchemaMember(schema, key);
  return member == nullptr ? nullptr : member->get_ptr<const std::string*>();
}

const OrderedJson* SchemaList(const OrderedJson& schema, const char* key) {
  const OrderedJson* member = SchemaMember(schema, key);
  return member != nullptr && member->is_array() ? member : nullptr;
}

bool IsChoice(const OrderedJson& schema) {
  const OrderedJson* choices = SchemaList(schema, "enum");
  return choices != nullptr && !choices->empty();
}

std::string Dumped(const OrderedJson& value) { return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

// "default: 10", or nothing. A string stands in quotes without escapes; of an enumeration as `quoted` says.
std::string DefaultComment(const OrderedJson& schema, bool quoted) {
  const OrderedJson* value = SchemaMember(schema, "default");
  if (value == nullptr) return "";
  const auto* text = value->get_ptr<const std::string*>();
  if (text == nullptr) return "default: " + Dumped(*value);
  if (!IsChoice(schema)) return "default: \"" + *text + "\"";
  return "default: " + (quoted ? Dumped(*value) : *text);
}

// " // a comment, another one", or nothing. A description that is there and empty is a comment too.
std::string Trailing(const std::string* description, const std::string& preset) {
  if (description == nullptr) return preset.empty() ? "" : " // " + preset;
  return " // " + *description + (preset.empty() ? "" : " " + preset);
}

std::string TypeOf(const OrderedJson& schema, const std::string& indent);

std::string NullableTypeOf(const OrderedJson& schema, const std::string& indent) {
  std::string type = TypeOf(schema, indent);
  const OrderedJson* nullable = SchemaMember(schema, "nullable");
  if (nullable != nullptr && *nullable == true && type.find("null") == type.npos) type += " | null";
  return type;
}

std::string UnionOf(const OrderedJson& variants, const std::string& indent) {
  std::string out;
  for (const OrderedJson& variant : variants) {
    out += "\n" + indent + " | " + NullableTypeOf(variant, indent + "   ");
    out += Trailing(SchemaText(variant, "description"), DefaultComment(variant, true));
  }
  return out;
}

// What stands above a property: its title, description and examples.
std::string CommentsAbove(const OrderedJson& schema, const std::string& indent) {
  std::string out;
  if (const std::string* title = SchemaText(schema, "title")) out += indent + "// " + *title + "\n" + indent + "//\n";
  const std::string* description = SchemaText(schema, "description");
  if (description != nullptr && SchemaMember(schema, "oneOf") == nullptr) out += indent + "// " + *description + "\n";
  const OrderedJson* examples = SchemaList(schema, "examples");
  if (examples == nullptr || examples->empty()) return out;
  out += indent + "// Examples:\n";
  for (const OrderedJson& example : *examples) {
    if (const auto* text = example.get_ptr<const std::string*>()) out += indent + "// - \"" + *text + "\"\n";
  }
  return out;
}

// A property of one of several types: `name` and each type have lines of their own. What the first type says of itself is left out
// where it is the same as the property's description, or where that stands above.
std::string UnionProperty(const std::string& name, const OrderedJson& schema, const OrderedJson& variants,
                          const std::string& indent) {
  const std::string* description = SchemaText(schema, "description");
  const std::string* first = variants.empty() ? nullptr : SchemaText(variants.front(), "description");
  const bool above = description != nullptr && (first == nullptr || *first != *description);
  std::string out = above ? indent + "// " + *description + "\n" : "";
  if (const std::string preset = DefaultComment(schema, false); !preset.empty()) out += indent + "// " + preset + "\n";
  out += indent + name + ":\n";
  for (const OrderedJson& variant : variants) {
    const std::string* said = SchemaText(variant, "description");
    const bool repeats =
        (above && &variant == &variants.front()) || (said != nullptr && description != nullptr && *said == *description);
    out += indent + " | " + NullableTypeOf(variant, indent + "   ");
    out += Trailing(repeats ? nullptr : said, DefaultComment(variant, false)) + "\n";
  }
  return out + indent + ",\n";
}

std::string PropertyText(const std::string& name, const OrderedJson& schema, const std::string& indent) {
  std::string out = CommentsAbove(schema, indent);
  if (const OrderedJson* variants = SchemaList(schema, "oneOf")) return out + UnionProperty(name, schema, *variants, indent);
  out += indent + name + ": " + NullableTypeOf(schema, indent + "    ") + ",";
  if (SchemaMember(schema, "oneOf") == nullptr) out += Trailing(nullptr, DefaultComment(schema, false));
  return out + "\n";
}

std::string ObjectType(const OrderedJson& schema, const std::string& indent) {
  std::string out;
  if (const std::string* description = SchemaText(schema, "description")) out += indent + "// " + *description + "\n";
  out += "{\n";
  std::set<std::string_view> required;
  if (const OrderedJson* names = SchemaList(schema, "required")) {
    for (const OrderedJson& name : *names) {
      if (const auto* text = name.get_ptr<const std::string*>()) required.insert(*text);
    }
  }
  const OrderedJson* properties = SchemaMember(schema, "properties");
  if (properties != nullptr && properties->is_object()) {
    for (const auto& [name, property] : properties->items()) {
      out += PropertyText(name + (required.count(name) > 0 ? "" : "?"), property, indent);
    }
  }
  return out + indent + "}";
}

std::string StringType(const OrderedJson& schema) {
  std::string out;
  const OrderedJson* choices = SchemaList(schema, "enum");
  if (choices == nullptr) return "string";
  for (const OrderedJson& choice : *choices) {
    if (const auto* text = choice.get_ptr<const std::string*>()) out += (out.empty() ? "\"" : " | \"") + *text + "\"";
  }
  return out.empty() ? "string" : out;
}

// A schema of several types: ["number", "string"].
std::string TypeOfList(const OrderedJson& types) {
  std::string out;
  for (const OrderedJson& type : types) {
    if (const auto* name = type.get_ptr<const std::string*>()) {
      out += (out.empty() ? "" : " | ") + (*name == "integer" ? "number" : *name);
    }
  }
  return out.empty() ? "any" : out;
}

std::string TypeOf(const OrderedJson& schema, const std::string& indent) {
  if (const OrderedJson* variants = SchemaList(schema, "oneOf")) return UnionOf(*variants, indent);
  if (const OrderedJson* types = SchemaList(schema, "type")) return TypeOfList(*types);
  const std::string* type = SchemaText(schema, "type");
  if (type == nullptr) return "any";
  if (*type == "object") return ObjectType(schema, indent);
  if (*type == "string") return StringType(schema);
  if (*type == "number" || *type == "integer") return "number";
  if (*type == "boolean") return "boolean";
  if (*type != "array") return "any";
  const OrderedJson* items = SchemaMember(schema, "items");
  return items == nullptr ? "Array<any>" : TypeOf(*items, indent) + "[]";
}

// `text` line by line, `before` in front of each; no line for an empty text.
std::string CommentLines(std::string_view text, const std::string& before) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (end < text.size() && line.ends_with('\r')) line.remove_suffix(1);
    ((out += "\n") += before) += line;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

Result<std::string> NamespaceText(const HarmonyNamespace& space) {
  std::string out = "## " + space.name + "\n" + CommentLines(space.description, space.tools.empty() ? "" : "// ");
  if (space.tools.empty()) return out;
  out += "\nnamespace " + space.name + " {\n";
  for (const HarmonyTool& tool : space.tools) {
    out += CommentLines(tool.description, "// ") + "\ntype " + tool.name + " = (";
    if (!tool.parameters.empty()) {
      Result<std::string> type = HarmonyTypeText(tool.parameters);
      if (!type.ok()) return BadInput("the tool " + Quote(tool.name) + ": " + type.status().message());
      out += "_: " + *type;
    }
    out += ") => any;\n";
  }
  return out + "\n} // namespace " + space.name;
}

}  // namespace

Result<std::string> HarmonyTypeText(const std::string& schema) {
  TALLY_ASSIGN_OR_RETURN(const OrderedJson json, ParseLimitedJson(schema, "parameters"));
  return TypeOf(json, "");
}

Result<std::string> HarmonyToolsText(const std::vector<HarmonyNamespace>& namespaces) {
  std::string out = "# Tools";
  for (const HarmonyNamespace& space : namespaces) {
    TALLY_ASSIGN_OR_RETURN(const std::string text, NamespaceText(space));
    out += "\n\n" + text;
  }
  return out;
}

}  // namespace tally
