// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_stream.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/serve/api_anthropic.h"
#include "engine/serve/api_ollama.h"
#include "engine/serve/api_responses.h"

namespace tally {
namespace {

std::string Data(const OrderedJson& json) { return "data: " + JsonLine(json) + "\n\n"; }
std::string NamedEvent(const OrderedJson& json) { return "event: " + json.at("type").get<std::string>() + "\n" + Data(json); }

// Chunks of /v1/chat/completions and /v1/completions.
class ChunkStream final : public ApiStream {
 public:
  explicit ChunkStream(const ApiRequest& request)
      : chat_(request.endpoint == ApiEndpoint::kChat),
        usage_(request.stream_usage || request.tally.value_or(false)),
        usage_always_(request.usage_always),
        progress_(request.return_progress) {}

  std::string Begin(const Completion& completion) override {
    const ApiAnswer& answer = completion.answer();
    choices_.resize(answer.choices.size());
    base_ = {{"id", answer.id},
             {"object", chat_ ? "chat.completion.chunk" : "text_completion"},
             {"created", answer.created},
             {"model", answer.model},
             {"seed", answer.seed}};
    if (!answer.fingerprint.empty()) base_["system_fingerprint"] = answer.fingerprint;
    if (answer.prompt_ids && chat_) base_["prompt_token_ids"] = answer.choices.front().prompt_ids;
    if (!chat_) return "";
    std::string events;
    for (size_t i = 0; i < choices_.size(); ++i) events += Chunk(i, {{"role", "assistant"}, {"content", ""}}, {}, {});
    base_.erase("prompt_token_ids");  // the first chunk has them
    return events;
  }

  std::string Add(const Completion& completion, const ApiDelta& delta) override {
    Choice& choice = choices_[delta.choice];
    std::string events;
    if (usage_always_) usage_now_ = UsageJson(completion.usage(), {});
    const ApiChoice& whole = completion.answer().choices[delta.choice];
    if (!chat_ && completion.answer().prompt_ids && !std::exchange(choice.told_ids, true)) {
      OrderedJson chunk = ChunkJson(delta.choice, "", {}, {});
      chunk["choices"][0]["prompt_token_ids"] = whole.prompt_ids;
      events += Data(chunk);
    }
    OrderedJson logprobs;
    if (!delta.logprobs.empty()) {
      logprobs = chat_ ? ChatLogprobsJson(delta.logprobs) : TextLogprobsJson(delta.logprobs, choice.characters);
      for (const ApiLogprob& token : delta.logprobs) choice.characters += CharactersOf(token);
    }
    OrderedJson ids;
    if (completion.answer().token_ids && (!chat_ || delta.tokens > 0)) {
      const std::vector<int32_t>& tokens = completion.answer().choices[delta.choice].result->tokens;
      ids = std::vector<int32_t>(tokens.end() - delta.tokens, tokens.end());
    }
    // One chunk for a stretch of one kind; log probabilities and ids go with the first.
    std::string content, thinking;
    const auto flush = [&] {
      if (!chat_ && !(content.empty() && logprobs.is_null() && ids.is_null())) {
        events += Chunk(delta.choice, std::exchange(content, ""), std::exchange(logprobs, {}), {}, std::exchange(ids, {}));
      } else if (!thinking.empty()) {
        events += Chunk(delta.choice, {{"reasoning_content", thinking}, {"reasoning", thinking}}, std::exchange(logprobs, {}), {},
                        std::exchange(ids, {}));
        thinking.clear();
      } else if (!content.empty()) {
        events += Chunk(delta.choice, {{"content", std::exchange(content, "")}}, std::exchange(logprobs, {}), {},
                        std::exchange(ids, {}));
      }
    };
    for (const OutputPart& part : delta.parts) {
      if (part.kind == OutputPart::Kind::kContent) {
        if (!thinking.empty()) flush();
        content += part.text;
      } else if (part.kind == OutputPart::Kind::kReasoning) {
        if (!content.empty()) flush();
        thinking += part.text;
      }
      if (!part.call) continue;
      flush();
      OrderedJson call = {{"index", choice.calls++}};
      call.update(CallJson(*part.call));
      events += Chunk(delta.choice, {{"tool_calls", OrderedJson::array({std::move(call)})}}, std::exchange(logprobs, {}), {},
                      std::exchange(ids, {}));
    }
    flush();
    if (chat_ && !(logprobs.is_null() && ids.is_null())) {
      events += Chunk(delta.choice, OrderedJson::object(), std::exchange(logprobs, {}), {}, std::exchange(ids, {}));
    }
    if (delta.ended && whole.result->error.ok() && whole.result->finish != FinishReason::kInterrupted) {
      OrderedJson chunk = ChunkJson(delta.choice, chat_ ? OrderedJson::object() : OrderedJson(""), {}, ApiFinish(whole));
      if (OrderedJson reason = StopReasonJson(whole); !reason.is_null()) chunk["choices"][0]["stop_reason"] = std::move(reason);
      events += Data(chunk);
    }
    return events;
  }

  std::string End(const Completion& completion) override {
    std::string events;
    if (usage_) {
      OrderedJson chunk = base_;
      chunk["choices"] = OrderedJson::array();
      chunk["usage"] = UsageJson(completion.usage(), completion.BillJson());
      events = Data(chunk);
    }
    return events + "data: [DONE]\n\n";
  }
  std::string Fail(const ApiError& error) override { return Data(ErrorJson(error)); }

  // As llama.cpp's server has it: `processed` includes `cache`, and the first chunk has nothing else in it.
  std::string PromptProgress(const Completion& completion) override {
    std::string events;
    if (!progress_) return events;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Request& request = *completion.requests()[i];
      if (!request.begun() || request.prompt_done() == choices_[i].prompt_told) continue;
      choices_[i].prompt_told = request.prompt_done();
      OrderedJson chunk = ChunkJson(i, chat_ ? OrderedJson::object() : OrderedJson(""), {}, {});
      chunk["prompt_progress"] = {{"total", request.prompt_size()},
                                  {"cache", request.prompt_reused()},
                                  {"processed", request.prompt_done()},
                                  {"time_ms", std::llround(request.result().prompt_seconds * 1e3)}};
      events += Data(chunk);
    }
    return events;
  }

 private:
  struct Choice {
    size_t calls = 0;
    int64_t characters = 0;
    int64_t prompt_told = -1;  // PromptProgress
    bool told_ids = false;     // the prompt's
  };
  // `delta`: an object for a chat, the text for a completion.
  std::string Chunk(size_t index, OrderedJson delta, OrderedJson logprobs, OrderedJson finish, OrderedJson ids = {}) const {
    return Data(ChunkJson(index, std::move(delta), std::move(logprobs), std::move(finish), std::move(ids)));
  }
  OrderedJson ChunkJson(size_t index, OrderedJson delta, OrderedJson logprobs, OrderedJson finish, OrderedJson ids = {}) const {
    OrderedJson choice = {{"index", index}};
    choice[chat_ ? "delta" : "text"] = std::move(delta);
    if (!ids.is_null()) choice["token_ids"] = std::move(ids);
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = std::move(finish);
    OrderedJson chunk = base_;
    chunk["choices"] = OrderedJson::array({std::move(choice)});
    if (usage_) chunk["usage"] = usage_now_;
    return chunk;
  }

  const bool chat_, usage_, usage_always_, progress_;
  OrderedJson usage_now_;  // null, unless usage_always_
  OrderedJson base_;
  std::vector<Choice> choices_;
};

// Events of /v1/responses.
class ResponseStream final : public ApiStream {
 public:
  std::string Begin(const Completion& completion) override {
    output_.emplace(completion.answer().id);
    const OrderedJson response = ResponseJson(completion.answer(), completion.echo(), OrderedJson::array(), "in_progress");
    std::vector<OrderedJson> events;
    for (const char* type : {"response.created", "response.in_progress"})
      events.push_back({{"type", type}, {"response", response}});
    return Events(std::move(events));
  }
  std::string Add(const Completion&, const ApiDelta& delta) override {
    std::vector<OrderedJson> events;
    output_->Add(delta.parts, &events);
    return Events(std::move(events));
  }
  std::string End(const Completion& completion) override {
    ApiAnswer answer = completion.answer();
    answer.usage = completion.usage();
    const std::string status = ResponseStatus(answer);
    std::vector<OrderedJson> events;
    output_->Finish(status == "completed", answer.choices.front().logprobs, &events);
    events.push_back(
        {{"type", "response." + status},
         {"response", ResponseJson(answer, completion.echo(), output_->items(), status.c_str(), completion.BillJson())}});
    return Events(std::move(events));
  }
  std::string Fail(const ApiError& error) override {
    return Event({{"type", "error"},
                  {"code", error.code.empty() ? error.type : error.code},
                  {"message", error.message},
                  {"param", error.param.empty() ? OrderedJson() : OrderedJson(error.param)}});
  }

 private:
  std::string Event(OrderedJson event) {
    event["sequence_number"] = sequence_number_++;
    return NamedEvent(event);
  }
  std::string Events(std::vector<OrderedJson> events) {
    std::string text;
    for (OrderedJson& event : events) text += Event(std::move(event));
    return text;
  }

  std::optional<ResponseOutput> output_;
  int64_t sequence_number_ = 0;
};

// Events of /v1/messages (https://docs.anthropic.com/en/docs/build-with-claude/streaming).
class MessageStream final : public ApiStream {
 public:
  std::string Begin(const Completion& completion) override {
    ApiAnswer answer = completion.answer();
    answer.usage = completion.usage();
    return NamedEvent(
        {{"type", "message_start"}, {"message", AnthropicMessageJson(answer, OrderedJson::array(), /*ended=*/false)}});
  }
  std::string Add(const Completion&, const ApiDelta& delta) override {
    std::vector<OrderedJson> events;
    output_.Add(delta.parts, &events);
    return Events(events);
  }
  std::string End(const Completion& completion) override {
    ApiAnswer answer = completion.answer();
    answer.usage = completion.usage();
    std::vector<OrderedJson> events;
    output_.Finish(&events);
    events.push_back({{"type", "message_delta"},
                      {"delta", AnthropicStopJson(answer.choices.front())},
                      {"usage", AnthropicUsageJson(answer.usage, completion.BillJson())}});
    events.push_back({{"type", "message_stop"}});
    return Events(events);
  }
  std::string Fail(const ApiError& error) override { return NamedEvent(AnthropicErrorJson(error)); }
  std::string Sign() const override { return NamedEvent({{"type", "ping"}}); }

 private:
  static std::string Events(const std::vector<OrderedJson>& events) {
    std::string text;
    for (const OrderedJson& event : events) text += NamedEvent(event);
    return text;
  }

  AnthropicOutput output_;
};

}  // namespace

std::unique_ptr<ApiStream> NewApiStream(const ApiRequest& request) {
  if (request.endpoint == ApiEndpoint::kMessages) return std::make_unique<MessageStream>();
  if (request.endpoint == ApiEndpoint::kResponses) return std::make_unique<ResponseStream>();
  if (IsOllama(request.endpoint)) return NewOllamaStream();
  return std::make_unique<ChunkStream>(request);
}

}  // namespace tally
