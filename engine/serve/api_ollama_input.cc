// SPDX-License-Identifier: Apache-2.0
// Bodies of ollama's /api/chat and /api/generate.
#include <string>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/serve/api_messages.h"
#include "engine/serve/api_ollama.h"

namespace tally {
namespace {

// Calls and results are matched by their order where they have no ids, as those of older clients.
class OllamaMessages {
 public:
  explicit OllamaMessages(std::vector<ChatMessage>* messages) : messages_(messages) {}

  void Add(const OrderedJson& json, const std::string& place, ApiReading* reading) {
    ApiObject object(json, place, reading);
    ChatMessage message{.role = object.Text("role").value_or("")};
    const bool tool = message.role == "tool";
    if (message.role != "system" && message.role != "user" && message.role != "assistant" && !tool) {
      object.Fail("role", "is " + Quote(message.role) + ": expected system, user, assistant or tool");
    }
    message.content = object.Text("content").value_or("");
    message.reasoning = object.Text("thinking").value_or("");
    message.name = object.Text("tool_name").value_or("");
    message.tool_call_id = object.Text("tool_call_id").value_or("");
    AddCalls(object, &message);
    object.End();
    if (!tool) {
      message.name.clear();
      message.tool_call_id.clear();
    } else if (message.tool_call_id.empty()) {
      message.tool_call_id = TakeUnanswered(message.name);
    }
    if (message.role != "assistant") message.reasoning.clear();
    messages_->push_back(std::move(message));
  }

 private:
  void AddCalls(ApiObject& object, ChatMessage* message) {
    const OrderedJson* const calls = object.Array("tool_calls");
    for (size_t i = 0; calls != nullptr && i < calls->size() && object.ok(); ++i) {
      const std::string place = ElementPlace(object.Place("tool_calls"), i);
      ApiObject call((*calls)[i], place, object.reading());
      ToolCall read{.id = call.Text("id").value_or("")};
      ReadCalledFunction(call, place, /*index=*/true, &read);  // calls are in their order
      if (read.id.empty()) read.id = NewId();
      unanswered_.push_back(read);
      message->tool_calls.push_back(std::move(read));
    }
  }
  // 9 letters and digits, which every template takes.
  std::string NewId() {
    std::string digits = std::to_string(++made_);
    return "call" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  }
  // The id of the first call of that function, or of any if it has no name, that has no result yet. Empty: there is none.
  std::string TakeUnanswered(const std::string& name) {
    for (auto call = unanswered_.begin(); call != unanswered_.end(); ++call) {
      if (!name.empty() && call->name != name) continue;
      std::string id = call->id;
      unanswered_.erase(call);
      return id;
    }
    return "";
  }

  std::vector<ChatMessage>* const messages_;
  std::vector<ToolCall> unanswered_;
  size_t made_ = 0;
};

// "json", or a JSON Schema.
void ReadOllamaFormat(ApiObject& body, AnswerFormat* format) {
  const OrderedJson* const json = body.Take("format");
  if (json == nullptr || *json == "") return;
  if (*json == "json") {
    *format = {.kind = AnswerFormat::Kind::kJsonObject, .field = "format"};
  } else if (json->is_object()) {
    *format = {.kind = AnswerFormat::Kind::kSchema, .text = json->dump(), .field = "format"};
  } else {
    body.Fail("format", "must be \"json\" or a JSON Schema", "invalid_type");
  }
}

// A flag, or an effort.
void ReadThink(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const think = body.Take("think");
  if (think == nullptr || *think == "") return;
  if (think->is_boolean()) {
    chat->thinking = think->get<bool>();
  } else {
    ReadEffort(body, "think", chat);
    if (!chat->thinking) chat->thinking = true;
  }
}

// keep_alive is 0, in any of the ways to write it.
bool Unloads(const OrderedJson& json) {
  const auto keep = json.find("keep_alive");
  if (keep == json.end()) return false;
  return keep->is_number() ? *keep == 0 : *keep == "0" || *keep == "0s" || *keep == "0m" || *keep == "0h";
}

void ReadGenerate(ApiObject& body, ApiRequest* request) {
  std::string prompt = body.Text("prompt").value_or("");
  std::string system = body.Text("system").value_or("");
  const bool raw = body.Flag("raw").value_or(false);
  if (raw && !system.empty()) return body.Fail("system", "and raw exclude each other: a raw prompt is the whole prompt");
  request->load = prompt.empty();
  if (request->load) return;
  if (raw) {
    request->prompts.push_back({{.text = std::move(prompt), .parse_special = true}});
    return;
  }
  if (!system.empty()) request->chat.messages.push_back({.role = "system", .content = std::move(system)});
  request->chat.messages.push_back({.role = "user", .content = std::move(prompt)});
}

void ReadChat(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const messages = body.Array("messages");
  request->load = messages == nullptr || messages->empty();
  OllamaMessages read(&request->chat.messages);
  for (size_t i = 0; !request->load && i < messages->size() && body.ok(); ++i) {
    read.Add((*messages)[i], ElementPlace("messages", i), body.reading());
  }
  NameResults(&request->chat.messages);
  ReadFunctionTools(body, &request->chat);
  if (request->load || !body.ok()) return;
  // An answer continues what the last message begins.
  const ChatMessage& last = request->chat.messages.back();
  if (last.role == "assistant" && last.tool_calls.empty() && !last.content.empty()) ContinueLast(body, &request->chat);
}

}  // namespace

void ReadOllamaBody(ApiObject& body, const OrderedJson& json, ApiRequest* request) {
  ReadOllamaFormat(body, &request->format);
  ReadThink(body, &request->chat);
  if (request->endpoint == ApiEndpoint::kOllamaChat) {
    ReadChat(body, request);
  } else {
    ReadGenerate(body, request);
  }
  if (request->load && body.ok() && Unloads(json)) {
    body.Fail("keep_alive", "is 0: clients unload no model here", "unsupported_value");
  }
}

void ReadOllamaLimits(ApiObject& options, ApiRequest* request) {
  // -1 and -2, and 0 in ollama's code: until the context is full.
  if (const std::optional<int64_t> most = options.Whole("num_predict", -2, INT32_MAX)) {
    request->max_tokens = *most > 0 ? *most : -1;
  }
  request->context = options.Whole("num_ctx", 0, INT32_MAX);
}

}  // namespace tally
