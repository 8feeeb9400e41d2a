// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "engine/base/format.h"
#include "engine/serve/api_messages.h"
#include "engine/serve/api_object.h"
#include "engine/serve/api_ollama.h"

namespace tally {
namespace {

constexpr size_t kMostStops = 4, kMostStopSequences = 16, kLongestStop = 1024;  // strings, strings of /v1/messages, bytes
constexpr int64_t kMostTokens = INT32_MAX;
constexpr int64_t kMostLogprobs = 20;
constexpr size_t kMostBiases = 1024;
constexpr double kMostBias = 100;

void ReadSampling(ApiObject& body, ApiRequest* request) {
  request->temperature = body.Number("temperature", 0);
  request->top_p = body.Number("top_p", 0, 1);
  request->min_p = body.Number("min_p", 0, 1);
  if (const auto k = body.Whole("top_k", -1, INT32_MAX)) request->top_k = static_cast<int32_t>(*k);
  if (const auto last = body.Whole("repeat_last_n", -1, INT32_MAX)) request->repeat_last_n = static_cast<int32_t>(*last);
  constexpr double kLeast = 1e-6;
  request->repeat_penalty = body.Number("repeat_penalty", kLeast);
  if (const std::optional<double> penalty = body.Number("repetition_penalty", kLeast)) {
    if (request->repeat_penalty) body.Fail("repetition_penalty", "and repeat_penalty are two names of one field");
    request->repeat_penalty = penalty;
    // vLLM's is a penalty on all tokens so far, llama.cpp's on the last ones.
    if (!request->repeat_last_n) request->repeat_last_n = -1;
  }
  request->ignore_eos = body.Flag("ignore_eos").value_or(false);
}

// -1 asks for a drawn seed, as elsewhere in Tally.
void ReadSeed(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const seed = body.Take("seed");
  if (seed == nullptr) return;
  if (seed->is_number_unsigned()) {
    request->seed = seed->get<uint64_t>();
  } else if (!seed->is_number_integer() || seed->get<int64_t>() != -1) {
    body.Fail("seed", "must be a whole number from 0 to 18446744073709551615, or -1: one is drawn");
  }
}

void ReadStop(ApiObject& body, const char* name, size_t most, ApiRequest* request) {
  const OrderedJson* const stop = body.Take(name);
  if (stop == nullptr) return;
  const OrderedJson list = stop->is_array() ? *stop : OrderedJson::array({*stop});
  if (list.size() > most) body.Fail(name, "must be at most " + std::to_string(most) + " strings");
  for (const OrderedJson& text : list) {
    if (!text.is_string()) return body.Fail(name, "must be a string or an array of strings", "invalid_type");
    request->stop.push_back(text.get<std::string>());
    if (request->stop.back().size() > kLongestStop) {
      body.Fail(name, "must be strings of at most " + std::to_string(kLongestStop) + " bytes");
    }
  }
}

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
}

// For a chat it is a flag, with the number beside it; for a completion it is the number.
void ReadLogprobs(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const flag = body.Take("logprobs");
  if (request->endpoint == ApiEndpoint::kCompletions) {
    if (flag == nullptr || *flag == false) return;
    if (!flag->is_number_integer() || *flag < 0 || *flag > kMostLogprobs) {
      return body.Fail("logprobs", "must be a whole number from 0 to " + std::to_string(kMostLogprobs));
    }
    request->top_logprobs = flag->get<int32_t>();
    return;
  }
  if (flag != nullptr && !flag->is_boolean()) return body.Fail("logprobs", "must be true or false", "invalid_type");
  if (flag != nullptr && *flag == true) request->top_logprobs = 0;
  const std::optional<int64_t> top = body.Whole("top_logprobs", 0, kMostLogprobs);
  if (!top || (*top == 0 && request->top_logprobs < 0)) return;
  if (request->endpoint != ApiEndpoint::kResponses && request->top_logprobs < 0) {
    return body.Fail("top_logprobs", "needs logprobs to be true");
  }
  request->top_logprobs = static_cast<int32_t>(*top);
}

void ReadBias(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const biases = body.Object("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > kMostBiases) {
    return body.Fail("logit_bias", "has more than " + std::to_string(kMostBiases) + " tokens");
  }
  for (const auto& [name, value] : biases->items()) {
    int32_t token = 0;
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data(), end, token);
    if (error != std::errc() || at != end || token < 0) {
      return body.Fail("logit_bias", "has the key " + Quote(name) + ", which is no token id");
    }
    if (!value.is_number() || !(std::fabs(value.get<double>()) <= kMostBias)) {
      return body.Fail("logit_bias", "gives the token " + name + " the bias " + Printable(value.dump(), 40) +
                                         ": expected a number from -100 to 100");
    }
    request->logit_bias.emplace_back(token, value.get<float>());
  }
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
    options.End();
  }
}

// The ids of an array that is not empty; none if `list` holds anything else too.
std::optional<std::vector<int32_t>> TokensOf(const OrderedJson& list) {
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const OrderedJson& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(INT32_MAX)) return std::nullopt;
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

void ReadPrompts(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const prompt = body.Take("prompt");
  if (prompt == nullptr) return body.Fail("prompt", "is missing", "missing_required_parameter");
  const char* const wanted = "must be a string, an array of token ids, or an array of such prompts";
  const auto add = [&](const OrderedJson& one) {
    ApiPrompt& read = request->prompts.emplace_back();
    if (one.is_string()) {
      read.text = one.get<std::string>();
    } else if (one.is_array() && !one.empty()) {
      read.tokens = TokensOf(one);
      if (!read.tokens) body.Fail("prompt", wanted, "invalid_type");
    } else {
      body.Fail("prompt", wanted, "invalid_type");
    }
  };
  if (prompt->is_string() || (prompt->is_array() && !prompt->empty() && prompt->front().is_number())) return add(*prompt);
  if (!prompt->is_array() || prompt->empty()) return body.Fail("prompt", wanted, "invalid_type");
  if (prompt->size() > static_cast<size_t>(kMostApiChoices)) {
    return body.Fail("prompt", "has more than " + std::to_string(kMostApiChoices) + " prompts");
  }
  for (const OrderedJson& one : *prompt) add(one);
}

void ReadOpenAi(ApiObject& body, const OrderedJson& json, ApiRequest* request) {
  const ApiEndpoint endpoint = request->endpoint;
  ReadStop(body, "stop", kMostStops, request);
  ReadLength(body, request);
  ReadLogprobs(body, request);
  ReadBias(body, request);
  ReadStream(body, request);
  if (endpoint != ApiEndpoint::kResponses) {
    request->n = body.Whole("n", 1, 128).value_or(1);
    request->return_progress = body.Flag("return_progress").value_or(false);
  }
  if (!body.Flag("parallel_tool_calls").value_or(true)) request->chat.most_calls = 1;
  if (endpoint == ApiEndpoint::kChat) ReadApiChat(body, &request->chat);
  if (endpoint == ApiEndpoint::kCompletions) ReadPrompts(body, request);
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
    ReadSeed(options, request);
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
  ReadSeed(body, request);
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
