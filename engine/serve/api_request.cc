// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/format.h"
#include "engine/serve/api_messages.h"
#include "engine/serve/api_object.h"
#include "engine/serve/api_ollama.h"
#include "engine/serve/api_sampling.h"

namespace tally {
namespace {

constexpr size_t kMostStops = 4, kMostStopSequences = 16;  // strings; strings of /v1/messages
constexpr int64_t kMostTokens = INT32_MAX;

void ReadLength(ApiObject& body, ApiRequest* request) {
  if (request->endpoint == ApiEndpoint::kResponses) {
    request->max_tokens = body.Whole("max_output_tokens", 0, kMostTokens);
    return;
  }
  request->max_tokens = body.Whole("max_tokens", 0, kMostTokens);
  const std::optional<int64_t> completion = body.Whole("max_completion_tokens", 0, kMostTokens);
  if (completion && request->max_tokens && *completion != *request->max_tokens) {
    body.Fail("max_completion_tokens", "and max_tokens are two names of one field");
  }
  if (completion) request->max_tokens = completion;
  // llama.cpp's name; -1 and -2: until the context is full.
  const std::optional<int64_t> predict = body.Whole("n_predict", -2, kMostTokens);
  if (!predict || *predict < 0) return;
  if (request->max_tokens && *request->max_tokens != *predict) {
    body.Fail("n_predict", "and max_tokens are two names of one field");
  }
  request->max_tokens = predict;
}

void ReadTextFormat(ApiObject& body, AnswerFormat* format) {
  const OrderedJson* const json = body.Object("text");
  if (json == nullptr) return;
  ApiObject text(*json, "text", body.reading());
  ReadFormatObject(text, "format", /*nested=*/false, format);
  text.End();
}

void ReadInclude(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const list = body.Array("include");
  if (list == nullptr) return;
  for (const OrderedJson& what : *list) {
    if (what == "message.output_text.logprobs") {
      request->top_logprobs = std::max(request->top_logprobs, 0);
    } else if (what != "reasoning.encrypted_content") {  // the answer shows thinking in clear
      const std::string name = what.is_string() ? what.get<std::string>() : what.dump();
      body.LeaveOut("include[" + name + "]", "include", "has " + Quote(name) + ", which is not supported");
    }
  }
}

// Fields that the answer repeats as they were sent.
constexpr std::string_view kEchoed[] = {
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "temperature", "text", "tool_choice",
    "tools",        "top_logprobs",      "top_p",    "truncation",          "user"};

void ReadResponses(ApiObject& body, const OrderedJson& json, ApiRequest* request) {
  ReadTextFormat(body, &request->format);
  ReadInclude(body, request);
  body.Skip({"metadata", "user"});  // the answer repeats them
  ReadApiResponses(body, &request->chat);
  constexpr size_t kMostEchoed = size_t{64} << 10;
  for (const std::string_view name : {"metadata", "user"}) {
    const auto at = json.find(name);
    if (at != json.end() && at->dump(-1, ' ', false, OrderedJson::error_handler_t::replace).size() > kMostEchoed) {
      body.Fail(name, "is longer than " + std::to_string(kMostEchoed) + " bytes");
    }
  }
  if (!body.ok()) return;
  OrderedJson echo = OrderedJson::object();
  for (const std::string_view name : kEchoed) {
    if (const auto at = json.find(name); at != json.end()) echo[std::string(name)] = *at;
  }
  request->echo = std::make_shared<const OrderedJson>(std::move(echo));
}

void ReadStream(ApiObject& body, ApiRequest* request) {
  request->stream = body.Flag("stream").value_or(false);
  if (const OrderedJson* const json = body.Object("stream_options")) {
    if (!request->stream) return body.Fail("stream_options", "needs stream to be true");
    ApiObject options(*json, "stream_options", body.reading());
    request->stream_usage = options.Flag("include_usage").value_or(false);
    request->usage_always = options.Flag("continuous_usage_stats").value_or(false) && request->stream_usage;
    options.End();
  }
}

bool IsId(const OrderedJson& json) {
  return json.is_number_unsigned() && json.get<uint64_t>() <= static_cast<uint64_t>(INT32_MAX);
}

// A text; or ids, with texts between them. Empty: it is something else.
ApiPrompt PromptOf(const OrderedJson& json) {
  ApiPrompt prompt;
  if (json.is_string()) {
    prompt.push_back({.text = json.get<std::string>()});
  } else if (json.is_array()) {
    for (const OrderedJson& part : json) {
      if (part.is_string()) {
        prompt.push_back({.text = part.get<std::string>()});
      } else if (IsId(part)) {
        if (prompt.empty() || !prompt.back().tokens) prompt.push_back({.tokens = std::vector<int32_t>()});
        prompt.back().tokens->push_back(part.get<int32_t>());
      } else {
        return {};
      }
    }
  }
  return prompt;
}

// A list with an id in it is one prompt; others are lists of prompts.
void ReadPrompts(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const prompt = body.Take("prompt");
  if (prompt == nullptr) return body.Fail("prompt", "is missing", "missing_required_parameter");
  const auto add = [&](const OrderedJson& one) {
    request->prompts.push_back(PromptOf(one));
    if (!request->prompts.back().empty()) return;
    body.Fail("prompt", "must be a string, an array of token ids with strings between them, or an array of such prompts",
              "invalid_type");
  };
  const bool is_list = prompt->is_array() && !prompt->empty() &&
                       std::ranges::none_of(*prompt, [](const OrderedJson& part) { return part.is_number(); });
  if (!is_list) return add(*prompt);
  if (prompt->size() > static_cast<size_t>(kMostApiChoices)) {
    return body.Fail("prompt", "has more than " + std::to_string(kMostApiChoices) + " prompts");
  }
  for (size_t i = 0; i < prompt->size() && body.ok(); ++i) add((*prompt)[i]);
}

void ReadOpenAi(ApiObject& body, const OrderedJson& json, ApiRequest* request) {
  const ApiEndpoint endpoint = request->endpoint;
  ReadStop(body, "stop", kMostStops, request);
  ReadLength(body, request);
  ReadTokenRules(body, request);
  ReadStream(body, request);
  ReadLogprobs(body, request);
  if (endpoint != ApiEndpoint::kResponses) {
    request->n = body.Whole("n", 1, 128).value_or(1);
    request->return_progress = body.Flag("return_progress").value_or(false);
  }
  if (!body.Flag("parallel_tool_calls").value_or(true)) request->chat.most_calls = 1;
  if (endpoint == ApiEndpoint::kChat) ReadApiChat(body, &request->chat);
  if (endpoint == ApiEndpoint::kCompletions) {
    ReadPrompts(body, request);
    request->add_special = body.Flag("add_special_tokens").value_or(true);
  }
  if (endpoint == ApiEndpoint::kResponses) ReadResponses(body, json, request);
}

void ReadMessages(ApiObject& body, ApiRequest* request) {
  request->max_tokens = body.Whole("max_tokens", 0, kMostTokens);
  if (!request->max_tokens && request->endpoint == ApiEndpoint::kMessages) {
    body.Fail("max_tokens", "is missing", "missing_required_parameter");
  }
  ReadStop(body, "stop_sequences", kMostStopSequences, request);
  request->stream = body.Flag("stream").value_or(false);
  ReadFormatObject(body, "output_format", /*nested=*/false, &request->format);
  ReadAnthropicChat(body, &request->chat, &request->format);
}

void ReadOllama(ApiObject& body, const OrderedJson& json, ApiRequest* request) {
  if (const OrderedJson* const found = body.Object("options")) {
    ApiObject options(*found, "options", body.reading());
    ReadSampling(options, request);
    ReadStop(options, "stop", kMostStopSequences, request);
    ReadOllamaLimits(options, request);
    options.End();
  }
  ReadLogprobs(body, request);
  request->stream = body.Flag("stream").value_or(true);
  ReadOllamaBody(body, json, request);
}

}  // namespace

std::optional<ApiEndpoint> ApiEndpointOf(std::string_view path) {
  if (path == "/v1/chat/completions") return ApiEndpoint::kChat;
  if (path == "/v1/completions") return ApiEndpoint::kCompletions;
  if (path == "/v1/responses") return ApiEndpoint::kResponses;
  return std::nullopt;
}

std::optional<ApiError> ParseApiRequest(ApiEndpoint endpoint, const OrderedJson& json, ApiRequest* request, bool strict) {
  ApiReading reading(endpoint, strict);
  ApiObject body(json, "", &reading);
  *request = {};
  request->endpoint = endpoint;
  request->model = body.Text("model").value_or("");
  ReadSampling(body, request);
  request->tally = body.Flag("tally");
  ReadAnswerFormat(body, &request->format);
  if (IsAnthropic(endpoint)) {
    ReadMessages(body, request);
  } else if (IsOllama(endpoint)) {
    ReadOllama(body, json, request);
  } else {
    ReadOpenAi(body, json, request);
  }
  const int64_t prompts = static_cast<int64_t>(request->prompts.size());
  if (prompts * request->n > kMostApiChoices) {
    body.Fail("n", "gives more than " + std::to_string(kMostApiChoices) + " choices of all prompts together");
  }
  body.End();
  request->ignored = reading.ignored();
  return reading.error;
}

}  // namespace tally
