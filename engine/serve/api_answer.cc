// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_answer.h"

#include <algorithm>
#include <utility>

#include "engine/serve/api_anthropic.h"
#include "engine/serve/api_ollama.h"

namespace tally {
namespace {

// Thinking is given under both names that clients read.
OrderedJson MessageJson(const ChatAnswer& answer) {
  OrderedJson message = {{"role", "assistant"}, {"content", answer.content}, {"refusal", nullptr}};
  if (answer.content.empty() && !answer.calls.empty()) message["content"] = nullptr;
  if (!answer.reasoning.empty()) message["reasoning_content"] = message["reasoning"] = answer.reasoning;
  for (const ToolCall& call : answer.calls) message["tool_calls"].push_back(CallJson(call));
  return message;
}

OrderedJson LogprobJson(const std::string& bytes, double logprob) {
  return {{"token", bytes}, {"logprob", FiniteLogprob(logprob)}, {"bytes", BytesJson(bytes)}};
}

}  // namespace

OrderedJson ToOrderedJson(const Value& value) {
  return std::visit(
      [](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        OrderedJson json;
        if constexpr (std::is_same_v<T, Value::List>) {
          json = OrderedJson::array();
          for (const Value& item : x) json.push_back(ToOrderedJson(item));
        } else if constexpr (std::is_same_v<T, Value::Members>) {
          json = OrderedJson::object();
          for (const auto& [name, member] : x) json[name] = ToOrderedJson(member);
        } else {
          json = x;
        }
        return json;
      },
      value.variant());
}

OrderedJson BytesJson(const std::string& bytes) {
  OrderedJson list = OrderedJson::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

OrderedJson CallJson(const ToolCall& call) {
  return {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

OrderedJson UsageJson(const ApiUsage& usage, OrderedJson bill) {
  OrderedJson json = {{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                      {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                      {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
  if (!bill.is_null()) json["tally"] = std::move(bill);
  return json;
}

OrderedJson ChatLogprobsList(std::span<const ApiLogprob> logprobs) {
  OrderedJson content = OrderedJson::array();
  for (const ApiLogprob& token : logprobs) {
    OrderedJson& json = content.emplace_back(LogprobJson(token.bytes, token.logprob.value_or(0)));
    json["top_logprobs"] = OrderedJson::array();
    for (const auto& [bytes, logprob] : token.top) json["top_logprobs"].push_back(LogprobJson(bytes, logprob));
  }
  return content;
}

OrderedJson ChatLogprobsJson(std::span<const ApiLogprob> logprobs) {
  return {{"content", ChatLogprobsList(logprobs)}, {"refusal", nullptr}};
}

double FiniteLogprob(double logprob) { return std::max(logprob, -9999.0); }

int64_t CharactersOf(const ApiLogprob& token) {
  if (!token.is_text) return 0;
  return std::ranges::count_if(token.bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

OrderedJson StopReasonJson(const ApiChoice& choice) {
  if (!choice.stop.empty()) return choice.stop;
  return choice.result->stop_token >= 0 ? OrderedJson(choice.result->stop_token) : OrderedJson();
}

OrderedJson TextLogprobsJson(std::span<const ApiLogprob> logprobs, int64_t offset) {
  OrderedJson tokens = OrderedJson::array(), values = tokens, tops = tokens, offsets = tokens;
  for (const ApiLogprob& token : logprobs) {
    tokens.push_back(token.bytes);
    offsets.push_back(offset);
    offset += CharactersOf(token);
    if (!token.logprob) {
      values.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    values.push_back(FiniteLogprob(*token.logprob));
    OrderedJson& top = tops.emplace_back(OrderedJson::object());
    for (const auto& [bytes, logprob] : token.top) top[bytes] = FiniteLogprob(logprob);
    if (!top.contains(token.bytes)) top[token.bytes] = FiniteLogprob(*token.logprob);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

HttpAnswer JsonAnswer(int status, const OrderedJson& body, HttpHeaders headers) {
  headers.emplace_back("Content-Type", "application/json");
  if (status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 429 || status == 503) headers.emplace_back("Retry-After", "1");
  return {.status = status, .headers = std::move(headers), .body = JsonLine(body)};
}

std::string JsonLine(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

const char* ApiFinish(const ApiChoice& choice) {
  switch (choice.result->finish) {
    case FinishReason::kEos:
    case FinishReason::kStop: return choice.answer.calls.empty() ? "stop" : "tool_calls";
    default: return "length";
  }
}

OrderedJson ErrorJson(const ApiError& error, ApiEndpoint endpoint) {
  if (IsOllama(endpoint)) return OllamaErrorJson(error);
  return IsAnthropic(endpoint) ? AnthropicErrorJson(error) : ErrorJson(error);
}

OrderedJson AnswerJson(const ApiAnswer& answer, OrderedJson bill) {
  const bool chat = answer.endpoint == ApiEndpoint::kChat;
  OrderedJson choices = OrderedJson::array();
  for (const ApiChoice& choice : answer.choices) {
    OrderedJson json = {{"index", choices.size()}};
    if (chat) {
      json["message"] = MessageJson(choice.answer);
    } else {
      json["text"] = choice.answer.content;
    }
    if (answer.token_ids) json["token_ids"] = choice.result->tokens;
    if (answer.prompt_ids && !chat) json["prompt_token_ids"] = choice.prompt_ids;
    if (!choice.prompt_logprobs.is_null() && !chat) json["prompt_logprobs"] = choice.prompt_logprobs;
    json["logprobs"] = !answer.logprobs ? OrderedJson()
                       : chat           ? ChatLogprobsJson(choice.logprobs)
                                        : TextLogprobsJson(choice.logprobs);
    json["finish_reason"] = ApiFinish(choice);
    if (OrderedJson reason = StopReasonJson(choice); !reason.is_null()) json["stop_reason"] = std::move(reason);
    choices.push_back(std::move(json));
  }
  OrderedJson json = {{"id", answer.id},
                      {"object", chat ? "chat.completion" : "text_completion"},
                      {"created", answer.created},
                      {"model", answer.model},
                      {"choices", std::move(choices)},
                      {"usage", UsageJson(answer.usage, std::move(bill))},
                      {"seed", answer.seed}};
  if (!answer.fingerprint.empty()) json["system_fingerprint"] = answer.fingerprint;
  // Of a chat, whose choices have one prompt.
  const ApiChoice& first = answer.choices.front();
  if (answer.prompt_ids && chat) json["prompt_token_ids"] = first.prompt_ids;
  if (!first.prompt_logprobs.is_null() && chat) json["prompt_logprobs"] = first.prompt_logprobs;
  return json;
}

}  // namespace tally
