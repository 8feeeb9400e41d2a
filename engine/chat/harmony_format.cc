// SPDX-License-Identifier: Apache-2.0
// Requests as harmony conversations.
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/chat/harmony.h"
#include "engine/chat/harmony_header.h"
#include "engine/chat/limited_json.h"

namespace tally {
namespace {

using Role = HarmonyMessage::Role;

constexpr const char* kThinkingHeader = "<|channel|>analysis<|message|>";
constexpr const char* kThinkingEnd = "<|end|><|start|>assistant";  // and what precedes the next header

std::string ListPlace(std::string_view list, size_t i) { return std::string(list) + "[" + std::to_string(i) + "]"; }

Result<HarmonyTool> ReadTool(const std::string& text, const std::string& where) {
  TALLY_ASSIGN_OR_RETURN(const OrderedJson json, ParseLimitedJson(text, where));
  const Status expected = BadInput(where + R"(: expected {"type": "function", "function": {"name": ...}})");
  const auto function = json.find("function");
  if (function == json.end() || !function->is_object()) return expected;
  const auto text_of = [&](const char* key) {
    const auto member = function->find(key);
    return member != function->end() && member->is_string() ? member->get<std::string>() : "";
  };
  HarmonyTool tool = {.name = text_of("name"), .description = text_of("description")};
  if (tool.name.empty()) return expected;
  const auto parameters = function->find("parameters");
  if (parameters == function->end() || parameters->is_null()) return tool;
  if (parameters->is_object()) {
    tool.parameters = parameters->dump();
    return tool;
  }
  return BadInput(where + ": expected the parameters of " + Quote(tool.name) + " to be a JSON schema");
}

// The names of the built-in tools.
Result<std::vector<HarmonyNamespace>> ReadBuiltinTools(const std::string& text) {
  const std::string where = "variable builtin_tools";
  TALLY_ASSIGN_OR_RETURN(const OrderedJson json, ParseLimitedJson(text, where));
  const Status expected = BadInput(where + R"(: expected a list of "browser" and "python")");
  if (!json.is_array()) return expected;
  std::map<std::string, HarmonyNamespace> tools;  // in order of name, as they are rendered
  for (const OrderedJson& name : json) {
    if (name == "browser") {
      tools["browser"] = HarmonyBrowser();
    } else if (name == "python") {
      tools["python"] = HarmonyPython();
    } else {
      return expected;
    }
  }
  std::vector<HarmonyNamespace> out;
  for (auto& [name, tool] : tools) out.push_back(std::move(tool));
  return out;
}

Result<std::string> LocalDate(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local = {};
  char text[64];
  if (::localtime_r(&time, &local) == nullptr || std::strftime(text, sizeof(text), "%Y-%m-%d", &local) == 0) {
    return BadInput("the time " + std::to_string(seconds) + " has no date");
  }
  return std::string(text);
}

Result<HarmonySystem> ReadSystem(const ChatRequest& request) {
  HarmonySystem system;
  TALLY_ASSIGN_OR_RETURN(system.start_date, LocalDate(request.now));
  const std::string& effort = request.reasoning_effort;
  if (!effort.empty()) {
    if (effort != "low" && effort != "medium" && effort != "high") {
      return BadInput("reasoning effort " + Quote(effort) + " is not known, expected low, medium or high");
    }
    system.reasoning_effort = effort;
  }
  if (const auto identity = request.variables.find("model_identity"); identity != request.variables.end()) {
    TALLY_ASSIGN_OR_RETURN(const OrderedJson json, ParseLimitedJson(identity->second, "variable model_identity"));
    if (!json.is_string()) return BadInput("variable model_identity: expected a string");
    system.model_identity = json.get<std::string>();
  }
  if (const auto tools = request.variables.find("builtin_tools"); tools != request.variables.end()) {
    TALLY_ASSIGN_OR_RETURN(system.tools, ReadBuiltinTools(tools->second));
  }
  return system;
}

class HarmonyConversationReader {
 public:
  explicit HarmonyConversationReader(const ChatRequest& request) : request_(request) {}

  Result<std::vector<HarmonyMessage>> Read() {
    TALLY_ASSIGN_OR_RETURN(HarmonySystem system, ReadSystem(request_));
    builtin_ = system.tools;
    Add({.role = Role::kSystem, .content = std::move(system)});
    size_t i = 0;
    TALLY_RETURN_IF_ERROR(AddDeveloper(&i));
    for (; i < request_.messages.size(); ++i) TALLY_RETURN_IF_ERROR(AddMessage(i));
    return std::move(conversation_);
  }

 private:
  static bool Instructs(const ChatMessage& message) { return message.role == "system" || message.role == "developer"; }

  void Add(HarmonyMessage message) { conversation_.push_back(std::move(message)); }

  // The instructions at the beginning, and the tools. Advances *i to the first message after the instructions.
  Status AddDeveloper(size_t* i) {
    std::string instructions;
    for (; *i < request_.messages.size() && Instructs(request_.messages[*i]); ++*i) {
      const std::string& content = request_.messages[*i].content;
      instructions += (instructions.empty() || content.empty() ? "" : "\n\n") + content;
    }
    HarmonyNamespace functions = {.name = "functions"};
    for (size_t t = 0; t < request_.tools.size(); ++t) {
      TALLY_ASSIGN_OR_RETURN(HarmonyTool tool, ReadTool(request_.tools[t], ListPlace("tools", t)));
      functions.tools.push_back(std::move(tool));
    }
    HarmonyDeveloper developer;
    if (!instructions.empty()) developer.instructions = std::move(instructions);
    if (!functions.tools.empty()) developer.tools.push_back(std::move(functions));
    if (developer.instructions || !developer.tools.empty()) Add({.role = Role::kDeveloper, .content = std::move(developer)});
    return {};
  }

  Status AddMessage(size_t i) {
    const ChatMessage& message = request_.messages[i];
    if (message.role == "user") {
      Add({.role = Role::kUser, .content = message.content});
    } else if (message.role == "assistant") {
      AddAssistant(message);
    } else if (message.role == "tool") {
      return AddResult(message, ListPlace("messages", i));
    } else if (Instructs(message)) {
      if (!message.content.empty()) Add({.role = Role::kDeveloper, .content = HarmonyDeveloper{.instructions = message.content}});
    } else {
      return BadInput(ListPlace("messages", i) + ": role " + Quote(message.role) +
                      " is not known, expected system, developer, user, assistant or tool");
    }
    return {};
  }

  void AddAssistant(const ChatMessage& message) {
    if (!message.reasoning.empty()) Add({.role = Role::kAssistant, .channel = "analysis", .content = message.reasoning});
    if (message.tool_calls.empty()) {
      // An answer that ended while it was thought about has no final message.
      if (message.reasoning.empty() || !message.content.empty()) {
        Add({.role = Role::kAssistant, .channel = "final", .content = message.content});
      }
      return;
    }
    if (!message.content.empty()) Add({.role = Role::kAssistant, .channel = "commentary", .content = message.content});
    for (const ToolCall& call : message.tool_calls) {
      const bool builtin = IsBuiltin(call.name);
      Add({.role = Role::kAssistant,
           .recipient = FullName(call.name),
           .channel = builtin ? "analysis" : "commentary",
           .content_type = builtin ? "code" : "<|constrain|>json",
           .content = call.arguments});
      if (!call.id.empty()) callee_[call.id] = call.name;
    }
  }

  Status AddResult(const ChatMessage& message, const std::string& where) {
    std::string name = message.name;
    if (const auto called = callee_.find(message.tool_call_id); name.empty() && called != callee_.end()) name = called->second;
    if (name.empty()) return BadInput(where + ": the tool has no name, and there is no call " + Quote(message.tool_call_id));
    Add({.role = Role::kTool,
         .name = FullName(name),
         .recipient = "assistant",
         .channel = IsBuiltin(name) ? "analysis" : "commentary",
         .content = message.content});
    return {};
  }

  // "browser.search", where there is a browser.
  bool IsBuiltin(std::string_view name) const {
    for (const HarmonyNamespace& tool : builtin_) {
      if (name == tool.name || (name.starts_with(tool.name) && name[tool.name.size()] == '.')) return true;
    }
    return false;
  }

  std::string FullName(const std::string& name) const {
    return IsBuiltin(name) || name.starts_with(kHarmonyFunctions) ? name : std::string(kHarmonyFunctions) + name;
  }

  const ChatRequest& request_;
  std::vector<HarmonyNamespace> builtin_;
  std::map<std::string, std::string> callee_;  // function names by ids of calls
  std::vector<HarmonyMessage> conversation_;
};

class HarmonyFormat final : public ChatFormat {
 public:
  std::unique_ptr<OutputParser> NewParser(std::string_view, const ChatRequest& request) const override {
    return NewHarmonyParser(MayCall(request), request.continue_last);
  }
  std::vector<CallNotation> CallNotations(bool) const override { return HarmonyCallNotations(); }
  std::string Description() const override { return "harmony"; }

 protected:
  AnswerStart WholeStartOf(std::string_view) const override { return HarmonyStart(); }
  Result<std::vector<PromptSegment>> RenderWhole(const ChatRequest& request, std::vector<std::string>*) const override {
    TALLY_ASSIGN_OR_RETURN(const std::vector<HarmonyMessage> conversation, HarmonyConversationReader(request).Read());
    return RenderHarmony(conversation, {.add_generation_prompt = request.add_generation_prompt});
  }
};

}  // namespace

AnswerStart HarmonyStart() {
  return {.channels =
              AnswerChannels{.message_begin = "<|start|>",
                             .channel = "<|channel|>",
                             .header_end = "<|message|>",
                             .content = "final",
                             .recipient = "to=functions.",
                             .thinking_headers = {kThinkingHeader},
                             .content_headers = {"<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"},
                             .call_headers = {"<|channel|>commentary to=", "<|channel|>analysis to="},
                             .thinking_end = kThinkingEnd}};
}

std::vector<CallNotation> HarmonyCallNotations() {
  return {{.call_begin = "<|channel|>commentary to=functions.",
           .after_name = " <|constrain|>json<|message|>",
           .once = true,
           .thinking_begin = kThinkingHeader,
           .thinking_end = kThinkingEnd,
           .space = JsonSpace::kNone}};
}

std::unique_ptr<ChatFormat> MakeHarmonyFormat() { return std::make_unique<HarmonyFormat>(); }

}  // namespace tally
