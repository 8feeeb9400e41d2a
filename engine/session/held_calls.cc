// SPDX-License-Identifier: Apache-2.0
#include "engine/session/held_calls.h"

#include <algorithm>
#include <utility>

#include "engine/base/format.h"
#include "engine/chat/limited_json.h"
#include "engine/chat/marks.h"
#include "engine/chat/tool_types.h"
#include "engine/session/model.h"

namespace tally {
namespace {

constexpr int64_t kMostCalls = 64;  // of an answer that is held: a model could go on for ever

bool Has(const std::vector<std::string>& names, const std::string& name) { return std::ranges::find(names, name) != names.end(); }

// The tools that calls may be of, and what their arguments are held to.
std::vector<CallTool> ToolsOf(const ChatRequest& chat) {
  const ToolTypes types(chat.tools);
  std::vector<CallTool> tools;
  for (const std::string& tool : chat.tools) {
    const OrderedJson json = OrderedJson::parse(tool, nullptr, false);
    const OrderedJson& function = json.is_object() && json.contains("function") ? json["function"] : json;
    CallTool held{.name = function.value("name", "")};
    if (!chat.callable.empty() && !Has(chat.callable, held.name)) continue;
    if (chat.must_call || Has(chat.strict, held.name)) {
      // Arguments are an object, whatever the schema leaves open.
      OrderedJson schema = function.contains("parameters") ? function["parameters"] : OrderedJson::object();
      if (!schema.is_object()) schema = OrderedJson::object();
      if (!schema.contains("type")) schema["type"] = "object";
      held.schema = schema.dump();
    }
    if (function.contains("parameters") && function["parameters"].is_object() && function["parameters"].contains("properties")) {
      for (const auto& [parameter, schema] : function["parameters"]["properties"].items()) {
        if (types.Of(held.name, parameter) == kJsonString) held.texts.insert(parameter);
      }
    }
    tools.push_back(std::move(held));
  }
  return tools;
}

// A prompt may end with the mark that begins calls, or with some of it.
void DropBegun(std::string_view prompt, std::vector<CallNotation>& notations) {
  for (CallNotation& notation : notations) {
    const std::string& mark = notation.sign.text;
    if (mark.empty() || notation.sign.at_beginning || !Trimmed(prompt).ends_with(mark)) continue;
    std::string& first = notation.begin.empty() ? notation.call_begin : notation.begin;
    if (first.starts_with(mark)) first.erase(0, mark.size());
  }
}

std::string KeyOf(std::span<const CallNotation> notations, std::span<const CallTool> tools, uint32_t most) {
  std::string key = "calls";
  const auto add = [&](std::string_view part) { AddToKey(part, key); };
  add(std::to_string(most));
  for (const CallNotation& notation : notations) {
    for (const std::string* text :
         {&notation.begin, &notation.end, &notation.call_begin, &notation.id_begin, &notation.after_name, &notation.call_end,
          &notation.between, &notation.key_begin, &notation.key_end, &notation.text_begin, &notation.json_begin,
          &notation.value_end, &notation.quote, &notation.text_stop})
      add(*text);
    add(std::to_string(static_cast<int>(notation.arguments)) + std::to_string(static_cast<int>(notation.space)) +
        std::to_string(static_cast<int>(notation.id)));
  }
  for (const CallTool& tool : tools) {
    add(tool.name);
    add(tool.schema);
    for (const std::string& text : tool.texts) add(text);
    add("");
  }
  return key;
}

}  // namespace

std::optional<CallsError> HoldCalls(const Model& model, GrammarCache& grammars, const ChatRequest& chat, const ChatFormat& format,
                                    std::string_view prompt, bool content_is_held, std::shared_ptr<const AnswerCalls>* calls) {
  const bool is_asked = chat.must_call || !chat.strict.empty() || !chat.callable.empty();
  if (!MayCall(chat) || chat.tools.empty() || !(is_asked || content_is_held)) return std::nullopt;
  const std::string field = chat.must_call ? "tool_choice" : "tools";
  const std::vector<CallTool> tools = ToolsOf(chat);
  for (size_t i = 0; i < tools.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (tools[k].name == tools[i].name)
        return CallsError{.field = "tools", .message = "tools: two are named " + Quote(tools[i].name)};
    }
  }
  if (tools.empty()) return CallsError{.field = field, .message = field + " names a function that is not among the tools"};
  Result<std::shared_ptr<Grammar>> grammar = std::shared_ptr<Grammar>();
  AnswerCalls made;
  for (const bool json : {false, true}) {
    std::vector<CallNotation> notations = format.CallNotations(json);
    if (notations.empty() && !is_asked) return std::nullopt;
    if (notations.empty()) {
      return CallsError{.field = field,
                        .message = field + ": how this model calls tools is not known: calls cannot be held to schemas",
                        .unsupported = true};
    }
    // Harmony's reader knows its marks as tokens alone.
    const std::string& thinking = notations.front().thinking_begin;
    if (!thinking.empty() && SpelledMarks(model, thinking) == thinking) {
      return CallsError{.field = field,
                        .message = field + ": the vocabulary lacks the marks by which this template calls tools",
                        .unsupported = true};
    }
    uint32_t most = static_cast<uint32_t>(std::min(chat.most_calls.value_or(kMostCalls), kMostCalls));
    if (chat.must_call) {
      DropBegun(prompt, notations);
      notations.resize(1);
    }
    if (std::ranges::any_of(notations, &CallNotation::once)) most = 1;
    grammar = grammars.Get(KeyOf(notations, tools, most), [&] {
      return Grammar::FromCalls(notations, tools,
                                {.most = most, .spell = [&](std::string_view text) { return SpelledMarks(model, text); }});
    });
    if (!grammar.ok()) continue;  // a name or a constant that the model's own notation cannot write
    made = DescribeCalls(model, notations, tools);
    break;
  }
  if (!grammar.ok()) {
    return CallsError{.field = "tools", .message = "tools: the parameters cannot be held: " + grammar.status().message()};
  }
  made.grammar = std::move(*grammar);
  made.must = chat.must_call;
  *calls = std::make_shared<const AnswerCalls>(std::move(made));
  return std::nullopt;
}

}  // namespace tally
