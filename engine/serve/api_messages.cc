// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/format.h"
#include "engine/base/hash.h"

namespace tally {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
constexpr std::array<std::string_view, 3> kEfforts = {"low", "medium", "high"};

template <size_t N>
bool IsOneOf(const std::array<std::string_view, N>& all, std::string_view text) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

std::string ReadParts(const OrderedJson& parts, const std::string& where, std::optional<ApiError>* error) {
  std::string text;
  for (size_t i = 0; i < parts.size() && !error->has_value(); ++i) {
    ApiObject part(parts[i], ElementPlace(where, i), error);
    const std::string type = part.Text("type").value_or("");
    if (type != "text") {
      part.Fail("type", "is " + Quote(type) + ": only parts of the type \"text\" are supported (no images, audio or files)",
                "unsupported_value");
    }
    const std::optional<std::string> piece = part.Text("text");
    if (!piece) part.Fail("text", "is missing", "missing_required_parameter");
    part.End();
    if (i > 0) text += '\n';
    text += piece.value_or("");
  }
  return text;
}

void ReadContent(ApiObject& object, ChatMessage* message) {
  const OrderedJson* const content = object.Take("content");
  if (content == nullptr) {
    const bool may_lack = message->role == "assistant" && (!message->tool_calls.empty() || !message->reasoning.empty());
    if (!may_lack) object.Fail("content", "is missing", "missing_required_parameter");
  } else if (content->is_string()) {
    message->content = content->get<std::string>();
  } else if (content->is_array()) {
    message->content = ReadParts(*content, object.Place("content"), object.error());
  } else {
    object.Fail("content", "must be a string or an array of parts of text", "invalid_type");
  }
}

void ReadCalls(ApiObject& object, ChatMessage* message) {
  const OrderedJson* const calls = object.Array("tool_calls");
  for (size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
    const std::string place = ElementPlace(object.Place("tool_calls"), i);
    ApiObject call((*calls)[i], place, object.error());
    ToolCall& read = message->tool_calls.emplace_back();
    read.id = call.Text("id").value_or("");
    if (call.Text("type").value_or("function") != "function") call.Fail("type", "must be \"function\"", "unsupported_value");
    call.Ignore({"index"});  // clients that put calls together from a stream keep it
    const OrderedJson* const function = call.Object("function");
    if (function == nullptr) {
      call.Fail("function", "is missing", "missing_required_parameter");
      return;
    }
    call.End();
    ApiObject of(*function, place + ".function", object.error());
    read.name = of.Text("name").value_or("");
    if (read.name.empty()) of.Fail("name", "is missing", "missing_required_parameter");
    if (const OrderedJson* const arguments = of.Take("arguments")) {
      read.arguments = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
    }
    of.End();
  }
}

// Refuses a member that answers have, unless a request sends it back empty.
void RefuseUnlessEmpty(ApiObject& object, std::string_view name) {
  const OrderedJson* const value = object.Take(name);
  if (value == nullptr || value->empty() || *value == "") return;
  object.Fail(name, "is not supported", "unsupported_parameter");
}

ChatMessage ReadApiMessage(const OrderedJson& json, const std::string& where, std::optional<ApiError>* error) {
  ApiObject object(json, where, error);
  ChatMessage message;
  const std::optional<std::string> role = object.Text("role");
  if (!role) object.Fail("role", "is missing", "missing_required_parameter");
  message.role = role.value_or("");
  if (!IsOneOf(kRoles, message.role)) {
    object.Fail("role", "is " + Quote(message.role) + ": expected system, developer, user, assistant or tool");
  }
  const bool assistant = message.role == "assistant", tool = message.role == "tool";
  if (assistant) {
    // Clients send thinking back under either name, some under both.
    message.reasoning = object.Text("reasoning_content").value_or("");
    const std::string other = object.Text("reasoning").value_or("");
    if (message.reasoning.empty()) message.reasoning = other;
    ReadCalls(object, &message);
    for (const char* name : {"refusal", "annotations", "audio", "function_call"}) RefuseUnlessEmpty(object, name);
    object.Ignore({"type", "function"});  // @openai/agents writes those of a call there
  }
  ReadContent(object, &message);
  message.name = object.Text("name").value_or("");
  if (tool) {
    message.tool_call_id = object.Text("tool_call_id").value_or("");
    if (message.tool_call_id.empty()) object.Fail("tool_call_id", "is missing", "missing_required_parameter");
  }
  object.End();
  return message;
}

void ReadTools(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const tools = body.Array("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size() && body.ok(); ++i) {
    const std::string place = ElementPlace("tools", i);
    ApiObject tool((*tools)[i], place, body.error());
    if (tool.Text("type").value_or("function") != "function") {
      tool.Fail("type", "must be \"function\": tools of other types are not supported", "unsupported_value");
    }
    const OrderedJson* const function = tool.Object("function");
    if (function == nullptr) {
      tool.Fail("function", "is missing", "missing_required_parameter");
      return;
    }
    tool.End();
    ApiObject of(*function, place + ".function", body.error());
    if (of.Text("name").value_or("").empty()) of.Fail("name", "is missing", "missing_required_parameter");
    (void)of.Text("description");
    (void)of.Object("parameters");
    (void)of.Flag("strict");  // the model is asked, not held to it
    of.End();
    if (body.ok()) chat->tools.push_back((*tools)[i].dump());
  }
}

void ReadVariables(ApiObject& body, ChatRequest* chat) {
  ReadEffort(body, "reasoning_effort", chat);
  const OrderedJson* const variables = body.Object("chat_template_kwargs");
  if (variables != nullptr) {
    for (const auto& [name, value] : variables->items()) {
      if (name == "messages" || name == "tools" || name == "add_generation_prompt") {
        return body.Fail("chat_template_kwargs", "cannot set " + name);
      }
      // Formats other than Jinja have it as a setting.
      if (name == "reasoning_effort" && value.is_string() && chat->reasoning_effort.empty()) {
        chat->reasoning_effort = value.get<std::string>();
      } else {
        chat->variables[name] = value.dump();
      }
    }
  }
  if (!chat->reasoning_effort.empty() && !IsOneOf(kEfforts, chat->reasoning_effort)) {
    body.Fail("reasoning_effort", "must be low, medium or high, not " + Quote(chat->reasoning_effort), "unsupported_value");
  }
}

}  // namespace

// A result names its call by id; templates also want the function's name.
void NameResults(std::vector<ChatMessage>* messages) {
  StringMap<std::string> functions;  // by call
  for (ChatMessage& message : *messages) {
    for (const ToolCall& call : message.tool_calls) functions.insert_or_assign(call.id, call.name);
    if (message.role != "tool" || !message.name.empty()) continue;
    if (const auto called = functions.find(message.tool_call_id); called != functions.end()) message.name = called->second;
  }
}

void ReadToolChoice(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const choice = body.Take("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object()) {
    body.Fail("tool_choice", "names a function: calls cannot be forced; \"auto\" and \"none\" are supported",
              "unsupported_value");
  } else if (*choice == "none") {
    chat->tools.clear();
    chat->most_calls = 0;
  } else if (*choice == "required") {
    body.Fail("tool_choice", "is \"required\": calls cannot be forced; \"auto\" and \"none\" are supported", "unsupported_value");
  } else if (*choice != "auto") {
    body.Fail("tool_choice", "must be \"auto\" or \"none\"");
  }
}

void ReadEffort(ApiObject& object, const char* name, ChatRequest* chat) {
  const std::optional<std::string> effort = object.Text(name);
  if (!effort) return;
  chat->reasoning_effort = *effort;
  if (!IsOneOf(kEfforts, *effort)) {
    object.Fail(name, "must be low, medium or high, not " + Quote(*effort), "unsupported_value");
  }
}

void ReadApiChat(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const messages = body.Array("messages");
  if (messages == nullptr || messages->empty()) {
    body.Fail("messages", messages == nullptr ? "is missing" : "is empty", "missing_required_parameter");
    return;
  }
  for (size_t i = 0; i < messages->size() && body.ok(); ++i) {
    chat->messages.push_back(ReadApiMessage((*messages)[i], ElementPlace("messages", i), body.error()));
  }
  NameResults(&chat->messages);
  ReadTools(body, chat);
  ReadToolChoice(body, chat);
  ReadVariables(body, chat);
}

}  // namespace tally
