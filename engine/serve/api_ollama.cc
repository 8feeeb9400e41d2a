// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_ollama.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/serve/completion.h"

namespace tally {
namespace {

using Kind = OutputPart::Kind;

constexpr std::string_view kLatest = ":latest";

// The time, to the microsecond.
std::string Now() {
  using std::chrono::microseconds;
  const auto since = std::chrono::duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::time_t seconds = since / 1'000'000;
  std::tm utc{};
  char date[32] = "", text[64] = "";
  if (::gmtime_r(&seconds, &utc) != nullptr) (void)std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof text, "%s.%06dZ", date, static_cast<int>(since % 1'000'000));
  return text;
}

// At least 1: clients divide by it.
int64_t Nanoseconds(double seconds) { return std::max<int64_t>(1, std::llround(seconds * 1e9)); }

// Arguments are an object. Those that are no JSON object become text in one.
OrderedJson ArgumentsJson(const std::string& arguments) {
  if (arguments.empty()) return OrderedJson::object();
  if (std::optional<OrderedJson> json = ParseArguments(arguments)) return *std::move(json);
  return {{"arguments", arguments}};
}

OrderedJson CallsJson(const std::vector<ToolCall>& calls, size_t first) {
  OrderedJson list = OrderedJson::array();
  for (const ToolCall& call : calls) {
    OrderedJson function = {{"index", first + list.size()}, {"name", call.name}, {"arguments", ArgumentsJson(call.arguments)}};
    list.push_back({{"id", call.id}, {"function", std::move(function)}});
  }
  return list;
}

// A stretch of an answer, or all of it.
struct Stretch {
  std::string content = {}, thinking = {};
  std::vector<ToolCall> calls = {};
  bool empty() const { return content.empty() && thinking.empty() && calls.empty(); }
};

// `first_call`: how many calls came before.
OrderedJson StretchJson(ApiEndpoint endpoint, const std::string& model, const Stretch& stretch, size_t first_call, bool done) {
  OrderedJson json = {{"model", model}, {"created_at", Now()}};
  if (endpoint == ApiEndpoint::kOllamaGenerate) {
    json["response"] = stretch.content;
    if (!stretch.thinking.empty()) json["thinking"] = stretch.thinking;
  } else {
    OrderedJson& message = json["message"] = {{"role", "assistant"}, {"content", stretch.content}};
    if (!stretch.thinking.empty()) message["thinking"] = stretch.thinking;
    if (!stretch.calls.empty()) message["tool_calls"] = CallsJson(stretch.calls, first_call);
  }
  json["done"] = done;
  return json;
}

void AddFigures(const ApiAnswer& answer, OrderedJson bill, OrderedJson* json) {
  const ApiChoice& choice = answer.choices.front();
  const GenerateResult& result = *choice.result;
  (*json)["done_reason"] = std::string_view(ApiFinish(choice)) == "length" ? "length" : "stop";
  (*json)["total_duration"] = Nanoseconds(MonotonicSeconds() - answer.arrived);
  (*json)["load_duration"] = Nanoseconds(answer.begun - answer.arrived);
  (*json)["prompt_eval_count"] = answer.usage.prompt_tokens;
  (*json)["prompt_eval_duration"] = Nanoseconds(result.prompt_seconds);
  (*json)["eval_count"] = answer.usage.completion_tokens;
  (*json)["eval_duration"] = Nanoseconds(result.generate_seconds);
  if (!bill.is_null()) (*json)["tally"] = std::move(bill);
}

class OllamaStream final : public ApiStream {
 public:
  std::string Begin(const Completion& completion) override {
    endpoint_ = completion.answer().endpoint;
    model_ = completion.answer().model;
    return "";
  }
  std::string Add(const Completion&, const ApiDelta& delta) override {
    logprobs_.insert(logprobs_.end(), delta.logprobs.begin(), delta.logprobs.end());
    // A line for a stretch of one kind; the log probabilities go with the first.
    std::string lines;
    Stretch stretch;
    const auto flush = [&] {
      if (!stretch.empty()) lines += Line(std::exchange(stretch, {}));
    };
    for (const OutputPart& part : delta.parts) {
      if (part.kind == Kind::kContent) {
        if (!stretch.thinking.empty()) flush();
        stretch.content += part.text;
      } else if (part.kind == Kind::kReasoning) {
        if (!stretch.content.empty()) flush();
        stretch.thinking += part.text;
      }
      if (!part.call) continue;
      flush();
      stretch.calls.push_back(*part.call);
      flush();
      ++calls_;
    }
    flush();
    return lines;
  }
  std::string End(const Completion& completion) override {
    ApiAnswer answer = completion.answer();
    answer.usage = completion.usage();
    OrderedJson json = StretchJson(endpoint_, model_, {}, 0, /*done=*/true);
    TakeLogprobs(&json);
    AddFigures(answer, completion.BillJson(), &json);
    return JsonLine(json) + "\n";
  }
  std::string Fail(const ApiError& error) override { return JsonLine(OllamaErrorJson(error)) + "\n"; }
  // Clients take an empty line for an error.
  std::string Sign() const override { return JsonLine(StretchJson(endpoint_, model_, {}, 0, /*done=*/false)) + "\n"; }
  const char* ContentType() const override { return "application/x-ndjson"; }

 private:
  std::string Line(const Stretch& stretch) {
    OrderedJson json = StretchJson(endpoint_, model_, stretch, calls_, /*done=*/false);
    TakeLogprobs(&json);
    return JsonLine(json) + "\n";
  }
  void TakeLogprobs(OrderedJson* json) {
    if (!logprobs_.empty()) (*json)["logprobs"] = ChatLogprobsList(std::exchange(logprobs_, {}));
  }

  ApiEndpoint endpoint_ = ApiEndpoint::kOllamaChat;
  std::string model_;
  size_t calls_ = 0;
  std::vector<ApiLogprob> logprobs_;  // of tokens that no line has shown
};

}  // namespace

std::string_view WithoutLatest(std::string_view name) {
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  return name;
}

std::string OllamaName(std::string_view served) {
  const size_t slash = served.rfind('/');
  const bool has_tag = served.find(':', slash == served.npos ? 0 : slash) != served.npos;
  return std::string(served) + std::string(has_tag ? "" : kLatest);
}

std::string OllamaName(std::string_view asked, const std::string& served) {
  return asked == OllamaName(served) ? std::string(asked) : served;
}

OrderedJson OllamaErrorJson(const ApiError& error) { return {{"error", error.message}}; }

OrderedJson OllamaAnswerJson(const ApiAnswer& answer, OrderedJson bill) {
  const ApiChoice& choice = answer.choices.front();
  OrderedJson json = StretchJson(answer.endpoint, answer.model,
                                 {choice.answer.content, choice.answer.reasoning, choice.answer.calls}, 0, /*done=*/true);
  if (answer.logprobs) json["logprobs"] = ChatLogprobsList(choice.logprobs);
  AddFigures(answer, std::move(bill), &json);
  return json;
}

std::unique_ptr<ApiStream> NewOllamaStream() { return std::make_unique<OllamaStream>(); }

OrderedJson OllamaLoadedJson(ApiEndpoint endpoint, const std::string& model) {
  OrderedJson json = StretchJson(endpoint, model, {}, 0, /*done=*/true);
  json["done_reason"] = "load";
  return json;
}

}  // namespace tally
