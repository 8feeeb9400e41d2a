// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_anthropic.h"

#include <utility>

#include "engine/chat/limited_json.h"

namespace tally {
namespace {

using Kind = OutputPart::Kind;

// A call's input is an object. Arguments that are no JSON object become text in one.
OrderedJson InputJson(const std::string& arguments) {
  if (arguments.empty()) return OrderedJson::object();
  if (std::optional<OrderedJson> json = ParseArguments(arguments)) return *std::move(json);
  return {{"arguments", arguments}};
}

// https://docs.anthropic.com/en/api/errors
const char* ErrorType(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

OrderedJson AnthropicOutput::Event(const char* type) const { return {{"type", type}, {"index", blocks_.size() - 1}}; }

OrderedJson AnthropicOutput::Delta(const char* type, const char* name, const std::string& text) const {
  OrderedJson event = Event("content_block_delta");
  event["delta"] = {{"type", type}, {name, text}};
  return event;
}

void AnthropicOutput::Open(OrderedJson block, std::vector<OrderedJson>* events) {
  blocks_.push_back(std::move(block));
  if (events == nullptr) return;
  OrderedJson event = Event("content_block_start");
  event["content_block"] = blocks_.back();
  events->push_back(std::move(event));
}

void AnthropicOutput::Close(std::vector<OrderedJson>* events) {
  if (!std::exchange(open_, false)) return;
  blocks_.back()[kind_ == Kind::kReasoning ? "thinking" : "text"] = std::exchange(text_, "");
  if (events != nullptr) events->push_back(Event("content_block_stop"));
}

void AnthropicOutput::AddText(const OutputPart& part, std::vector<OrderedJson>* events) {
  if (part.text.empty()) return;
  const bool thinking = part.kind == Kind::kReasoning;
  if (open_ && kind_ != part.kind) Close(events);
  if (!std::exchange(open_, true)) {
    kind_ = part.kind;
    // Nothing signs the thinking here, but clients that send it back need the field.
    Open(thinking ? OrderedJson{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}
                  : OrderedJson{{"type", "text"}, {"text", ""}, {"citations", nullptr}},
         events);
  }
  text_ += part.text;
  if (events == nullptr) return;
  events->push_back(thinking ? Delta("thinking_delta", "thinking", part.text) : Delta("text_delta", "text", part.text));
}

void AnthropicOutput::AddCall(const ToolCall& call, std::vector<OrderedJson>* events) {
  Close(events);
  Open({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", OrderedJson::object()}}, events);
  OrderedJson input = InputJson(call.arguments);
  if (events != nullptr) {
    events->push_back(Delta("input_json_delta", "partial_json", JsonLine(input)));
    events->push_back(Event("content_block_stop"));
  }
  blocks_.back()["input"] = std::move(input);
}

void AnthropicOutput::Add(std::span<const OutputPart> parts, std::vector<OrderedJson>* events) {
  for (const OutputPart& part : parts) {
    if (part.kind == Kind::kContent || part.kind == Kind::kReasoning) AddText(part, events);
    if (part.call) AddCall(*part.call, events);
  }
}

void AnthropicOutput::Finish(std::vector<OrderedJson>* events) { Close(events); }

OrderedJson AnthropicStopJson(const ApiChoice& choice) {
  const char* reason = "end_turn";
  OrderedJson stop;
  switch (choice.result->finish) {
    case FinishReason::kEos:
    case FinishReason::kStop:
      if (!choice.answer.calls.empty()) {
        reason = "tool_use";
      } else if (!choice.stop.empty()) {
        reason = "stop_sequence";
        stop = choice.stop;
      }
      break;
    case FinishReason::kContextFull: reason = "model_context_window_exceeded"; break;
    default: reason = "max_tokens"; break;
  }
  return {{"stop_reason", reason}, {"stop_sequence", std::move(stop)}};
}

OrderedJson AnthropicUsageJson(const ApiUsage& usage, OrderedJson bill) {
  OrderedJson json = {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                      {"cache_creation_input_tokens", 0},
                      {"cache_read_input_tokens", usage.cached_tokens},
                      {"output_tokens", usage.completion_tokens}};
  if (!bill.is_null()) json["tally"] = std::move(bill);
  return json;
}

OrderedJson AnthropicMessageJson(const ApiAnswer& answer, OrderedJson blocks, bool ended, OrderedJson bill) {
  OrderedJson json = {{"id", answer.id},
                      {"type", "message"},
                      {"role", "assistant"},
                      {"model", answer.model},
                      {"content", std::move(blocks)},
                      {"stop_reason", nullptr},
                      {"stop_sequence", nullptr}};
  if (ended) json.update(AnthropicStopJson(answer.choices.front()));
  json["usage"] = AnthropicUsageJson(answer.usage, std::move(bill));
  json["seed"] = answer.seed;
  return json;
}

OrderedJson AnthropicErrorJson(const ApiError& error) {
  OrderedJson json = {{"type", ErrorType(error.status)}, {"message", error.message}};
  // As @anthropic-ai/sdk's BetaToolRunner reads it.
  if (error.code == kNoThreads) json["details"] = {{"error_code", error.code}, {"unsupported", {error.param}}};
  return {{"type", "error"}, {"error", std::move(json)}};
}

}  // namespace tally
