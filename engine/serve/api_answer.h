// SPDX-License-Identifier: Apache-2.0
// The answers of /v1/chat/completions and /v1/completions as JSON (https://platform.openai.com/docs/api-reference/chat/object,
// .../completions/object).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/chat/output.h"
#include "engine/serve/api_request.h"
#include "engine/session/request.h"

namespace tally {

// Ids that nobody else draws: "PREFIX" and 24 hexadecimal digits.
class ApiIds {
 public:
  ApiIds();
  std::string Next(const char* prefix);

 private:
  uint64_t key_, next_ = 0;
};

struct ApiChoice {
  ChatAnswer answer = {};
  const GenerateResult* result = nullptr;
};

struct ApiUsage {
  int64_t prompt_tokens = 0;      // of all prompts, each once
  int64_t cached_tokens = 0;      // of these that did not have to run
  int64_t completion_tokens = 0;  // of all choices
};

struct ApiAnswer {
  ApiEndpoint endpoint = ApiEndpoint::kChat;
  std::string id = {}, model = {};
  int64_t created = 0;  // seconds since 1970
  uint64_t seed = 0;    // of the first choice
  std::vector<ApiChoice> choices = {};
  bool token_ids = false;  // choices have their tokens: there is no text
  ApiUsage usage = {};
};

// "stop", "length" or "tool_calls"
const char* ApiFinish(const ApiChoice& choice);

// What an answer cost, of all its choices together: {"prompt_tokens", "decode_steps", "preemptions", "prompt_seconds",
// "first_token_seconds", "generate_seconds"}. prompt_tokens are those that ran; first_token_seconds is the least of a choice.
OrderedJson BillJson(std::span<const std::shared_ptr<Request>> choices);

// An object of chat.completion or text_completion, with the seed; usage has `bill` as "tally".
OrderedJson AnswerJson(const ApiAnswer& answer, OrderedJson bill);

}  // namespace tally
