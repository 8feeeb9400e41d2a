// SPDX-License-Identifier: Apache-2.0
#include "engine/session/session_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/json.h"

namespace tally {
namespace {

using Json = nlohmann::json;

// A value takes up to 70 bytes for one byte of the text.
constexpr size_t kMaxValues = size_t{1} << 22;

void Put(Json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}

Json MessageJson(const ChatMessage& message) {
  Json object = {{"role", message.role}};
  Put(object, "content", message.content);
  Put(object, "reasoning", message.reasoning);
  Put(object, "tool_call_id", message.tool_call_id);
  Put(object, "name", message.name);
  for (const ToolCall& call : message.tool_calls) {
    object["tool_calls"].push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return object;
}

// Reads members of one object; the first that is not of its type is the status.
class Members {
 public:
  Members(const Json& object, std::string what) : object_(object), what_(std::move(what)) {
    if (!object.is_object()) status_ = BadInput(what_ + " is no object");
  }

  void Text(const char* key, std::string* to) {
    if (const Json* value = Find(key, &Json::is_string)) *to = value->get_ref<const std::string&>();
  }
  void Number(const char* key, int64_t* to) {
    const Json* value = Find(key, &Json::is_number_integer);
    if (value == nullptr) return;
    *to = value->get<int64_t>();
    if (value->is_number_unsigned() && *to < 0) status_ = BadInput(std::string(key) + " of " + what_ + " is out of range");
  }
  template <class Bool>  // or std::optional of it
  void Flag(const char* key, Bool* to) {
    if (const Json* value = Find(key, &Json::is_boolean)) *to = value->get<bool>();
  }
  template <class Read>  // read(element, "KEY[I]") -> Status
  void Array(const char* key, const Read& read) {
    const Json* value = Find(key, &Json::is_array);
    if (value == nullptr) return;
    size_t i = 0;
    for (const Json& element : *value) {
      if (!status_.ok()) return;
      status_ = read(element, std::string(key) + "[" + std::to_string(i++) + "]");
    }
  }
  template <class Read>  // read(name, value) -> Status
  void Object(const char* key, const Read& read) {
    const Json* value = Find(key, &Json::is_object);
    if (value == nullptr) return;
    for (const auto& [name, element] : value->items()) {
      if (status_.ok()) status_ = read(name, element);
    }
  }
  const Status& status() const { return status_; }

 private:
  using IsType = bool (Json::*)() const noexcept;
  const Json* Find(const char* key, IsType is_type) {
    if (!status_.ok()) return nullptr;
    const auto at = object_.find(key);
    if (at == object_.end()) return nullptr;
    if (((*at).*is_type)()) return &*at;
    status_ = BadInput(std::string(key) + " of " + what_ + " is of another type");
    return nullptr;
  }

  const Json& object_;
  const std::string what_;
  Status status_;
};

Status ReadText(const Json& json, const std::string& what, std::string* to) {
  if (!json.is_string()) return BadInput(what + " is no text");
  *to = json.get_ref<const std::string&>();
  return {};
}

Status ReadMessage(const Json& json, const std::string& what, ChatMessage* message) {
  Members members(json, what);
  members.Text("role", &message->role);
  members.Text("content", &message->content);
  members.Text("reasoning", &message->reasoning);
  members.Text("tool_call_id", &message->tool_call_id);
  members.Text("name", &message->name);
  members.Array("tool_calls", [&](const Json& element, const std::string& which) {
    ToolCall& call = message->tool_calls.emplace_back();
    Members of_call(element, which);
    of_call.Text("id", &call.id);
    of_call.Text("name", &call.name);
    of_call.Text("arguments", &call.arguments);
    return of_call.status();
  });
  return members.status();
}

Status ReadSettings(const Json& json, ChatRequest* request) {
  Members members(json, "settings");
  members.Array("tools", [&](const Json& element, const std::string& which) {
    return ReadText(element, which, &request->tools.emplace_back());
  });
  members.Text("reasoning_effort", &request->reasoning_effort);
  members.Flag("thinking", &request->thinking);
  members.Flag("add_generation_prompt", &request->add_generation_prompt);
  members.Number("now", &request->now);
  members.Object("variables", [&](const std::string& name, const Json& element) {
    return ReadText(element, "a variable", &request->variables[name]);
  });
  return members.status();
}

}  // namespace

std::string SessionJson(const std::vector<ChatMessage>& messages, const ChatRequest& settings) {
  Json list = Json::array();
  for (const ChatMessage& message : messages) list.push_back(MessageJson(message));
  Json options = {{"add_generation_prompt", settings.add_generation_prompt}, {"now", settings.now}};
  Put(options, "reasoning_effort", settings.reasoning_effort);
  if (settings.thinking) options["thinking"] = *settings.thinking;
  if (!settings.tools.empty()) options["tools"] = settings.tools;
  if (!settings.variables.empty()) options["variables"] = settings.variables;
  const Json all = {{"messages", std::move(list)}, {"settings", std::move(options)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<ChatRequest> ParseSessionJson(std::string_view text) {
  TALLY_ASSIGN_OR_RETURN(const Json json, ReadJson<Json>("its messages", text, {.values = kMaxValues}));
  ChatRequest request;
  Members members(json, "the session");
  members.Array("messages", [&](const Json& element, const std::string& which) {
    return ReadMessage(element, which, &request.messages.emplace_back());
  });
  if (members.status().ok() && json.contains("settings")) TALLY_RETURN_IF_ERROR(ReadSettings(json["settings"], &request));
  TALLY_RETURN_IF_ERROR(Status(members.status()));
  return request;
}

}  // namespace tally
