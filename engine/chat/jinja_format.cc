// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja_format.h"

#include <algorithm>
#include <utility>

#include "engine/base/format.h"
#include "engine/chat/limited_json.h"

namespace tally {
namespace {

// The engine has every value in it: an integer may be beyond 64 bits.
bool Fits(const jinja::Json& json) {
  jinja::Budget budget{jinja::Limits()};
  return jinja::FromJson(&budget, json, false).ok();
}

// The name that a template reads the thinking of a message by.
std::string ReasoningName(std::string_view text) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    for (const char* before : {".", "['", "[\"", "get('", "get(\""}) {
      if (text.find(std::string(before) + name) != text.npos) return name;
    }
  }
  return "reasoning_content";
}

jinja::Json CallJson(const ToolCall& call, bool arguments_as_text) {
  jinja::Json function = jinja::Json::object({{"name", call.name}, {"arguments", call.arguments}});
  if (!arguments_as_text) {
    Result<OrderedJson> arguments = ParseLimitedJson(call.arguments, "arguments");
    if (arguments.ok() && arguments->is_object() && Fits(*arguments)) function["arguments"] = std::move(*arguments);
  }
  jinja::Json json = jinja::Json::object();
  if (!call.id.empty()) json["id"] = call.id;
  json["type"] = "function";
  json["function"] = std::move(function);
  return json;
}

// A conversation with a tool call, and what stands in it.
constexpr const char* kNeedleName = "needle_name";
ChatRequest CallProbe() {
  ChatRequest request;
  request.tools = {R"({"type": "function", "function": {"name": "probe", "description": "d", "parameters": )"
                   R"({"type": "object", "properties": {"x": {"type": "string", "description": "d"}}}}})"};
  request.messages.resize(3);
  request.messages[0].role = "user";
  request.messages[0].content = "u";
  request.messages[1].role = "assistant";
  request.messages[1].tool_calls = {{"abcdef123", "probe", std::string("{\"") + kNeedleName + "\": \"v\"}"}};
  request.messages[2].role = "tool";
  request.messages[2].content = "r";
  request.messages[2].name = "probe";
  request.messages[2].tool_call_id = "abcdef123";
  return request;
}

}  // namespace

JinjaFormat::JinjaFormat(jinja::Template made, const ChatTemplateSource& source, ParserFactory parsers, std::string description)
    : template_(std::move(made)),
      special_tokens_(source.special_tokens),
      reasoning_name_(ReasoningName(source.text)),
      parsers_(std::move(parsers)),
      description_(std::move(description)) {}

Result<std::unique_ptr<JinjaFormat>> JinjaFormat::Make(const ChatTemplateSource& source, ParserFactory parsers,
                                                       std::string description) {
  TALLY_ASSIGN_OR_RETURN(jinja::Template made, jinja::Template::Parse(source.text, source.origin));
  std::unique_ptr<JinjaFormat> format(new JinjaFormat(std::move(made), source, std::move(parsers), std::move(description)));
  format->arguments_as_text_ = !format->PrintsObjects(false) && format->PrintsObjects(true);
  return format;
}

// Whether arguments come out with their names, and not as 'name', which is how Python writes a dict.
bool JinjaFormat::PrintsObjects(bool as_text) const {
  JinjaFormat probed = *this;
  probed.arguments_as_text_ = as_text;
  const Result<std::vector<PromptSegment>> segments = probed.Render(CallProbe());
  if (!segments.ok()) return false;
  const std::string text = JoinSegments(*segments);
  return text.find(kNeedleName) != text.npos && text.find(std::string("'") + kNeedleName + "'") == text.npos;
}

jinja::Json JinjaFormat::Message(const ChatMessage& message) const {
  jinja::Json json = jinja::Json::object({{"role", message.role}, {"content", message.content}});
  if (!message.reasoning.empty()) json[reasoning_name_] = message.reasoning;
  if (!message.tool_calls.empty()) {
    jinja::Json calls = jinja::Json::array();
    for (const ToolCall& call : message.tool_calls) calls.push_back(CallJson(call, arguments_as_text_));
    json["tool_calls"] = std::move(calls);
  }
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) json["name"] = message.name;
  return json;
}

Result<jinja::Json> JinjaFormat::Variables(const ChatRequest& request) const {
  jinja::Json messages = jinja::Json::array();
  for (const ChatMessage& message : request.messages) messages.push_back(Message(message));
  jinja::Json tools = jinja::Json::array();
  for (const std::string& text : request.tools) {
    const std::string where = "tool " + std::to_string(tools.size() + 1);
    TALLY_ASSIGN_OR_RETURN(OrderedJson tool, ParseLimitedJson(text, where));
    if (!tool.is_object()) return BadInput(where + " is not a JSON object");
    tools.push_back(std::move(tool));
  }
  jinja::Json variables = jinja::Json::object();
  variables["messages"] = std::move(messages);
  variables["tools"] = tools.empty() ? jinja::Json() : std::move(tools);
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = request.add_generation_prompt;
  if (request.thinking) {
    variables["enable_thinking"] = *request.thinking;
    variables["thinking"] = *request.thinking;
  }
  if (!request.reasoning_effort.empty()) variables["reasoning_effort"] = request.reasoning_effort;
  for (const auto& [name, text] : request.variables) {
    TALLY_ASSIGN_OR_RETURN(variables[name], ParseLimitedJson(text, "variable " + Quote(name) + " of the template"));
  }
  return variables;
}

Result<std::vector<PromptSegment>> JinjaFormat::Render(const ChatRequest& request) const {
  TALLY_ASSIGN_OR_RETURN(jinja::Json variables, Variables(request));
  return RenderJson(std::move(variables), request.now);
}

Result<std::vector<PromptSegment>> JinjaFormat::RenderJson(jinja::Json variables, int64_t now) const {
  jinja::RenderOptions options;
  options.now = now;
  for (const auto& [name, token] : special_tokens_) {
    if (variables.contains(name)) continue;  // the request's own, which is not trusted
    variables[name] = token;
    options.trusted.insert(name);
  }
  return template_.Render(variables, options);
}

}  // namespace tally
