// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_answer.h"

#include <algorithm>
#include <utility>

#include "engine/serve/api_anthropic.h"

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

OrderedJson BytesOf(const Cost& cost) {
  OrderedJson bytes = OrderedJson::object();
  for (size_t k = 0; k < kByteKindNames.size(); ++k) {
    bytes[std::string(kByteKindNames[k])] = cost.Bytes(static_cast<ByteKind>(k));
  }
  return bytes;
}

OrderedJson WorkJson(const BillWork& work) {
  OrderedJson classes = OrderedJson::object();
  for (size_t c = 0; c < kWorkClassNames.size(); ++c) {
    const uint64_t flops = work.useful.Flops(static_cast<WorkClass>(c));
    if (flops > 0) classes[std::string(kWorkClassNames[c])] = flops;
  }
  return {{"rows", work.rows},
          {"logit_rows", work.logit_rows},
          {"rows_again", work.rows_again},
          {"rows_in_vain", work.rows_in_vain},
          {"flops", work.useful.TotalFlops()},
          {"special", work.useful.TotalSpecial()},
          {"bytes", BytesOf(work.useful)},
          {"flops_by_class", std::move(classes)}};
}

// JSON has no infinity.
double Finite(double logprob) { return std::max(logprob, -9999.0); }

OrderedJson LogprobJson(const std::string& bytes, double logprob) {
  return {{"token", bytes}, {"logprob", Finite(logprob)}, {"bytes", BytesJson(bytes)}};
}

}  // namespace

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
    OrderedJson& json = content.emplace_back(LogprobJson(token.bytes, token.logprob));
    json["top_logprobs"] = OrderedJson::array();
    for (const auto& [bytes, logprob] : token.top) json["top_logprobs"].push_back(LogprobJson(bytes, logprob));
  }
  return content;
}

OrderedJson ChatLogprobsJson(std::span<const ApiLogprob> logprobs) {
  return {{"content", ChatLogprobsList(logprobs)}, {"refusal", nullptr}};
}

int64_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

OrderedJson TextLogprobsJson(std::span<const ApiLogprob> logprobs, int64_t offset) {
  OrderedJson tokens = OrderedJson::array(), values = tokens, tops = tokens, offsets = tokens;
  for (const ApiLogprob& token : logprobs) {
    tokens.push_back(token.bytes);
    values.push_back(Finite(token.logprob));
    OrderedJson& top = tops.emplace_back(OrderedJson::object());
    for (const auto& [bytes, logprob] : token.top) top[bytes] = Finite(logprob);
    if (!top.contains(token.bytes)) top[token.bytes] = Finite(token.logprob);
    offsets.push_back(offset);
    offset += Characters(token.bytes);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

std::string JsonLine(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

const char* ApiFinish(const ApiChoice& choice) {
  switch (choice.result->finish) {
    case FinishReason::kEos:
    case FinishReason::kStop: return choice.answer.calls.empty() ? "stop" : "tool_calls";
    default: return "length";
  }
}

OrderedJson BillJson(std::span<const std::shared_ptr<Request>> choices, Engine& engine) {
  int64_t prompt_tokens = 0, decode_tokens = 0, decode_steps = 0, forced_tokens = 0, preemptions = 0;
  uint64_t kv_bytes = 0;
  double prompt_seconds = 0, first_token_seconds = 0, generate_seconds = 0;
  Bill bill;
  for (const std::shared_ptr<Request>& choice : choices) {
    const GenerateResult& r = choice->result();
    prompt_tokens += r.prompt_tokens;
    decode_tokens += r.decode_tokens;
    decode_steps += r.decode_steps;
    forced_tokens += r.forced;
    preemptions += choice->preemptions();
    prompt_seconds += r.prompt_seconds;
    generate_seconds += r.generate_seconds;
    bill += r.bill;
    kv_bytes += choice->held_bytes();
    if (r.first_token_seconds > 0 && (first_token_seconds == 0 || r.first_token_seconds < first_token_seconds)) {
      first_token_seconds = r.first_token_seconds;
    }
  }
  OrderedJson json = {{"prompt_tokens", prompt_tokens},
                      {"decode_tokens", decode_tokens},
                      {"decode_steps", decode_steps},
                      {"preemptions", preemptions},
                      {"prompt_seconds", prompt_seconds},
                      {"first_token_seconds", first_token_seconds},
                      {"generate_seconds", generate_seconds},
                      {"prefill", WorkJson(bill.at(Phase::kPrefill))},
                      {"decode", WorkJson(bill.at(Phase::kDecode))},
                      {"parameters_touched", bill.parameters_touched()},
                      {"parameters_active", engine.model().parameters().active_all},
                      {"kv_bytes", kv_bytes}};
  if (forced_tokens > 0) json["forced_tokens"] = forced_tokens;
  if (const DraftWork& drafts = bill.drafts; drafts.rows > 0) {
    json["drafts"] = {{"rows", drafts.rows},
                      {"accepted", drafts.accepted},
                      {"not_accepted", drafts.rejected},
                      {"not_accepted_flops", drafts.in_vain.TotalFlops()},
                      {"not_accepted_bytes", BytesOf(drafts.in_vain)}};
    if (drafts.predicting != Cost()) {
      json["drafts"]["predicting_flops"] = drafts.predicting.TotalFlops();
      json["drafts"]["predicting_bytes"] = BytesOf(drafts.predicting);
    }
  }
  const std::vector<WeightInfo>& weights = engine.ledger().weights();
  for (size_t id = 0; id < weights.size(); ++id) {
    const WeightInfo& w = weights[id];
    if (!w.experts || w.component != Component::kFfnDown || w.rows == 1) continue;
    json["experts_touched"][std::to_string(w.layer)] = bill.touched.touched(static_cast<WeightId>(id)) / (w.rows * w.cols);
  }
  return json;
}

OrderedJson ErrorJson(const ApiError& error, ApiEndpoint endpoint) {
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
    json["logprobs"] = !answer.logprobs ? OrderedJson()
                       : chat           ? ChatLogprobsJson(choice.logprobs)
                                        : TextLogprobsJson(choice.logprobs);
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
