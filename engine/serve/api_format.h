// SPDX-License-Identifier: Apache-2.0
// What a body says its answers may be: response_format of OpenAI's endpoints, text.format of /v1/responses, output_format and
// output_config.format of Anthropic's; guided_json, guided_regex, guided_choice, guided_grammar and structured_outputs of vLLM's server;
// json_schema and grammar of llama.cpp's.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"

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

// Appends a part to a key of several, so that other parts give another key.
inline void AddToKey(std::string_view part, std::string& key) { (key += std::to_string(part.size()) + ':') += part; }

// Compiled grammars, the latest used of them. Any number of threads may use it at once.
class GrammarCache {
 public:
  // Null: the format is kAny. Errors of Grammar's functions.
  Result<std::shared_ptr<Grammar>> Get(const AnswerFormat& format);
  // What `make` makes, unless that was made before for the same key.
  Result<std::shared_ptr<Grammar>> Get(std::string key, const std::function<Result<std::shared_ptr<Grammar>>()>& make);

 private:
  static constexpr size_t kMost = 64;
  static constexpr uint64_t kMostBytes = uint64_t{512} << 20;  // of all together, about
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Grammar>>> known_;  // by kind and text, the latest first
};

}  // namespace tally
