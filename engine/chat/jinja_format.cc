// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja_format.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "engine/base/short_id.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/limited_json.h"
#include "engine/chat/marks.h"

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

// The roles that messages have in conversations of programs and of the libraries that they are written for.
constexpr std::string_view kMessageRoles[] = {"system",   "developer", "user",        "assistant",   "tool",
                                              "function", "ipython",   "observation", "environment", "model"};

jinja::Json CallJson(const ToolCall& call, bool arguments_as_text) {
  jinja::Json function = jinja::Json::object({{"name", call.name}, {"arguments", call.arguments}});
  if (!arguments_as_text) {
    std::optional<OrderedJson> arguments = ParseArguments(call.arguments);
    if (arguments && Fits(*arguments)) function["arguments"] = std::move(*arguments);
  }
  jinja::Json json = jinja::Json::object();
  if (!call.id.empty()) json["id"] = call.id;
  json["type"] = "function";
  json["function"] = std::move(function);
  return json;
}

// A word that stands nowhere else; `index` tells it from others. Letters and digits, small, so that filters leave it as it is.
constexpr std::string_view kNeedle = "xq7";
std::string Needle(std::string_view kind, size_t index) {
  return std::string(kNeedle) + std::string(kind) + std::to_string(index) + "n";
}

// All of them that a text has.
std::set<std::string, std::less<>> NeedlesIn(std::string_view text) {
  std::set<std::string, std::less<>> needles;
  for (size_t at = 0; (at = text.find(kNeedle, at)) != text.npos; at += kNeedle.size()) {
    size_t end = text.find_first_of("0123456789", at + kNeedle.size());
    end = text.find_first_not_of("0123456789", std::min(end, text.size()));
    if (end != text.npos && text[end] == 'n') needles.emplace(text.substr(at, end + 1 - at));
  }
  return needles;
}

// Ids of calls that are no short ids are replaced, equal ones by equal ones.
void ShortenCallIds(std::vector<ChatMessage>& messages, std::vector<std::string>* notes) {
  const auto shorten = [&](std::string& id) {
    if (id.empty() || IsShortId(id)) return;
    Checksum sum;
    sum.Add(id);
    id = ShortId(sum.value());
    constexpr const char* kNote = "ids of calls are replaced in the prompt: the chat template wants 9 letters and digits";
    if (notes != nullptr && std::ranges::find(*notes, kNote) == notes->end()) notes->emplace_back(kNote);
  };
  for (ChatMessage& message : messages) {
    shorten(message.tool_call_id);
    for (ToolCall& call : message.tool_calls) shorten(call.id);
  }
}

// A conversation with a call of a tool. Its arguments have the needle of calls, its tool the one of tools.
ChatRequest Probe() {
  ChatRequest request;
  request.tools = {R"({"type": "function", "function": {"name": ")" + Needle("tool", 0) +
                   R"(", "description": "d", "parameters": )"
                   R"({"type": "object", "properties": {"x": {"type": "string", "description": "d"}}}}})"};
  request.messages.resize(3);
  request.messages[0].role = "user";
  request.messages[0].content = "u";
  request.messages[1].role = "assistant";
  request.messages[1].tool_calls = {{"abcdef123", "probe", "{\"" + Needle("call", 1) + "\": \"v\"}"}};
  request.messages[2].role = "tool";
  request.messages[2].content = "r";
  request.messages[2].name = "probe";
  request.messages[2].tool_call_id = "abcdef123";
  return request;
}

// As json.dumps writes it.
Result<std::string> PythonJson(const jinja::Json& json) {
  jinja::Budget budget{jinja::Limits()};
  TALLY_ASSIGN_OR_RETURN(const jinja::Value value, jinja::FromJson(&budget, json, false));
  TALLY_ASSIGN_OR_RETURN(const jinja::Text text, jinja::DumpJson(&budget, value, {}));
  return text.bytes();
}

// A probe is at most five short messages, and there are up to 40 probes: each has a small part of what a conversation may take.
constexpr jinja::Limits kProbeLimits = {.steps = 500'000, .made_bytes = uint64_t{64} << 20, .text_bytes = uint64_t{4} << 20};

bool Has(const Result<std::string>& text, const std::string& part) { return text.ok() && text->find(part) != text->npos; }

}  // namespace

JinjaFormat::JinjaFormat(jinja::Template made, const ChatTemplateSource& source, ParserFactory parsers, std::string description,
                         bool reads_calls)
    : template_(std::move(made)),
      special_tokens_(source.special_tokens),
      additional_special_tokens_(source.additional_special_tokens),
      reasoning_name_(ReasoningName(source.text)),
      parsers_(std::move(parsers)),
      description_(std::move(description)),
      reads_calls_(reads_calls) {}

Result<std::unique_ptr<JinjaFormat>> JinjaFormat::Make(const ChatTemplateSource& source, ParserFactory parsers,
                                                       std::string description, bool reads_calls) {
  TALLY_ASSIGN_OR_RETURN(jinja::Template made, jinja::Template::Parse(source.text, source.origin));
  std::unique_ptr<JinjaFormat> format(
      new JinjaFormat(std::move(made), source, std::move(parsers), std::move(description), reads_calls));
  format->forms_ = format->FindForms();
  format->FindPlaces();
  return format;
}

// Whether thinking is printed as a part of content, and not as a member of its message. A list that is printed as it is has it in quotes.
bool JinjaFormat::ReadsThinkingPart() const {
  if (reasoning_name_ != "thinking") return false;
  const std::string needle = Needle("think", 2);
  ChatRequest probe = Probe();
  probe.tools.clear();
  probe.messages.resize(2);
  probe.messages[1] = {.role = "assistant", .content = "c", .reasoning = needle};
  if (Has(Text(probe, {}, kProbeLimits), needle)) return false;
  const Result<std::string> text = Text(probe, {.thinking_part = true}, kProbeLimits);
  return Has(text, needle) && !Has(text, "'" + needle + "'") && !Has(text, '"' + needle + '"');
}

JinjaFormat::Forms JinjaFormat::FindForms() const {
  ChatRequest probe = Probe();
  // Arguments have come out with their names, and not as 'name', which is how Python writes a dict.
  const auto prints_calls = [&](const Forms& forms) {
    const Result<std::string> text = Text(probe, forms, kProbeLimits);
    const std::string name = Needle("call", 1);
    return Has(text, name) && !Has(text, "'" + name + "'");
  };
  const auto find_calls = [&]() -> std::optional<Forms> {
    for (const NoContent no_content : {NoContent::kEmpty, NoContent::kNull, NoContent::kAbsent}) {
      for (const bool as_text : {false, true}) {
        const Forms forms = {.arguments_as_text = as_text, .no_content = no_content};
        if (prints_calls(forms)) return forms;
      }
    }
    return std::nullopt;
  };
  std::optional<Forms> found = find_calls();
  probe.messages.resize(2);  // where results are refused, calls alone
  if (!found) found = find_calls();
  Forms forms = found.value_or(Forms());
  forms.thinking_part = ReadsThinkingPart();
  probe.messages.resize(1);
  for (const Tools tools : {Tools::kVariable, Tools::kMessageList, Tools::kMessageText}) {
    Forms tried = forms;
    tried.tools = tools;
    if (Has(Text(probe, tried, kProbeLimits), Needle("tool", 0))) return tried;
  }
  return forms;
}

// Where roles are printed, and which ids of calls are. A template that wants tools is given one.
void JinjaFormat::FindPlaces() {
  const auto probe = [&](std::vector<ChatMessage> messages, std::vector<std::string> tools) {
    ChatRequest request;
    request.messages = std::move(messages);
    request.tools = std::move(tools);
    return Text(request, forms_, kProbeLimits);
  };
  std::vector<std::string> tools;
  if (!probe({{.role = "user", .content = "u"}}, {}).ok()) tools = Probe().tools;
  places_ = FindRolePlaces([&](std::vector<ChatMessage> messages) { return probe(std::move(messages), tools); });

  ChatRequest call = Probe();
  if (!probe(call.messages, tools).ok()) call.messages.resize(2);
  const bool takes_short = probe(call.messages, tools).ok();
  call.messages[1].tool_calls[0].id = "call_0123456789abcdef01234567";
  if (call.messages.size() > 2) call.messages[2].tool_call_id = call.messages[1].tool_calls[0].id;
  short_call_ids_ = takes_short && !probe(call.messages, tools).ok();
}

jinja::Json JinjaFormat::Message(const ChatMessage& message, const Forms& forms) const {
  jinja::Json json = jinja::Json::object({{"role", message.role}, {"content", message.content}});
  if (!message.reasoning.empty() && !forms.thinking_part) json[reasoning_name_] = message.reasoning;
  if (!message.tool_calls.empty()) {
    if (message.content.empty() && forms.no_content == NoContent::kNull) json["content"] = nullptr;
    if (message.content.empty() && forms.no_content == NoContent::kAbsent) json.erase("content");
    jinja::Json calls = jinja::Json::array();
    for (const ToolCall& call : message.tool_calls) calls.push_back(CallJson(call, forms.arguments_as_text));
    json["tool_calls"] = std::move(calls);
  }
  if (!message.reasoning.empty() && forms.thinking_part) {
    jinja::Json parts = jinja::Json::array({jinja::Json::object({{"type", "thinking"}, {"thinking", message.reasoning}})});
    if (!message.content.empty()) parts.push_back(jinja::Json::object({{"type", "text"}, {"text", message.content}}));
    json["content"] = std::move(parts);
  }
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) json["name"] = message.name;
  return json;
}

Result<jinja::Json> JinjaFormat::Variables(const ChatRequest& request, const Forms& forms) const {
  jinja::Json messages = jinja::Json::array();
  for (const ChatMessage& message : request.messages) messages.push_back(Message(message, forms));
  jinja::Json tools = jinja::Json::array();
  for (const std::string& text : request.tools) {
    const std::string where = "tool " + std::to_string(tools.size() + 1);
    TALLY_ASSIGN_OR_RETURN(OrderedJson tool, ParseLimitedJson(text, where));
    if (!tool.is_object()) return BadInput(where + " is not a JSON object");
    tools.push_back(std::move(tool));
  }
  if (!tools.empty() && forms.tools != Tools::kVariable) {
    if (messages.empty() || messages.front().at("role") != "system") {
      messages.insert(messages.begin(), jinja::Json::object({{"role", "system"}, {"content", ""}}));
    }
    jinja::Json& member = messages.front()["tools"];
    member = tools;
    if (forms.tools == Tools::kMessageText) {
      // As Phi-4-mini's card has it: https://huggingface.co/microsoft/Phi-4-mini-instruct.
      for (jinja::Json& tool : member) {
        if (tool.contains("function")) tool = jinja::Json(tool["function"]);
      }
      TALLY_ASSIGN_OR_RETURN(member, PythonJson(member));
    }
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

Result<std::vector<PromptSegment>> JinjaFormat::RenderWhole(const ChatRequest& request, std::vector<std::string>* notes) const {
  const auto is_result = [](const ChatMessage& m) { return m.role == "tool" && !Trimmed(m.content).empty(); };
  if (!places_.tool && std::ranges::any_of(request.messages, is_result)) {
    return BadInput("the chat template leaves out messages of the role 'tool'");
  }
  ChatRequest fitted = request;
  fitted.messages = FitRoles(request.messages, places_, notes);
  if (short_call_ids_) ShortenCallIds(fitted.messages, notes);
  TALLY_ASSIGN_OR_RETURN(jinja::Json variables, Variables(fitted, forms_));
  return RenderJson(std::move(variables), request.now);
}

Result<std::string> JinjaFormat::Text(const ChatRequest& request, const Forms& forms, const jinja::Limits& limits) const {
  TALLY_ASSIGN_OR_RETURN(jinja::Json variables, Variables(request, forms));
  TALLY_ASSIGN_OR_RETURN(const std::vector<PromptSegment> segments, RenderJson(std::move(variables), request.now, limits));
  return JoinSegments(segments);
}

std::vector<LeftOut> JinjaFormat::FindLeftOut(const ChatRequest& request) const {
  ChatRequest marked = request;
  std::vector<std::pair<LeftOut, std::string>> needles;
  const auto mark = [&](LeftOut::What what, size_t index, std::string_view kind) {
    return needles.emplace_back(LeftOut{what, index}, Needle(kind, index)).second;
  };
  for (size_t i = 0; i < marked.tools.size(); ++i) {
    Result<OrderedJson> json = ParseLimitedJson(marked.tools[i], "tool");
    if (!json.ok() || !json->is_object() || !json->contains("function") || !(*json)["function"].is_object()) continue;
    (*json)["function"]["name"] = mark(LeftOut::What::kTool, i, "tool");
    marked.tools[i] = json->dump();
  }
  for (size_t i = 0; i < marked.messages.size(); ++i) {
    ChatMessage& message = marked.messages[i];
    // Templates tell empty texts from others.
    if (!Trimmed(message.content).empty()) message.content = mark(LeftOut::What::kContent, i, "text");
    if (message.tool_calls.empty()) continue;
    const std::string arguments = "{\"" + mark(LeftOut::What::kCalls, i, "call") + "\": \"v\"}";
    for (ToolCall& call : message.tool_calls) call.arguments = arguments;
  }
  marked.messages = FitRoles(marked.messages, places_, nullptr);
  if (short_call_ids_) ShortenCallIds(marked.messages, nullptr);
  const Result<std::string> text = Text(marked, forms_);
  std::vector<LeftOut> left_out;
  if (!text.ok()) return left_out;
  const std::set<std::string, std::less<>> there = NeedlesIn(*text);
  for (const auto& [what, needle] : needles) {
    if (!there.contains(needle)) left_out.push_back(what);
  }
  return left_out;
}

Result<std::vector<PromptSegment>> JinjaFormat::RenderJson(jinja::Json variables, int64_t now,
                                                           const jinja::Limits& limits) const {
  jinja::RenderOptions options;
  options.limits = limits;
  options.now = now;
  options.roles = kMessageRoles;
  const auto add = [&](const std::string& name, jinja::Json value) {
    if (variables.contains(name)) return;  // the request's own, which is not trusted
    variables[name] = std::move(value);
    options.trusted.insert(name);
  };
  for (const auto& [name, token] : special_tokens_) add(name, token);
  if (!additional_special_tokens_.empty()) add("additional_special_tokens", additional_special_tokens_);
  return template_.Render(variables, options);
}

}  // namespace tally
