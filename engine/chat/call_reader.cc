// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/call_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/json_text.h"
#include "engine/chat/marks.h"

namespace tally {
namespace {

// The text before the first `mark`, and that after it; all and nothing where there is none.
std::pair<std::string_view, std::string_view> SplitAt(std::string_view text, std::string_view mark) {
  const size_t at = mark.empty() ? text.npos : text.find(mark);
  if (at == text.npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + mark.size())};
}

// Arguments as written. Some models write the object as a JSON string: then what is in it.
std::string Unwrapped(std::string_view arguments) {
  std::optional<std::string> inner = UnquoteJson(arguments);
  if (inner && inner->starts_with('{') && IsJson(*inner)) return *std::move(inner);
  return std::string(arguments);
}

// What a string of JSON or of Python says; "" for anything else.
std::string Unquoted(std::string_view value) {
  return UnquoteJson(value.starts_with('\'') ? LooseToJson(value, {}) : std::string(value)).value_or("");
}

std::string_view KeyOf(const JsonMember& member) { return member.key.substr(1, member.key.size() - 2); }

bool HoldsArguments(const JsonMember& member) {
  const std::string_view key = KeyOf(member);
  if (key == "arguments" || key == "parameters") return true;
  return (key == "input" || key == "args") && Unwrapped(member.value).starts_with('{');
}

std::string HeldArguments(const JsonMember& member) { return member.value == "null" ? "{}" : Unwrapped(member.value); }

// The member that names the function, or null.
const JsonMember* FindName(const std::vector<JsonMember>& members) {
  for (const auto& keys : {std::pair("name", "tool_name"), std::pair("function", "function")}) {
    const auto names = [&](const JsonMember& member) {
      return (KeyOf(member) == keys.first || KeyOf(member) == keys.second) && member.ended && !Unquoted(member.value).empty();
    };
    if (const auto name = std::ranges::find_if(members, names); name != members.end()) return &*name;
  }
  return nullptr;
}

// Whether it says that this is a call: "type": "function".
bool IsKind(const JsonMember& member) {
  const std::string kind = KeyOf(member) == "type" ? Unquoted(member.value) : "";
  return kind == "function" || kind == "function_call" || kind == "tool_call" || kind == "tool_use";
}

// Whether it is the call's id, which then is in `id`: a string, or a number.
bool IsId(const JsonMember& member, std::string* id) {
  const std::string_view key = KeyOf(member);
  if (!member.ended || !id->empty() || (key != "id" && key != "tool_call_id" && key != "call_id")) return false;
  const std::string text = Unquoted(member.value);
  *id = text.empty() && member.value.find_first_not_of("0123456789") == member.value.npos ? std::string(member.value) : text;
  return !id->empty() || member.value == "null";
}

using Members = std::vector<const JsonMember*>;

std::string Object(const Members& members, std::string_view rest, bool ended) {
  std::string json;
  for (const JsonMember* member : members) {
    json += json.empty() ? "{" : ", ";
    ((json += member->key) += ": ") += member->value;
  }
  if (!rest.empty()) (json += json.empty() ? "{" : ", ") += rest;
  if (!ended) return json;
  const bool open = rest.empty() && (members.empty() || members.back()->ended);
  return (json.empty() ? "{" : json) + (open ? "}" : "");
}

// The arguments that one member holds and those beside it as one object; none where that would lose one.
std::optional<std::string> Together(const Members& members) {
  const auto holds = [](const JsonMember* member) { return HoldsArguments(*member); };
  if (std::ranges::count_if(members, holds) != 1) return std::nullopt;
  const std::string held = HeldArguments(**std::ranges::find_if(members, holds));
  if (!held.starts_with('{') || !IsJson(held)) return std::nullopt;
  const JsonObject object = ReadJsonObject(held);
  Members all;
  for (const JsonMember& member : object.members) all.push_back(&member);
  for (const JsonMember* member : members) {
    const auto same = [&](const JsonMember* other) { return KeyOf(*other) == KeyOf(*member); };
    if (holds(member)) continue;
    if (std::ranges::any_of(all, same)) return std::nullopt;
    all.push_back(member);
  }
  return Object(all, {}, true);
}

// The text of a call from the value of its last member on, which `rest` goes on. Some models write an object between quotes and escape
// nothing in it: then the object.
std::string BrokenArguments(std::string_view value, std::string_view rest, bool ended) {
  std::string_view text = rest;  // where the value is missing
  if (!value.empty()) text = {value.data(), static_cast<size_t>(rest.data() + rest.size() - value.data())};
  if (ended && text.ends_with('}')) text = Trimmed(text.substr(0, text.size() - 1));
  if (text.size() > 2 && text.starts_with('"') && text.ends_with('"')) {
    const std::string_view inner = text.substr(1, text.size() - 2);
    if (inner.starts_with('{') && IsJson(inner)) return std::string(inner);
  }
  return std::string(text);
}

// The members of a call that are neither its name nor its id nor its kind: one that holds the arguments, or the arguments.
std::string JsonArguments(const Members& members, std::string_view rest, bool ended) {
  if (members.size() == 1 && HoldsArguments(*members[0])) {
    return rest.empty() ? HeldArguments(*members[0]) : BrokenArguments(members[0]->value, rest, ended);
  }
  const std::optional<std::string> together = ended && rest.empty() ? Together(members) : std::nullopt;
  return together.value_or(Object(members, rest, ended));
}

std::optional<ToolCall> ReadJsonCall(const CallFormat& format, const ToolTypes& types, std::string_view text, bool ended,
                                     bool may_be_wrapped = true) {
  if (text.starts_with("{{")) {  // as templates show it that escape braces once too often
    ended = ended && text.ends_with("}}");
    text = text.substr(1, text.size() - (ended ? 2 : 1));
  }
  const std::string body = ended ? DictionaryToJson(text) : std::string(text);
  const JsonObject object = ReadJsonObject(body);
  const bool holds = std::ranges::any_of(object.members, HoldsArguments);
  const JsonMember* const name = FindName(object.members);
  ToolCall call;
  if (name != nullptr) call.name = Unquoted(name->value);
  Members others;
  const JsonMember* function = nullptr;  // {"type": "function", "function": {...}}
  for (const JsonMember& member : object.members) {
    const bool argument = !holds && types.Has(call.name, KeyOf(member));
    if (&member == name || (!argument && (IsKind(member) || IsId(member, &call.id)))) continue;
    if (name == nullptr && function == nullptr && may_be_wrapped && KeyOf(member) == "function") {
      function = &member;
    } else {
      others.push_back(&member);
    }
  }
  if (name != nullptr) {
    call.arguments = JsonArguments(others, object.rest, ended);
    return call;
  }
  if (function != nullptr) {
    std::optional<ToolCall> inner = ReadJsonCall(format, types, function->value, ended && function->ended, false);
    if (inner && inner->id.empty()) inner->id = call.id;
    if (inner && (!others.empty() || !object.rest.empty())) inner->arguments = body;
    if (inner) return inner;
  }
  if (!format.name_is_key || object.members.empty()) return std::nullopt;
  call.name = Unquoted(object.members[0].key);
  call.arguments = Unwrapped(object.members[0].value);
  if (call.name.empty() || !call.arguments.starts_with('{')) return std::nullopt;
  if (object.members.size() > 1 || !object.rest.empty()) call.arguments = body;
  return call;
}

// "functions.NAME:0", which is Kimi's id of a call.
void SplitNumberedName(ToolCall* call) {
  static constexpr std::string_view kNamespace = "functions.";
  const size_t colon = call->name.rfind(':');
  if (!call->name.starts_with(kNamespace) || colon == call->name.npos) return;
  call->id = call->name;
  call->name = call->name.substr(kNamespace.size(), colon - kNamespace.size());
}

// Without the fence that stands before it, which has no end here.
std::string_view WithoutFence(std::string_view text) {
  static constexpr std::string_view kFence = "```", kLanguage = "json";
  if (!text.starts_with(kFence)) return text;
  text.remove_prefix(kFence.size());
  if (text.starts_with(kLanguage)) text.remove_prefix(kLanguage.size());
  return Trimmed(text);
}

std::optional<ToolCall> ReadNamedCall(const CallFormat& format, std::string_view body, bool ended) {
  const size_t mark = body.find(format.args_mark), brace = body.find('{');
  if (mark == body.npos && brace == body.npos) return std::nullopt;
  std::string_view before = body.substr(0, std::min(mark, brace));
  std::string_view arguments = mark < brace ? body.substr(mark + format.args_mark.size()) : body.substr(brace);
  if (mark < brace && !format.type_word.empty() && Trimmed(before) == format.type_word) {
    const size_t line_end = arguments.find_first_of("\n`{");
    if (line_end == arguments.npos) return std::nullopt;
    before = arguments.substr(0, line_end);
    arguments.remove_prefix(line_end);
  }
  ToolCall call;
  const auto [first, second] = SplitAt(before, format.name_mark.empty() ? format.id_mark : format.name_mark);
  call.name = Trimmed(format.name_mark.empty() || second.empty() ? first : second);
  call.id = Trimmed(format.name_mark.empty() || second.empty() ? second : first);
  call.arguments = Unwrapped(WithoutFence(Trimmed(arguments)));
  if (ended && call.arguments.starts_with('{')) call.arguments = DictionaryToJson(call.arguments);
  SplitNumberedName(&call);
  if (call.name.empty()) return std::nullopt;
  return call;
}

// The type that stands between a key and its value; else what the tool declares.
JsonTypes TypesOf(std::string_view attributes, JsonTypes declared) {
  if (attributes.find("string=\"true\"") != attributes.npos) return kJsonString;
  return attributes.find("string=\"false\"") != attributes.npos ? JsonTypes{0} : declared;
}

std::string_view WithoutLineEnds(std::string_view value) {
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  return value;
}

constexpr std::string_view kCdataBegin = "<![CDATA[", kCdataEnd = "]]>";

// Where the value that `text` begins with ends: before its end tag, or where that is missing before the call's end.
size_t ValueEnd(const CallTags& tags, std::string_view text) {
  const bool cdata = tags.cdata && Trimmed(text).starts_with(kCdataBegin);
  const size_t from = cdata ? text.find(kCdataEnd) : 0;
  if (from == text.npos) return from;
  const size_t end = text.find(tags.value_end, from);
  return end == text.npos && !tags.end.empty() ? text.find(tags.end, from) : end;
}

std::string_view WithoutCdata(std::string_view value) {
  const std::string_view trimmed = Trimmed(value);
  if (!trimmed.starts_with(kCdataBegin) || !trimmed.ends_with(kCdataEnd)) return value;
  return trimmed.substr(kCdataBegin.size(), trimmed.size() - kCdataBegin.size() - kCdataEnd.size());
}

// The arguments between tags as a JSON object; none where a value does not end, or something else stands between them.
std::optional<std::string> ReadTaggedArguments(const CallTags& tags, const ToolTypes& types, std::string_view tool,
                                               std::string_view rest, std::string_view section_end) {
  std::string json = "{";
  for (size_t at; (at = rest.find(tags.key_begin)) != rest.npos;) {
    if (!Trimmed(rest.substr(0, at)).empty()) return std::nullopt;
    const auto [key, after_key] = SplitAt(rest.substr(at + tags.key_begin.size()), tags.key_end);
    const size_t value_at = after_key.find(tags.value_begin);
    if (value_at == after_key.npos) return std::nullopt;
    const JsonTypes declared = TypesOf(after_key.substr(0, value_at), types.Of(tool, Trimmed(key)));
    const std::string_view from_value = after_key.substr(value_at + tags.value_begin.size());
    const size_t end = ValueEnd(tags, from_value);
    if (end == from_value.npos) return std::nullopt;
    std::string_view value = from_value.substr(0, end);
    if (tags.value_on_lines) value = WithoutLineEnds(value);
    if (tags.cdata) value = WithoutCdata(value);
    if (json.size() > 1) json += ", ";
    json += QuoteJson(Trimmed(key)) + ": " + BareTextToJson(value, declared);
    rest = from_value.substr(end);
    if (rest.starts_with(tags.value_end)) rest.remove_prefix(tags.value_end.size());
  }
  for (const std::string_view end : {section_end, tags.end}) {
    rest = Trimmed(rest);
    if (!end.empty() && rest.ends_with(end)) rest.remove_suffix(end.size());
  }
  rest = Trimmed(rest);
  if (json.size() == 1 && rest.starts_with('{')) {  // written as JSON
    const std::string object = DictionaryToJson(rest);
    if (IsJson(object)) return object;
  }
  return rest.empty() ? std::optional(json + "}") : std::nullopt;
}

// Reads arguments that are elements: CallTags::element.
class ElementReader {
 public:
  ElementReader(std::string_view mark, const ToolTypes& types, std::string_view tool, std::string_view text)
      : mark_(mark), types_(types), tool_(tool), rest_(text) {}

  // All elements before `end`: JSON, or none where they do not nest.
  std::optional<std::string> Arguments(std::string_view end) {
    std::optional<std::string> json = Elements(0, 0);
    return Trimmed(rest_) == end ? json : std::nullopt;
  }

 private:
  // Those up to an end that is of none of them. Below the arguments they may be a list.
  std::optional<std::string> Elements(JsonTypes declared, size_t depth) {
    std::vector<std::pair<std::string_view, std::string>> elements;
    for (;;) {
      const size_t at = rest_.find(mark_);
      if (at == rest_.npos || !Trimmed(rest_.substr(0, at)).empty()) return std::nullopt;
      rest_.remove_prefix(at);
      const std::string_view tag = rest_.substr(mark_.size());
      if (tag.starts_with('/')) break;
      const std::string_view key = tag.substr(0, tag.find('>'));
      if (key.empty() || key.size() == tag.size()) return std::nullopt;
      rest_ = tag.substr(key.size() + 1);
      std::optional<std::string> value = Value(depth == 0 ? types_.Of(tool_, key) : JsonTypes{0}, depth);
      const std::string end = (std::string(mark_) + "/").append(key) + ">";
      if (!value || !rest_.starts_with(end)) return std::nullopt;
      rest_.remove_prefix(end.size());
      elements.emplace_back(key, *std::move(value));
    }
    return Joined(elements, depth > 0 && declared != kJsonObject);
  }

  std::optional<std::string> Value(JsonTypes declared, size_t depth) {
    constexpr size_t kMaxDepth = 64;
    const size_t at = rest_.find(mark_);
    if (at == rest_.npos || depth == kMaxDepth) return std::nullopt;
    if (!rest_.substr(at + mark_.size()).starts_with('/')) return Elements(declared, depth + 1);
    const std::string_view text = rest_.substr(0, at);
    rest_.remove_prefix(at);
    if (text.empty() && declared == kJsonObject) return "{}";
    return text.empty() && declared == kJsonArray ? "[]" : BareTextToJson(text, declared);
  }

  static std::optional<std::string> Joined(const std::vector<std::pair<std::string_view, std::string>>& elements,
                                           bool may_be_list) {
    const auto is_item = [](const auto& element) { return element.first == "item"; };
    const bool list = may_be_list && std::ranges::all_of(elements, is_item);
    std::string json;
    for (size_t i = 0; i < elements.size(); ++i) {
      const auto same = [&](const auto& other) { return other.first == elements[i].first; };
      if (!list && std::ranges::count_if(elements, same) > 1) return std::nullopt;
      if (i > 0) json += ", ";
      json += (list ? "" : QuoteJson(elements[i].first) + ": ") + elements[i].second;
    }
    return list ? "[" + json + "]" : "{" + json + "}";
  }

  const std::string_view mark_;
  const ToolTypes& types_;
  const std::string_view tool_;
  std::string_view rest_;
};

std::optional<ToolCall> ReadTaggedCall(const CallFormat& format, const ToolTypes& types, std::string_view body, bool ended) {
  const CallTags& tags = *format.tags;
  if (!body.starts_with(tags.name_begin)) return std::nullopt;
  body.remove_prefix(tags.name_begin.size());
  const size_t key = tags.key_begin.empty() ? body.npos : body.find(tags.key_begin), name_end = body.find(tags.name_end);
  const size_t end = std::min(key, name_end);
  if (end == body.npos && !ended) return std::nullopt;
  ToolCall call;
  call.name = Trimmed(body.substr(0, end));
  if (call.name.empty()) return std::nullopt;
  const std::string_view rest =
      end == body.npos ? std::string_view() : body.substr(name_end < key ? end + tags.name_end.size() : end);
  std::optional<std::string> json;
  if (ended || (!tags.end.empty() && rest.find(tags.end) != rest.npos)) {
    json = tags.element.empty() ? ReadTaggedArguments(tags, types, call.name, rest, format.sections[0].marks.end)
                                : ElementReader(tags.element, types, call.name, rest).Arguments(tags.end);
  }
  call.arguments = json.value_or(std::string(Trimmed(rest)));
  return call;
}

// NAME and what stands between the brackets, rewritten where that gives JSON.
std::optional<ToolCall> ReadBracketedCall(std::string_view name, std::string_view arguments, std::string_view quote, bool ended) {
  ToolCall call;
  call.name = Trimmed(name);
  if (call.name.empty()) return std::nullopt;
  call.arguments = Trimmed(arguments);
  if (!ended) return call;
  std::string json = LooseToJson("{" + call.arguments + "}", quote);
  if (IsJson(json)) call.arguments = std::move(json);
  return call;
}

std::optional<ToolCall> ReadBracedCall(const CallFormat& format, std::string_view body, bool ended) {
  const size_t name_begin = std::min(body.find(':'), body.size() - 1) + 1, brace = body.find('{');
  if (brace == body.npos || brace < name_begin) return std::nullopt;
  std::string_view arguments = body.substr(brace + 1);
  if (ended && arguments.ends_with('}')) arguments.remove_suffix(1);
  return ReadBracketedCall(body.substr(name_begin, brace - name_begin), arguments, format.quote, ended);
}

std::optional<ToolCall> ReadPythonCall(std::string_view body, bool ended) {
  static constexpr std::string_view kMethod = ".call";  // brave_search.call(query="..."): Llama's built-in tools
  const size_t bracket = body.find('(');
  if (bracket == body.npos) return std::nullopt;
  std::string_view name = body.substr(0, bracket), arguments = body.substr(bracket + 1);
  if (name.ends_with(kMethod)) name.remove_suffix(kMethod.size());
  if (ended && arguments.ends_with(')')) arguments.remove_suffix(1);
  return ReadBracketedCall(name, arguments, {}, ended);
}

}  // namespace

bool NamesArguments(std::string_view json) {
  const JsonObject object = ReadJsonObject(json);
  return std::ranges::any_of(object.members, [](const JsonMember& member) {
    if (KeyOf(member) != "function") return HoldsArguments(member);
    const JsonObject inner = ReadJsonObject(member.value);
    return std::ranges::any_of(inner.members, HoldsArguments);
  });
}

std::optional<ToolCall> ReadCall(const CallFormat& format, const ToolTypes& types, CallBody body_kind, std::string_view body,
                                 bool ended) {
  if (body.empty()) return std::nullopt;
  switch (body_kind) {
    case CallBody::kJson: return ReadJsonCall(format, types, body, ended);
    case CallBody::kNamed: return ReadNamedCall(format, body, ended);
    case CallBody::kTagged: return ReadTaggedCall(format, types, body, ended);
    case CallBody::kBraced: return ReadBracedCall(format, body, ended);
    case CallBody::kPython: return ReadPythonCall(body, ended);
  }
  return std::nullopt;
}

}  // namespace tally
