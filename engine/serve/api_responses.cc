// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_responses.h"

#include <string_view>
#include <utility>

#include "engine/chat/json_text.h"

namespace tally {
namespace {

using Kind = OutputPart::Kind;

OrderedJson TextPart(bool thinking, const std::string& text) {
  if (thinking) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"}, {"text", text}, {"annotations", OrderedJson::array()}, {"logprobs", OrderedJson::array()}};
}

void Push(OrderedJson event, std::vector<OrderedJson>* events) {
  if (events != nullptr) events->push_back(std::move(event));
}

}  // namespace

ResponseOutput::ResponseOutput(const std::string& response_id) : digits_(response_id.substr(response_id.find('_') + 1)) {}

std::string ResponseOutput::NewId(const char* prefix) const { return prefix + digits_ + "_" + std::to_string(items_.size()); }

OrderedJson ResponseOutput::Event(const char* type, bool of_content) const {
  OrderedJson event = {{"type", type}, {"item_id", items_.back().at("id")}, {"output_index", items_.size() - 1}};
  if (of_content) event["content_index"] = 0;
  return event;
}

void ResponseOutput::Open(Kind kind, std::vector<OrderedJson>* events) {
  const bool thinking = kind == Kind::kReasoning;
  OrderedJson item;
  if (thinking) {
    item = {{"id", NewId("rs_")}, {"type", "reasoning"}, {"status", "in_progress"}, {"summary", OrderedJson::array()}};
  } else {
    item = {{"id", NewId("msg_")}, {"type", "message"}, {"status", "in_progress"}, {"role", "assistant"}};
  }
  item["content"] = OrderedJson::array();
  items_.push_back(item);
  open_ = true;
  kind_ = kind;
  text_.clear();
  Push({{"type", "response.output_item.added"}, {"output_index", items_.size() - 1}, {"item", std::move(item)}}, events);
  OrderedJson part = Event("response.content_part.added", true);
  part["part"] = TextPart(thinking, "");
  Push(std::move(part), events);
}

void ResponseOutput::Close(const char* status, std::vector<OrderedJson>* events) {
  if (!std::exchange(open_, false)) return;
  const bool thinking = kind_ == Kind::kReasoning;
  OrderedJson& item = items_.back();
  const OrderedJson part = TextPart(thinking, text_);
  item["content"].push_back(part);
  item["status"] = status;
  if (events == nullptr) return;
  OrderedJson done = Event(thinking ? "response.reasoning_text.done" : "response.output_text.done", true);
  done["text"] = text_;
  if (!thinking) done["logprobs"] = OrderedJson::array();
  Push(std::move(done), events);
  OrderedJson part_done = Event("response.content_part.done", true);
  part_done["part"] = part;
  Push(std::move(part_done), events);
  Push({{"type", "response.output_item.done"}, {"output_index", items_.size() - 1}, {"item", item}}, events);
}

void ResponseOutput::AddText(const OutputPart& part, std::vector<OrderedJson>* events) {
  if (part.text.empty()) return;
  if (open_ && kind_ != part.kind) Close("completed", events);
  if (!open_) Open(part.kind, events);
  text_ += part.text;
  if (events == nullptr) return;
  const bool thinking = part.kind == Kind::kReasoning;
  OrderedJson delta = Event(thinking ? "response.reasoning_text.delta" : "response.output_text.delta", true);
  delta["delta"] = part.text;
  if (!thinking) delta["logprobs"] = OrderedJson::array();
  Push(std::move(delta), events);
}

void ResponseOutput::AddCall(const ToolCall& call, std::vector<OrderedJson>* events) {
  Close("completed", events);
  items_.push_back({{"id", NewId("fc_")},
                    {"type", "function_call"},
                    {"status", IsJson(call.arguments) ? "completed" : "incomplete"},  // else it was cut
                    {"call_id", call.id},
                    {"name", call.name},
                    {"arguments", call.arguments}});
  if (events == nullptr) return;
  OrderedJson begun = items_.back();
  begun["status"] = "in_progress";
  begun["arguments"] = "";
  Push({{"type", "response.output_item.added"}, {"output_index", items_.size() - 1}, {"item", std::move(begun)}}, events);
  OrderedJson delta = Event("response.function_call_arguments.delta", false),
              done = Event("response.function_call_arguments.done", false);
  delta["delta"] = call.arguments;
  done["name"] = call.name;
  done["arguments"] = call.arguments;
  Push(std::move(delta), events);
  Push(std::move(done), events);
  Push({{"type", "response.output_item.done"}, {"output_index", items_.size() - 1}, {"item", items_.back()}}, events);
}

void ResponseOutput::Add(std::span<const OutputPart> parts, std::vector<OrderedJson>* events) {
  for (const OutputPart& part : parts) {
    if (part.kind == Kind::kContent || part.kind == Kind::kReasoning) AddText(part, events);
    if (part.call) AddCall(*part.call, events);
  }
}

void ResponseOutput::Finish(bool complete, std::span<const ApiLogprob> logprobs, std::vector<OrderedJson>* events) {
  Close(complete ? "completed" : "incomplete", events);
  for (size_t i = items_.size(); !logprobs.empty() && i-- > 0;) {
    if (items_[i].at("type") != "message") continue;
    items_[i]["content"][0]["logprobs"] = ChatLogprobsList(logprobs);
    return;
  }
}

const char* ResponseStatus(const ApiAnswer& answer) {
  return std::string_view(ApiFinish(answer.choices.front())) == "length" ? "incomplete" : "completed";
}

OrderedJson ResponseJson(const ApiAnswer& answer, const OrderedJson& echo, OrderedJson items, const char* status,
                         OrderedJson bill) {
  const std::string_view state = status;
  OrderedJson incomplete;
  if (state == "incomplete") incomplete = {{"reason", "max_output_tokens"}};
  const auto sent = [&](const char* name, OrderedJson otherwise) { return echo.value(name, std::move(otherwise)); };
  OrderedJson json = {{"id", answer.id},
                      {"object", "response"},
                      {"created_at", answer.created},
                      {"status", status},
                      {"background", false},
                      {"error", nullptr},
                      {"incomplete_details", std::move(incomplete)},
                      {"instructions", sent("instructions", nullptr)},
                      {"max_output_tokens", sent("max_output_tokens", nullptr)},
                      {"model", answer.model},
                      {"output", std::move(items)},
                      {"parallel_tool_calls", sent("parallel_tool_calls", true)},
                      {"previous_response_id", nullptr},
                      {"reasoning", sent("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
                      {"store", false},
                      {"temperature", sent("temperature", nullptr)},
                      {"text", sent("text", {{"format", {{"type", "text"}}}})},
                      {"tool_choice", sent("tool_choice", "auto")},
                      {"tools", sent("tools", OrderedJson::array())},
                      {"top_p", sent("top_p", nullptr)},
                      {"truncation", "disabled"},
                      {"usage", nullptr},
                      {"user", sent("user", nullptr)},
                      {"metadata", sent("metadata", OrderedJson::object())},
                      {"seed", answer.seed}};
  if (state == "in_progress") return json;
  const ApiUsage& usage = answer.usage;
  json["usage"] = {{"input_tokens", usage.prompt_tokens},
                   {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                   {"output_tokens", usage.completion_tokens},
                   {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
                   {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  if (!bill.is_null()) json["usage"]["tally"] = std::move(bill);
  return json;
}

}  // namespace tally
