// SPDX-License-Identifier: Apache-2.0
// What a body says its answers may be: response_format of OpenAI's endpoints, text.format of /v1/responses, output_format and
// output_config.format of Anthropic's; guided_json, guided_regex, guided_choice, guided_grammar and structured_outputs of vLLM's server;
// json_schema and grammar of llama.cpp's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_cache.h"

namespace tally {

class ApiObject;

struct AnswerFormat {
  enum class Kind : uint8_t { kAny, kJsonObject, kSchema, kRegex, kGbnf, kChoices };
  Kind kind = Kind::kAny;
  std::string text = {};                  // the schema, the expression, the grammar
  std::vector<std::string> choices = {};  // kChoices
  JsonSpace space = JsonSpace::kNone;     // of a schema
  std::shared_ptr<Grammar> grammar = {};  // compiled; null: GrammarCache does it
  std::string field = {};                 // that says so: "response_format"
};

// The fields of the body itself. An error: two of them say what answers may be.
void ReadAnswerFormat(ApiObject& body, AnswerFormat* format);
// The object `name` of `parent`: {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "schema": ...}. `nested`: the schema
// stands in a member "json_schema" of its own.
void ReadFormatObject(ApiObject& parent, const char* name, bool nested, AnswerFormat* format);

// Null: the format is kAny. Errors of Grammar's functions.
Result<std::shared_ptr<Grammar>> GrammarOf(const AnswerFormat& format, GrammarCache& cache);

}  // namespace tally
