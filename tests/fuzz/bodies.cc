// SPDX-License-Identifier: Apache-2.0
// Bodies of the endpoints of OpenAI, Anthropic and ollama: read, or refused with an error that a client can be sent.
#include "engine/chat/limited_json.h"
#include "engine/serve/api_request.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"

namespace tally::fuzz {
namespace {

void RunRequestBody(std::string_view input) {
  const Result<OrderedJson> body = ParseLimitedJson(std::string(input), "body");
  if (!body.ok()) return RequireOneLine(body.status());
  for (const ApiEndpoint endpoint : {ApiEndpoint::kChat, ApiEndpoint::kCompletions, ApiEndpoint::kResponses,
                                     ApiEndpoint::kMessages, ApiEndpoint::kOllamaChat, ApiEndpoint::kOllamaGenerate}) {
    ApiRequest request;
    if (const std::optional<ApiError> error = ParseApiRequest(endpoint, *body, &request)) {
      Require(error->status >= 400 && error->status < 500, "a bad body is the client's error");
      RequireOneLine(BadInput(error->message));
      Require(ErrorJson(*error).dump().size() < 16384, "an error much longer than a line");
      continue;
    }
    Require(request.n >= 1 && request.n * static_cast<int64_t>(request.prompts.size()) <= kMostApiChoices, "too many choices");
    Require(request.stop.size() <= (endpoint >= ApiEndpoint::kMessages ? 16 : 4), "too many stop strings");
    Require(!request.max_tokens || *request.max_tokens >= (IsOllama(endpoint) ? -1 : 0), "tokens below 0");
    if (request.prompts.empty() && !request.load) Require(!request.chat.messages.empty(), "a chat of no messages");
    if (endpoint == ApiEndpoint::kMessages) Require(request.max_tokens.has_value(), "no max_tokens");
    if (endpoint == ApiEndpoint::kCompletions) Require(!request.prompts.empty(), "a completion of no prompt");
    for (const ApiPrompt& prompt : request.prompts) {
      Require(!prompt.empty(), "a prompt of no parts");
      for (const ApiPromptPart& part : prompt) {
        if (!part.tokens) continue;
        Require(!part.tokens->empty(), "no token ids");
        for (const int32_t id : *part.tokens) Require(id >= 0, "a token id below 0");
      }
    }
    for (const std::string& word : request.bad_words) Require(!word.empty(), "a bad word of no bytes");
  }
}

std::vector<std::string> RequestBodySeeds() {
  return {
      R"({"model": "m", "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "name": "a", "content":
      [{"type": "text", "text": "2+2?"}]}, {"role": "assistant", "content": null, "reasoning_content": "sum", "tool_calls":
      [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}, {"role": "tool",
      "tool_call_id": "c1", "content": "4"}], "tools": [{"type": "function", "function": {"name": "f", "strict": true,
      "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}], "tool_choice": "auto", "n": 2, "seed": -1,
      "reasoning_effort": "low", "stop": ["\n", "END"], "stream": true, "stream_options": {"include_usage": true},
      "chat_template_kwargs": {"x": [1, 2.5, false]}, "max_completion_tokens": 5, "temperature": 0.5, "top_p": 1})",
      R"({"prompt": ["a", [1, 2, 3], "b"], "n": 3, "max_tokens": 0, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1,
      "seed": 18446744073709551615, "stop": "x", "echo": true, "user": "u", "ignore_eos": true, "logit_bias": {}})",
      R"({"prompt": [1, 2, 3], "logprobs": 5, "suffix": null})",
      R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "2+2?"}]}, {"type": "reasoning", "id": "r",
      "summary": [], "content": [{"type": "reasoning_text", "text": "sum"}]}, {"type": "function_call", "call_id": "c", "name": "f",
      "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "4"}], "instructions": "Be brief.", "tools":
      [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "reasoning": {"effort": "low"}, "store": false,
      "max_output_tokens": 5, "text": {"format": {"type": "text"}}, "metadata": {"a": "b"}, "include": [], "stream": true})",
      R"({"max_tokens": 5, "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}], "messages":
      [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}, {"role": "assistant", "content": [{"type": "thinking",
      "thinking": "sum", "signature": ""}, {"type": "text", "text": "Well."}, {"type": "tool_use", "id": "t", "name": "f", "input":
      {"a": 1}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": false, "content":
      [{"type": "text", "text": "4"}]}]}], "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
      "tool_choice": {"type": "auto"}, "thinking": {"type": "enabled", "budget_tokens": 1024}, "stop_sequences": ["x"],
      "output_config": {"effort": "low"}, "metadata": {"user_id": "u"}, "stream": true})",
      R"({"max_tokens": 0, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": []}, {"role": "user",
      "content": [{"type": "text", "text": ""}]}, {"role": "system", "content": "b"}], "system": "", "tool_choice": {"type": "none"}})",
      R"({"model": "m:latest", "think": "low", "format": "json", "keep_alive": 0, "options": {"num_predict": -2, "stop": ["x"], "seed": 1,
      "num_ctx": 9}, "messages": [{"role": "assistant", "content": "", "thinking": "sum", "tool_calls": [{"function": {"name": "f",
      "arguments": {"a": 1}}}]}, {"role": "tool", "tool_name": "f", "content": "4"}]})",
      R"({"prompt": "a", "system": "b", "raw": false, "format": {"type": "object"}, "stream": false, "options": {"top_k": 4}})",
      R"({"messages": [{"role": "user", "content": "\ud800 \u0000 é"}], "response_format": {"type": "json_object"}})",
  };
}

}  // namespace

const Target kRequestBody = {"request_body", RunRequestBody, RequestBodySeeds};

}  // namespace tally::fuzz
