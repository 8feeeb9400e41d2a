// SPDX-License-Identifier: Apache-2.0
// The conversation of /v1/messages: messages of content blocks (https://docs.anthropic.com/en/api/messages#body-messages).
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/format.h"
#include "engine/serve/api_messages.h"

namespace tally {
namespace {

void AppendLine(const std::string& text, std::string* all) {
  if (!all->empty() && !text.empty()) *all += '\n';
  *all += text;
}

void FailBlock(ApiObject& block, const std::string& type, const char* expected) {
  block.Fail("type", "is " + Quote(type) + ": expected " + expected + " (no images, documents or results of a server's tools)",
             "unsupported_value");
}

// The text of a block whose type has been read.
std::string ReadTextBlock(ApiObject& block) {
  const std::optional<std::string> text = block.Text("text");
  if (!text) block.Fail("text", "is missing", "missing_required_parameter");
  return text.value_or("");
}

// Text, or blocks of text joined by line feeds.
std::string ReadTexts(const OrderedJson& content, ApiObject& object, std::string_view name) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) object.Fail(name, "must be a string or an array of blocks of text", "invalid_type");
  for (size_t i = 0; content.is_array() && i < content.size() && object.ok(); ++i) {
    ApiObject block(content[i], ElementPlace(object.Place(name), i), object.reading());
    if (const std::string type = block.Text("type").value_or(""); type != "text") FailBlock(block, type, "text");
    AppendLine(ReadTextBlock(block), &text);
    block.End();
  }
  return text;
}

class Conversation {
 public:
  Conversation(std::vector<ChatMessage>* messages, ApiReading* reading) : messages_(messages), reading_(reading) {}

  void Add(const OrderedJson& json, const std::string& place) {
    ApiObject object(json, place, reading_);
    const std::string role = object.Text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      object.Fail("role", "is " + Quote(role) + ": expected user, assistant or system");
    }
    const OrderedJson* const content = object.Take("content");
    object.End();
    if (content == nullptr) return object.Fail("content", "is missing", "missing_required_parameter");
    if (role == "system" || content->is_string()) {
      AppendLine(ReadTexts(*content, object, "content"), &Of(role).content);
    } else if (!content->is_array()) {
      object.Fail("content", "must be a string or an array of blocks", "invalid_type");
    } else if (content->empty() && role == "user") {
      object.Fail("content", "is empty", "missing_required_parameter");
    } else {
      for (size_t i = 0; i < content->size() && object.ok(); ++i) {
        ApiObject block((*content)[i], ElementPlace(object.Place("content"), i), reading_);
        if (role == "user") {
          AddUserBlock(block);
        } else {
          AddAssistantBlock(block);
        }
        block.End();
      }
    }
  }

 private:
  // The message of that role to which the next block belongs.
  ChatMessage& Of(const std::string& role) {
    if (messages_->empty() || messages_->back().role != role) messages_->push_back({.role = role});
    return messages_->back();
  }
  void AddUserBlock(ApiObject& block) {
    const std::string type = block.Text("type").value_or("");
    if (type == "text") return AppendLine(ReadTextBlock(block), &Of("user").content);
    if (type != "tool_result") return FailBlock(block, type, "text or tool_result");
    ChatMessage message{.role = "tool"};
    message.tool_call_id = block.Text("tool_use_id").value_or("");
    if (message.tool_call_id.empty()) block.Fail("tool_use_id", "is missing", "missing_required_parameter");
    if (const OrderedJson* const content = block.Take("content")) message.content = ReadTexts(*content, block, "content");
    messages_->push_back(std::move(message));
  }
  void AddAssistantBlock(ApiObject& block) {
    const std::string type = block.Text("type").value_or("");
    ChatMessage& turn = Of("assistant");
    if (type == "text") {
      AppendLine(ReadTextBlock(block), &turn.content);
    } else if (type == "thinking") {
      AppendLine(block.Text("thinking").value_or(""), &turn.reasoning);
    } else if (type == "redacted_thinking") {  // it cannot be read
    } else if (type == "tool_use") {
      ToolCall call{.id = block.Text("id").value_or(""), .name = block.Text("name").value_or("")};
      if (call.id.empty()) block.Fail("id", "is missing", "missing_required_parameter");
      if (call.name.empty()) block.Fail("name", "is missing", "missing_required_parameter");
      const OrderedJson* const input = block.Object("input");
      if (input == nullptr) block.Fail("input", "is missing", "missing_required_parameter");
      if (input != nullptr) call.arguments = input->dump();
      turn.tool_calls.push_back(std::move(call));
    } else {
      FailBlock(block, type, "text, thinking, redacted_thinking or tool_use");
    }
  }

  std::vector<ChatMessage>* const messages_;
  ApiReading* const reading_;
};

// {"name", "description", "input_schema"}, as templates want it: a function with parameters.
void ReadAnthropicTools(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const tools = body.Array("tools");
  if (tools == nullptr) return;
  HostedTools hosted(body, "custom");
  for (size_t i = 0; i < tools->size() && body.ok(); ++i) {
    ApiObject tool((*tools)[i], ElementPlace("tools", i), body.reading());
    if (hosted.LeavesOut(tool, tool.Text("type").value_or("custom"))) continue;
    OrderedJson function = OrderedJson::object();
    function["name"] = tool.Text("name").value_or("");
    if (function["name"] == "") tool.Fail("name", "is missing", "missing_required_parameter");
    if (const std::optional<std::string> text = tool.Text("description")) function["description"] = *text;
    const OrderedJson* const schema = tool.Object("input_schema");
    if (schema == nullptr) tool.Fail("input_schema", "is missing", "missing_required_parameter");
    if (schema != nullptr) function["parameters"] = *schema;
    if (tool.Flag("strict").value_or(false)) chat->strict.push_back(function.value("name", ""));
    tool.End();
    if (body.ok()) chat->tools.push_back(OrderedJson{{"type", "function"}, {"function", std::move(function)}}.dump());
  }
  hosted.End(chat->tools.size());
}

// "none" takes the tools away, and calls are text.
void ReadAnthropicToolChoice(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const json = body.Object("tool_choice");
  if (json == nullptr) return;
  ApiObject choice(*json, "tool_choice", body.reading());
  const std::string type = choice.Text("type").value_or("");
  if (type == "any" || type == "tool") {
    if (chat->tools.empty()) choice.Fail("type", "asks for a call, and there are no tools");
    if (type == "tool") {
      const std::optional<std::string> name = choice.Text("name");
      if (!name) choice.Fail("name", "is missing", "missing_required_parameter");
      chat->callable = {name.value_or("")};
      if (name && !HasTool(*chat, *name)) choice.Fail("name", "is " + Quote(*name) + ", which is not among the tools");
    }
    chat->must_call = true;
    if (type == "tool") chat->most_calls = 1;
  } else if (type != "auto" && type != "none") {
    choice.Fail("type", R"(must be "auto", "any", "tool" or "none")");
  }
  choice.Skip({"name"});
  if (choice.Flag("disable_parallel_tool_use").value_or(false)) chat->most_calls = 1;
  choice.End();
  if (type != "none") return;
  chat->tools.clear();
  chat->most_calls = 0;
}

void ReadThinking(ApiObject& body, ChatRequest* chat) {
  const OrderedJson* const json = body.Object("thinking");
  if (json == nullptr) return;
  ApiObject thinking(*json, "thinking", body.reading());
  const std::string type = thinking.Text("type").value_or("");
  if (type == "enabled" || type == "disabled") {
    chat->thinking = type == "enabled";
  } else if (type != "adaptive") {
    thinking.Fail("type", R"(must be "enabled", "disabled" or "adaptive")");
  }
  thinking.End();
}

void ReadOutputConfig(ApiObject& body, ChatRequest* chat, AnswerFormat* format) {
  const OrderedJson* const json = body.Object("output_config");
  if (json == nullptr) return;
  ApiObject config(*json, "output_config", body.reading());
  ReadEffort(config, "effort", chat);
  ReadFormatObject(config, "format", /*nested=*/false, format);
  config.End();
}

}  // namespace

void ReadAnthropicChat(ApiObject& body, ChatRequest* chat, AnswerFormat* format) {
  Conversation conversation(&chat->messages, body.reading());
  if (const OrderedJson* const system = body.Take("system")) {
    std::string text = ReadTexts(*system, body, "system");
    if (!text.empty()) chat->messages.push_back({.role = "system", .content = std::move(text)});
  }
  const OrderedJson* const messages = body.Array("messages");
  if (messages == nullptr || messages->empty()) {
    return body.Fail("messages", messages == nullptr ? "is missing" : "is empty", "missing_required_parameter");
  }
  for (size_t i = 0; i < messages->size() && body.ok(); ++i) conversation.Add((*messages)[i], ElementPlace("messages", i));
  if (body.ok() && chat->messages.empty()) return body.Fail("messages", "are empty", "missing_required_parameter");
  NameResults(&chat->messages);
  ReadAnthropicTools(body, chat);
  ReadAnthropicToolChoice(body, chat);
  if (body.ok() && chat->messages.back().role == "assistant") ContinueLast(body, chat);
  ReadThinking(body, chat);
  ReadOutputConfig(body, chat, format);
  ReadTemplateVariables(body, chat);
}

}  // namespace tally
