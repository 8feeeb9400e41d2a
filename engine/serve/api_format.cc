// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_format.h"

#include "engine/base/format.h"
#include "engine/serve/api_object.h"

namespace tally {
namespace {

using FormatKind = AnswerFormat::Kind;

void SetFormat(ApiObject& object, const char* name, AnswerFormat made, AnswerFormat* format) {
  if (format->kind != FormatKind::kAny) return object.Fail(name, "and " + format->field + " both say what the answer may be");
  made.field = object.Place(name);
  *format = std::move(made);
}

// A schema, or the text of one.
void SetSchemaFormat(ApiObject& object, const char* name, AnswerFormat* format) {
  const OrderedJson* const schema = object.Take(name);
  if (schema == nullptr) return;
  if (!schema->is_object() && !schema->is_boolean() && !schema->is_string())
    return object.Fail(name, "must be a JSON Schema", "invalid_type");
  SetFormat(object, name,
            {.kind = FormatKind::kSchema, .text = schema->is_string() ? schema->get<std::string>() : schema->dump()}, format);
}

void SetTextFormat(ApiObject& object, const char* name, FormatKind kind, AnswerFormat* format) {
  std::optional<std::string> text = object.Text(name);
  const bool may_be_empty = object.Place(name) == "grammar";  // llama.cpp's clients send it so
  if (text && text->empty() && !may_be_empty) return object.Fail(name, "is empty");
  if (text && !text->empty()) SetFormat(object, name, {.kind = kind, .text = std::move(*text)}, format);
}

void SetChoicesFormat(ApiObject& object, const char* name, AnswerFormat* format) {
  const OrderedJson* const list = object.Array(name);
  if (list == nullptr) return;
  AnswerFormat made{.kind = FormatKind::kChoices};
  for (const OrderedJson& choice : *list) {
    if (!choice.is_string()) return object.Fail(name, "must be a list of texts", "invalid_type");
    made.choices.push_back(choice.get<std::string>());
  }
  if (made.choices.empty()) return object.Fail(name, "is empty");
  SetFormat(object, name, std::move(made), format);
}

void ReadRequiredSchema(ApiObject& object, AnswerFormat* format) {
  if (object.Take("schema") == nullptr) return object.Fail("schema", "is missing", "missing_required_parameter");
  SetSchemaFormat(object, "schema", format);
}

}  // namespace

void ReadFormatObject(ApiObject& parent, const char* name, bool nested, AnswerFormat* format) {
  const OrderedJson* const json = parent.Object(name);
  if (json == nullptr) return;
  ApiObject object(*json, parent.Place(name), parent.reading());
  const std::string type = object.Text("type").value_or("");
  if (!nested) object.Skip({"name", "description", "strict"});
  if (type == "json_object") {
    if (object.Take("schema") != nullptr) {  // llama.cpp's
      SetSchemaFormat(object, "schema", format);
    } else {
      SetFormat(parent, name, {.kind = FormatKind::kJsonObject}, format);
    }
  } else if (type == "json_schema") {
    const OrderedJson* const inner = nested ? object.Object("json_schema") : nullptr;
    if (inner != nullptr) {
      ApiObject described(*inner, object.Place("json_schema"), parent.reading());
      described.Skip({"name", "description", "strict"});
      ReadRequiredSchema(described, format);
      described.End();
    } else {
      ReadRequiredSchema(object, format);
    }
  } else if (type != "text") {
    object.Fail("type", R"(must be "text", "json_object" or "json_schema")", "unsupported_value");
  }
  object.Skip({"schema"});
  if (nested) object.Skip({"json_schema"});
  object.End();
}

void ReadAnswerFormat(ApiObject& body, AnswerFormat* format) {
  if (body.reading()->endpoint() == ApiEndpoint::kChat || body.reading()->endpoint() == ApiEndpoint::kCompletions) {
    ReadFormatObject(body, "response_format", /*nested=*/true, format);
  }
  SetSchemaFormat(body, "json_schema", format);
  SetTextFormat(body, "grammar", FormatKind::kGbnf, format);
  SetSchemaFormat(body, "guided_json", format);
  SetTextFormat(body, "guided_regex", FormatKind::kRegex, format);
  SetChoicesFormat(body, "guided_choice", format);
  SetTextFormat(body, "guided_grammar", FormatKind::kGbnf, format);
  const OrderedJson* const json = body.Object("structured_outputs");
  if (json == nullptr) return;
  ApiObject outputs(*json, "structured_outputs", body.reading());
  SetSchemaFormat(outputs, "json", format);
  SetTextFormat(outputs, "regex", FormatKind::kRegex, format);
  SetChoicesFormat(outputs, "choice", format);
  SetTextFormat(outputs, "grammar", FormatKind::kGbnf, format);
  if (outputs.Flag("json_object").value_or(false)) SetFormat(outputs, "json_object", {.kind = FormatKind::kJsonObject}, format);
  outputs.End();
}

Result<std::shared_ptr<Grammar>> GrammarOf(const AnswerFormat& format, GrammarCache& cache) {
  if (format.grammar != nullptr) return format.grammar;
  if (format.kind == FormatKind::kAny) return std::shared_ptr<Grammar>();
  std::string key(1, static_cast<char>('0' + static_cast<int>(format.kind)));
  key += static_cast<char>('0' + static_cast<int>(format.space));
  AddToKey(format.text, key);
  for (const std::string& choice : format.choices) AddToKey(choice, key);
  return cache.Get(std::move(key), [&] {
    switch (format.kind) {
      case FormatKind::kJsonObject: return Grammar::Json(/*object=*/true);
      case FormatKind::kSchema: return Grammar::FromSchema(format.text, {.space = format.space});
      case FormatKind::kRegex: return Grammar::FromRegex(format.text);
      case FormatKind::kGbnf: return Grammar::FromGbnf(format.text);
      default: return Grammar::FromChoices(format.choices);
    }
  });
}

}  // namespace tally
