// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/schema.h"

#include <algorithm>
#include <iterator>

#include "engine/grammar/formats.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/grammar/schema_keywords.h"

namespace tally {
namespace {

constexpr std::string_view kAnnotations[] = {"$schema",     "$id",       "$defs",       "definitions", "$anchor",  "$comment",
                                             "$vocabulary", "title",     "description", "default",     "examples", "deprecated",
                                             "readOnly",    "writeOnly", kNotEnum,      kNotPattern};

const SchemaKeyword kKeywords[] = {
    {"$ref", "exactly, within the document; recursion too"},
    {"$dynamicRef", "refused"},
    {"$recursiveRef", "refused"},
    {"additionalItems", "exactly (draft 7)"},
    {"additionalProperties", "exactly"},
    {"allOf", "exactly"},
    {"anyOf", "exactly"},
    {"const", "exactly"},
    {"contains", "exactly without maxContains, prefixItems and counts of items above it"},
    {"dependencies", "exactly (draft 7)"},
    {"dependentRequired", "exactly"},
    {"dependentSchemas", "exactly"},
    {"else", "exactly, where not can be said of if"},
    {"enum", "exactly; objects and lists without other keywords about their parts"},
    {"exclusiveMaximum", "exactly"},
    {"exclusiveMinimum", "exactly"},
    {"format", "exactly for the formats below; others are annotations"},
    {"if", "exactly, where not can be said of it"},
    {"items", "exactly"},
    {"maxContains", "refused"},
    {"maxItems", "exactly"},
    {"maxLength", "exactly, in characters"},
    {"maxProperties", "exactly"},
    {"maximum", "exactly"},
    {"minContains", "as contains"},
    {"minItems", "exactly"},
    {"minLength", "exactly, in characters"},
    {"minProperties", "exactly, as far as listed names and one more reach"},
    {"minimum", "exactly"},
    {"multipleOf", "exactly, to 10,000 remainders"},
    {"not", "exactly of type, enum, const, pattern, bounds, required, properties, allOf, anyOf, not"},
    {"nullable", "exactly: null too (OpenAPI, OpenAI's helpers for zod 3)"},
    {"oneOf", "exactly, where branches are apart by types, constants or required members, or not can be said of them"},
    {"pattern", "exactly, without back references, \\b and lookbehind"},
    {"patternProperties", "exactly, to 4 patterns"},
    {"prefixItems", "exactly"},
    {"properties", "exactly; members come in this order"},
    {"propertyNames", "exactly"},
    {"required", "exactly"},
    {"then", "exactly, where not can be said of if"},
    {"type", "exactly"},
    {"unevaluatedItems", "refused"},
    {"unevaluatedProperties", "as additionalProperties, beside no allOf, anyOf, oneOf, if, $ref or dependentSchemas"},
    {"uniqueItems", "exactly for at most 1 item, or an enum of 8 values"},
};

}  // namespace

bool IsAnnotation(std::string_view keyword) { return std::ranges::find(kAnnotations, keyword) != std::end(kAnnotations); }

const SchemaKeyword* KeywordNamed(std::string_view name) {
  const SchemaKeyword* const place = std::ranges::find(kKeywords, name, &SchemaKeyword::name);
  return place == std::end(kKeywords) ? nullptr : place;
}

std::vector<SchemaKeyword> SchemaKeywords() { return {std::begin(kKeywords), std::end(kKeywords)}; }

std::vector<std::string_view> SchemaFormats() {
  std::vector<std::string_view> names;
  for (const auto& [name, pattern] : StringFormats()) names.push_back(name);
  return names;
}

Result<SchemaParts> ParseSchema(Expressions& e, std::string_view schema, const SchemaOptions& options) {
  TALLY_ASSIGN_OR_RETURN(SchemaDocument document, SchemaDocument::Parse(schema));
  return SchemaCompiler(e, document, options).Parse();
}

Result<Expr> ParseArguments(Expressions& e, const CallTool& tool, const CallNotation& notation) {
  TALLY_ASSIGN_OR_RETURN(SchemaDocument document, SchemaDocument::Parse(tool.schema.empty() ? "{}" : tool.schema));
  const JsonSpace space = notation.arguments == ArgumentNotation::kBraced ? JsonSpace::kNone : notation.space;
  return SchemaCompiler(e, document, {.space = space}, &notation).Arguments(tool.texts);
}

Result<Expr> AnyJson(Expressions& e, bool object, const SchemaOptions& options) {
  TALLY_ASSIGN_OR_RETURN(SchemaDocument document, SchemaDocument::Parse("true"));
  SchemaCompiler compiler(e, document, options);
  return object ? compiler.AnyObject() : compiler.Any();
}

}  // namespace tally
