// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_answer.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <utility>

#include "engine/base/mix.h"

namespace tally {
namespace {

OrderedJson CallJson(const ToolCall& call) {
  return {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// Thinking stands under both names that clients read.
OrderedJson MessageJson(const ChatAnswer& answer) {
  OrderedJson message = {{"role", "assistant"}, {"content", answer.content}, {"refusal", nullptr}};
  if (answer.content.empty() && !answer.calls.empty()) message["content"] = nullptr;
  if (!answer.reasoning.empty()) message["reasoning_content"] = message["reasoning"] = answer.reasoning;
  for (const ToolCall& call : answer.calls) message["tool_calls"].push_back(CallJson(call));
  return message;
}

OrderedJson UsageJson(const ApiUsage& usage, OrderedJson bill) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"tally", std::move(bill)}};
}

}  // namespace

ApiIds::ApiIds() {
  std::random_device device;
  key_ = uint64_t{device()} << 32 | device();
}

std::string ApiIds::Next(const char* prefix) {
  const uint64_t n = next_++;
  char digits[40];
  std::snprintf(digits, sizeof digits, "%016llx%08llx", static_cast<unsigned long long>(key_),
                static_cast<unsigned long long>(SplitMix64(key_ ^ n) & 0xffffffffu));
  return prefix + std::string(digits);
}

const char* ApiFinish(const ApiChoice& choice) {
  switch (choice.result->finish) {
    case FinishReason::kEos:
    case FinishReason::kStop: return choice.answer.calls.empty() ? "stop" : "tool_calls";
    default: return "length";
  }
}

OrderedJson BillJson(std::span<const std::shared_ptr<Request>> choices) {
  int64_t prompt_tokens = 0, decode_steps = 0, preemptions = 0;
  double prompt_seconds = 0, first_token_seconds = 0, generate_seconds = 0;
  for (const std::shared_ptr<Request>& choice : choices) {
    const GenerateResult& r = choice->result();
    prompt_tokens += r.prompt_tokens;
    decode_steps += r.decode_steps;
    preemptions += choice->preemptions();
    prompt_seconds += r.prompt_seconds;
    generate_seconds += r.generate_seconds;
    if (r.first_token_seconds > 0 && (first_token_seconds == 0 || r.first_token_seconds < first_token_seconds)) {
      first_token_seconds = r.first_token_seconds;
    }
  }
  return {{"prompt_tokens", prompt_tokens},
          {"decode_steps", decode_steps},
          {"preemptions", preemptions},
          {"prompt_seconds", prompt_seconds},
          {"first_token_seconds", first_token_seconds},
          {"generate_seconds", generate_seconds}};
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
    json["logprobs"] = nullptr;
    json["finish_reason"] = ApiFinish(choice);
    choices.push_back(std::move(json));
  }
  return {{"id", answer.id},
          {"object", chat ? "chat.completion" : "text_completion"},
          {"created", answer.created},
          {"model", answer.model},
          {"choices", std::move(choices)},
          {"usage", UsageJson(answer.usage, std::move(bill))},
          {"seed", answer.seed}};
}

}  // namespace tally
