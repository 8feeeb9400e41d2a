// SPDX-License-Identifier: Apache-2.0
// The conversation of /v1/responses: items, of which several may make one message
// (https://platform.openai.com/docs/api-reference/responses/create#responses_create-input).
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/format.h"
#include "engine/serve/api_messages.h"

namespace tally {
namespace {

// Text, or parts of text joined by line feeds.
std::string ReadItemText(const OrderedJson& content, const std::string& place, ApiReading* reading) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array() && !reading->error) {
    reading->error =
        ApiError{.message = place + " must be a string or an array of parts of text", .param = place, .code = "invalid_type"};
  }
  for (size_t i = 0; content.is_array() && i < content.size() && !reading->error; ++i) {
    ApiObject part(content[i], ElementPlace(place, i), reading);
    const std::string type = part.Text("type").value_or("");
    const bool refusal = type == "refusal";
    if (!refusal && type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text") {
      part.Fail("type", "is " + Quote(type) + ": only parts of text are supported (no images, audio or files)",
                "unsupported_value");
    }
    const std::optional<std::string> piece = part.Text(refusal ? "refusal" : "text");
    if (!piece) part.Fail(refusal ? "refusal" : "text", "is missing", "missing_required_parameter");
    part.End();
    if (i > 0) text += '\n';
    text += piece.value_or("");
  }
  return text;
}

class Input {
 public:
  Input(std::vector<ChatMessage>* messages, ApiReading* reading) : messages_(messages), reading_(reading) {}

  void Add(const OrderedJson& json, const std::string& place) {
    ApiObject item(json, place, reading_);
    const std::string type = item.Text("type").value_or("message");
    item.Skip({"id", "status"});
    if (type == "message") {
      AddMessage(item);
    } else if (type == "reasoning") {
      if (const OrderedJson* const content = item.Take("content")) {
        Assistant().reasoning += ReadItemText(*content, item.Place("content"), reading_);
      }
    } else if (type == "function_call" || type == "custom_tool_call" || type == "local_shell_call") {
      AddCall(item, type);
    } else if (type == "function_call_output" || type == "custom_tool_call_output" || type == "local_shell_call_output") {
      AddOutput(item);
    } else if (type == "web_search_call") {  // it has no result
      item.LeaveOut("input[" + type + "]", "type", "is 'web_search_call': nothing is searched here");
      return;
    } else {
      item.Fail("type", "is " + Quote(type) + ": expected message, reasoning, function_call or function_call_output",
                "unsupported_value");
    }
    item.End();
  }

  void Push(ChatMessage message) {
    open_ = false;
    messages_->push_back(std::move(message));
  }

 private:
  // The message of the assistant's current turn: its thinking, then its text, then its calls.
  ChatMessage& Assistant() {
    if (!open_) messages_->push_back({.role = "assistant"});
    open_ = true;
    return messages_->back();
  }
  // Calls of tools whose input is no JSON are calls of functions here.
  void AddCall(ApiObject& item, const std::string& type) {
    ToolCall call{.id = item.Text("call_id").value_or("")};
    if (call.id.empty() && type == "local_shell_call") call.id = item.Text("id").value_or("");
    if (call.id.empty()) item.Fail("call_id", "is missing", "missing_required_parameter");
    call.name = type == "local_shell_call" ? "local_shell" : item.Text("name").value_or("");
    if (call.name.empty()) item.Fail("name", "is missing", "missing_required_parameter");
    if (type == "function_call") {
      call.arguments = item.Text("arguments").value_or("");
    } else if (type == "custom_tool_call") {
      call.arguments = OrderedJson{{"input", item.Text("input").value_or("")}}.dump();
    } else if (const OrderedJson* const action = item.Object("action")) {
      call.arguments = action->dump();
    }
    Assistant().tool_calls.push_back(std::move(call));
  }
  void AddOutput(ApiObject& item) {
    ChatMessage message{.role = "tool"};
    message.tool_call_id = item.Text("call_id").value_or("");
    if (message.tool_call_id.empty()) item.Fail("call_id", "is missing", "missing_required_parameter");
    if (const OrderedJson* const output = item.Take("output")) {
      message.content = ReadItemText(*output, item.Place("output"), reading_);
    } else {
      item.Fail("output", "is missing", "missing_required_parameter");
    }
    Push(std::move(message));
  }
  void AddMessage(ApiObject& item) {
    const std::string role = item.Text("role").value_or("");
    const OrderedJson* const content = item.Take("content");
    if (content == nullptr) return item.Fail("content", "is missing", "missing_required_parameter");
    std::string text = ReadItemText(*content, item.Place("content"), reading_);
    if (role == "assistant") {
      ChatMessage& turn = Assistant();
      if (!turn.tool_calls.empty() || !turn.content.empty()) {  // the next turn
        open_ = false;
        Assistant().content = std::move(text);
      } else {
        turn.content = std::move(text);
      }
    } else if (role == "user" || role == "system" || role == "developer") {
      Push({.role = role, .content = std::move(text)});
    } else {
      item.Fail("role", "is " + Quote(role) + ": expected user, assistant, system or developer");
    }
  }

  std::vector<ChatMessage>* const messages_;
  ApiReading* const reading_;
  bool open_ = false;  // the last message is the assistant's, and more of its turn may come
};

// {"type": "function", "name", "description", "parameters", "strict"}, as templates want it: within "function".
void ReadFunctions(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const tools = body.Array("tools");
  if (tools == nullptr) return;
  HostedTools hosted(body, "function");
  for (size_t i = 0; i < tools->size() && body.ok(); ++i) {
    ApiObject tool((*tools)[i], ElementPlace("tools", i), body.reading());
    if (hosted.LeavesOut(tool, tool.Text("type").value_or(""))) continue;
    OrderedJson function = OrderedJson::object();
    if (const std::optional<std::string> name = tool.Text("name")) function["name"] = *name;
    if (!function.contains("name")) tool.Fail("name", "is missing", "missing_required_parameter");
    if (const std::optional<std::string> text = tool.Text("description")) function["description"] = *text;
    if (const OrderedJson* const parameters = tool.Object("parameters")) function["parameters"] = *parameters;
    if (tool.Flag("strict").value_or(false)) chat->strict.push_back(function.value("name", ""));
    tool.End();
    if (body.ok()) chat->tools.push_back(OrderedJson{{"type", "function"}, {"function", std::move(function)}}.dump());
  }
  hosted.End(chat->tools.size());
}

}  // namespace

void ReadApiResponses(ApiObject& body, ChatRequest* chat) {
  Input input(&chat->messages, body.reading());
  if (const std::optional<std::string> instructions = body.Text("instructions")) {
    input.Push({.role = "system", .content = *instructions});
  }
  const OrderedJson* const given = body.Take("input");
  if (given == nullptr) {
    body.Fail("input", "is missing", "missing_required_parameter");
  } else if (given->is_string()) {
    input.Push({.role = "user", .content = given->get<std::string>()});
  } else if (!given->is_array() || given->empty()) {
    body.Fail("input", "must be a string, or an array of items that is not empty", "invalid_type");
  } else {
    for (size_t i = 0; i < given->size() && body.ok(); ++i) input.Add((*given)[i], ElementPlace("input", i));
  }
  NameResults(&chat->messages);
  ReadFunctions(body, chat);
  ReadToolChoice(body, chat);
  if (const OrderedJson* const json = body.Object("reasoning")) {
    ApiObject reasoning(*json, "reasoning", body.reading());
    ReadEffort(reasoning, "effort", chat);
    reasoning.End();
  }
  ReadTemplateVariables(body, chat);
}

}  // namespace tally
