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

template <size_t N>
bool IsOneOf(const std::array<std::string_view, N>& all, std::string_view text) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

std::string ReadParts(const OrderedJson& parts, const std::string& where, ApiReading* reading) {
  std::string text;
  for (size_t i = 0; i < parts.size() && !reading->error; ++i) {
    ApiObject part(parts[i], ElementPlace(where, i), reading);
    const std::string type = part.Text("type").value_or("");
    const bool refusal = type == "refusal";
    if (type != "text" && !refusal) {
      part.Fail("type", "is " + Quote(type) + ": only parts of the type \"text\" are supported (no images, audio or files)",
                "unsupported_value");
    }
    const char* const name = refusal ? "refusal" : "text";
    const std::optional<std::string> piece = part.Text(name);
    if (!piece) part.Fail(name, "is missing", "missing_required_parameter");
    part.End();
    if (i > 0) text += '\n';
    text += piece.value_or("");
  }
  return text;
}

void ReadContent(ApiObject& object, ChatMessage* message) {
  const OrderedJson* const content = object.Take("content");
  const std::string refusal = message->role == "assistant" ? object.Text("refusal").value_or("") : "";
  if (content == nullptr) {
    const bool may_lack =
        message->role == "assistant" && (!message->tool_calls.empty() || !message->reasoning.empty() || !refusal.empty());
    if (!may_lack) object.Fail("content", "is missing", "missing_required_parameter");
  } else if (content->is_string()) {
    message->content = content->get<std::string>();
  } else if (content->is_array()) {
    message->content = ReadParts(*content, object.Place("content"), object.reading());
  } else {
    object.Fail("content", "must be a string or an array of parts of text", "invalid_type");
  }
  if (!message->content.empty() && !refusal.empty()) message->content += '\n';
  message->content += refusal;
}

void ReadCalls(ApiObject& object, ChatMessage* message) {
  const OrderedJson* const calls = object.Array("tool_calls");
  for (size_t i = 0; calls != nullptr && i < calls->size() && object.ok(); ++i) {
    const std::string place = ElementPlace(object.Place("tool_calls"), i);
    ApiObject call((*calls)[i], place, object.reading());
    ToolCall& read = message->tool_calls.emplace_back();
    read.id = call.Text("id").value_or("");
    if (call.Text("type").value_or("function") != "function") call.Fail("type", "must be \"function\"", "unsupported_value");
    call.Skip({"index"});  // clients that put calls together from a stream keep it
    ReadCalledFunction(call, place, /*index=*/false, &read);
  }
}

// `*prefix`: it says that it is the beginning of the answer.
ChatMessage ReadApiMessage(const OrderedJson& json, const std::string& where, ApiReading* reading, bool* prefix) {
  ApiObject object(json, where, reading);
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
  }
  *prefix = object.Flag("prefix").value_or(false);
  ReadContent(object, &message);
  message.name = object.Text("name").value_or("");
  if (tool) {
    message.tool_call_id = object.Text("tool_call_id").value_or("");
    if (message.tool_call_id.empty()) object.Fail("tool_call_id", "is missing", "missing_required_parameter");
  }
  object.End();
  return message;
}

// Which of the two a body that ends with an assistant's message asks for: an answer that continues it, or a new one.
void ReadContinuation(ApiObject& body, bool prefix, ChatRequest* chat) {
  const std::optional<bool> begin = body.Flag("add_generation_prompt"), go_on = body.Flag("continue_final_message");
  const ChatMessage& last = chat->messages.back();
  chat->add_generation_prompt = begin.value_or(true);
  if (begin.value_or(false) && go_on.value_or(false)) {
    return body.Fail("continue_final_message", "and add_generation_prompt cannot both be true");
  }
  const bool is_begun = last.role == "assistant" && last.tool_calls.empty() && !(last.content.empty() && !last.reasoning.empty());
  if (go_on.value_or(prefix)) return ContinueLast(body, chat);
  if (!go_on && !begin && is_begun && !chat->must_call) ContinueLast(body, chat);
}

// What a template is given of an object: the members that have been taken, without those that are null.
OrderedJson TakenOf(const OrderedJson& json, const ApiObject& object) {
  OrderedJson taken = OrderedJson::object();
  for (const auto& [name, value] : json.items()) {
    if (object.HasTaken(name) && !value.is_null()) taken[name] = value;
  }
  return taken;
}

void ReadTools(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const tools = body.Array("tools");
  if (tools == nullptr) return;
  HostedTools hosted(body, "function");
  for (size_t i = 0; i < tools->size() && body.ok(); ++i) {
    const std::string place = ElementPlace("tools", i);
    ApiObject tool((*tools)[i], place, body.reading());
    if (hosted.LeavesOut(tool, tool.Text("type").value_or("function"))) continue;
    const OrderedJson* const function = tool.Object("function");
    if (function == nullptr) {
      tool.Fail("function", "is missing", "missing_required_parameter");
      return;
    }
    tool.End();
    ApiObject of(*function, place + ".function", body.reading());
    if (of.Text("name").value_or("").empty()) of.Fail("name", "is missing", "missing_required_parameter");
    (void)of.Text("description");
    (void)of.Object("parameters");
    if (of.Flag("strict").value_or(false)) chat->strict.push_back(of.Text("name").value_or(""));
    of.End();
    if (!body.ok()) return;
    OrderedJson taken = TakenOf((*tools)[i], tool);
    taken["function"] = TakenOf(*function, of);
    chat->tools.push_back(taken.dump());
  }
  hosted.End(chat->tools.size());
}

// Sets the effort. The least and the most that clients know become the least and the most that templates know; the least is no thinking,
// where a template has that.
void SetEffort(const std::string& effort, ApiObject& object, std::string_view name, ChatRequest* chat) {
  if (effort == "none" || effort == "minimal") {
    chat->reasoning_effort = "low";
    if (!chat->thinking) chat->thinking = false;
  } else if (effort == "xhigh" || effort == "max") {
    chat->reasoning_effort = "high";
  } else if (effort == "low" || effort == "medium" || effort == "high") {
    chat->reasoning_effort = effort;
  } else {
    object.Fail(name, "must be none, minimal, low, medium, high or xhigh, not " + Quote(effort), "unsupported_value");
  }
}

}  // namespace

bool HostedTools::LeavesOut(ApiObject& tool, const std::string& type) {
  if (type == expected_ || !tool.ok()) return false;
  const std::string message = "is " + Quote(type) + ": only " + expected_ + " is supported, tools that the client runs";
  if (first_.empty()) {
    first_ = tool.Place("type");
    message_ = message;
  }
  tool.LeaveOut("tools[" + type + "]", "type", message);
  return true;
}

void HostedTools::End(size_t kept) {
  if (first_.empty() || kept > 0 || !body_.ok()) return;
  body_.Fail(first_, message_, "unsupported_value");
}

// A result names its call by id; templates also want the function's name.
void NameResults(std::vector<ChatMessage>* messages) {
  StringMap<std::string> functions;  // by call
  for (ChatMessage& message : *messages) {
    for (const ToolCall& call : message.tool_calls) functions.insert_or_assign(call.id, call.name);
    if (message.role != "tool" || !message.name.empty()) continue;
    if (const auto called = functions.find(message.tool_call_id); called != functions.end()) message.name = called->second;
  }
}

void ReadCalledFunction(ApiObject& call, const std::string& place, bool index, ToolCall* read) {
  const OrderedJson* const function = call.Object("function");
  if (function == nullptr) return call.Fail("function", "is missing", "missing_required_parameter");
  call.End();
  ApiObject of(*function, place + ".function", call.reading());
  read->name = of.Text("name").value_or("");
  if (read->name.empty()) of.Fail("name", "is missing", "missing_required_parameter");
  if (const OrderedJson* const arguments = of.Take("arguments")) {
    read->arguments = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
  }
  if (index) of.Skip({"index"});
  of.End();
}

void ContinueLast(ApiObject& body, ChatRequest* chat) {
  const ChatMessage& last = chat->messages.back();
  if (last.role != "assistant" || !last.tool_calls.empty()) {
    body.Fail("messages", "end with what cannot be continued: only an assistant's message without calls can",
              "unsupported_value");
  } else if (last.content.empty() && !last.reasoning.empty()) {
    body.Fail("messages", "end with thinking, which cannot be continued", "unsupported_value");
  } else if (chat->must_call) {
    body.Fail("messages", "end with a message that is to be continued, and tool_choice asks for a call", "unsupported_value");
  }
  chat->continue_last = true;
}

bool HasTool(const ChatRequest& chat, const std::string& name) {
  return std::ranges::any_of(chat.tools, [&](const std::string& tool) {
    const OrderedJson json = OrderedJson::parse(tool, nullptr, /*allow_exceptions=*/false);
    return json.is_object() && json.contains("function") && json["function"].is_object() &&
           json["function"].value("name", "") == name;
  });
}

void ReadToolChoice(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const choice = body.Take("tool_choice");
  if (choice == nullptr) return;
  const auto must_call = [&] {
    if (chat->tools.empty()) return body.Fail("tool_choice", "asks for a call, and there are no tools");
    for (const std::string& name : chat->callable) {
      if (!HasTool(*chat, name)) return body.Fail("tool_choice", "names " + Quote(name) + ", which is not among the tools");
    }
    chat->must_call = true;
  };
  // The function's name: {"type": "function", "function": {"name": NAME}}, or {"type": "function", "name": NAME}.
  const auto add_name = [&](const OrderedJson& function) {
    const OrderedJson& named = function.contains("function") ? function["function"] : function;
    if (!named.is_object() || !named.contains("name") || !named["name"].is_string())
      return body.Fail("tool_choice", "names no function");
    chat->callable.push_back(named["name"].get<std::string>());
  };
  if (choice->is_object()) {
    const OrderedJson type = choice->value("type", OrderedJson("function"));
    if (type != "function" && type != "allowed_tools")
      return body.Fail("tool_choice", R"(has a type that is not "function" or "allowed_tools")");
    const OrderedJson& allowed = choice->contains("allowed_tools") ? (*choice)["allowed_tools"] : *choice;
    const bool is_list = allowed.is_object() && allowed.contains("tools") && allowed["tools"].is_array();
    if (!is_list) {
      add_name(*choice);
      if (body.ok()) must_call();
      chat->most_calls = 1;
      return;
    }
    for (const OrderedJson& tool : allowed["tools"]) {
      if (tool.is_object()) add_name(tool);
    }
    const OrderedJson mode = allowed.value("mode", OrderedJson("auto"));
    if (mode != "auto" && mode != "required") return body.Fail("tool_choice", R"(has a mode that is not "auto" or "required")");
    if (chat->callable.empty()) return body.Fail("tool_choice", "allows no tool");
    must_call();
    chat->must_call = mode == "required";
  } else if (*choice == "none") {
    chat->tools.clear();
    chat->most_calls = 0;
  } else if (*choice == "required") {
    must_call();
  } else if (*choice != "auto") {
    body.Fail("tool_choice", "must be \"auto\", \"none\", \"required\" or a function");
  }
}

void ReadFunctionTools(ApiObject& body, ChatRequest* chat) { ReadTools(body, chat); }

void ReadEffort(ApiObject& object, const char* name, ChatRequest* chat) {
  if (const std::optional<std::string> effort = object.Text(name)) SetEffort(*effort, object, name, chat);
}

void ReadTemplateVariables(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const variables = body.Object("chat_template_kwargs");
  if (variables == nullptr) return;
  for (const auto& [name, value] : variables->items()) {
    if (name == "messages" || name == "tools" || name == "add_generation_prompt") {
      return body.Fail("chat_template_kwargs", "cannot set " + name);
    }
    // Formats other than Jinja have it as a setting.
    if (name == "reasoning_effort" && value.is_string()) {
      if (chat->reasoning_effort.empty())
        SetEffort(value.get<std::string>(), body, "chat_template_kwargs.reasoning_effort", chat);
    } else {
      chat->variables[name] = value.dump();
    }
  }
}

void ReadApiChat(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const messages = body.Array("messages");
  if (messages == nullptr || messages->empty()) {
    body.Fail("messages", messages == nullptr ? "is missing" : "is empty", "missing_required_parameter");
    return;
  }
  bool prefix = false;
  for (size_t i = 0; i < messages->size() && body.ok(); ++i) {
    if (prefix) return body.Fail(ElementPlace("messages", i - 1) + ".prefix", "is for the last message");
    chat->messages.push_back(ReadApiMessage((*messages)[i], ElementPlace("messages", i), body.reading(), &prefix));
  }
  NameResults(&chat->messages);
  ReadTools(body, chat);
  ReadToolChoice(body, chat);
  ReadEffort(body, "reasoning_effort", chat);
  ReadTemplateVariables(body, chat);
  ReadContinuation(body, prefix, chat);
}

}  // namespace tally
