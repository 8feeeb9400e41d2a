// SPDX-License-Identifier: Apache-2.0
// The answers of /v1/chat/completions and /v1/completions as JSON (https://platform.openai.com/docs/api-reference/chat/object,
// .../completions/object), and what answers of all endpoints have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/output.h"
#include "engine/render/value.h"
#include "engine/serve/api_request.h"
#include "engine/serve/http_server.h"
#include "engine/session/request.h"
#include "engine/session/unique_ids.h"

namespace tally {

using ApiIds = UniqueIds;

// A token of an answer, or of the prompt that it begins with, by its bytes.
struct ApiLogprob {
  std::string bytes = {};
  bool is_text = true;                  // the bytes stand in the text; false: a special token's spelling
  std::optional<double> logprob = 0.0;  // none: nothing is before it
  std::vector<std::pair<std::string, double>> top = {};
};

struct ApiChoice {
  ChatAnswer answer = {};
  const GenerateResult* result = nullptr;
  std::string stop = {};                  // the string of the body that ended it; empty: none did
  std::vector<ApiLogprob> logprobs = {};  // of all tokens, if they were asked for
  std::vector<int32_t> prompt_ids = {};   // of the prompt, if ApiAnswer::prompt_ids says so
  OrderedJson prompt_logprobs = {};       // null: they were not asked for
};

struct ApiUsage {
  int64_t prompt_tokens = 0;                        // of all prompts, each once
  int64_t cached_tokens = 0;                        // of these: not run, since the KV cache held them
  int64_t completion_tokens = 0;                    // of all choices
  int64_t reasoning_tokens = 0;                     // of these: tokens of thinking
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // tokens that ran as drafts; of these, accepted
};

struct ApiAnswer {
  ApiEndpoint endpoint = ApiEndpoint::kChat;
  std::string id = {}, model = {};
  std::string fingerprint = {};   // ServedModel::fingerprint
  int64_t created = 0;            // seconds since 1970
  double arrived = 0, begun = 0;  // MonotonicSeconds(): of the request; when its body was read and its model in memory
  uint64_t seed = 0;              // of the first choice
  std::vector<ApiChoice> choices = {};
  bool token_ids = false;   // choices have token ids: they were asked for, or the model has no tokenizer
  bool prompt_ids = false;  // those of the prompt too
  bool logprobs = false;    // they were asked for
  ApiUsage usage = {};
};

// "stop", "length" or "tool_calls"
const char* ApiFinish(const ApiChoice& choice);

OrderedJson ToOrderedJson(const Value& value);

// `bill` becomes its member "tally" unless it is null.
OrderedJson UsageJson(const ApiUsage& usage, OrderedJson bill);
// [BYTE]
OrderedJson BytesJson(const std::string& bytes);
// {"id", "type", "function": {"name", "arguments"}}
OrderedJson CallJson(const ToolCall& call);
// For a chat: {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}. For a text: {"tokens", "token_logprobs",
// "top_logprobs", "text_offset"}, whose first token begins at `offset` characters; the drawn token is always among top_logprobs, as one
// more where it is none of the most probable.
OrderedJson ChatLogprobsJson(std::span<const ApiLogprob> logprobs);
OrderedJson ChatLogprobsList(std::span<const ApiLogprob> logprobs);
OrderedJson TextLogprobsJson(std::span<const ApiLogprob> logprobs, int64_t offset = 0);
int64_t CharactersOf(const ApiLogprob& token);  // in the text
double FiniteLogprob(double logprob);           // JSON has no infinity
// What ended a choice, as vLLM has it: a stop string, or the id of a token; null: neither.
OrderedJson StopReasonJson(const ApiChoice& choice);

// An error in the form that clients of the endpoint read.
OrderedJson ErrorJson(const ApiError& error, ApiEndpoint endpoint);

// An object of chat.completion or text_completion, with the seed; usage has `bill` as "tally".
OrderedJson AnswerJson(const ApiAnswer& answer, OrderedJson bill);

// One line. Bytes that are not UTF-8 become U+FFFD.
std::string JsonLine(const OrderedJson& json);
// With the headers that its status wants, after those given.
HttpAnswer JsonAnswer(int status, const OrderedJson& body, HttpHeaders headers = {});

}  // namespace tally
