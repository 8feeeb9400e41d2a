// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/call_reader.h"

#include <algorithm>
#include <string>
#include <utility>

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

std::optional<ToolCall> ReadJsonCall(const CallFormat& format, std::string_view body, bool ended) {
  ToolCall call;
  std::optional<std::string> arguments;
  const std::vector<JsonMember> members = JsonMembers(body);
  for (const JsonMember& member : members) {
    const std::string_view key = member.key.substr(1, member.key.size() - 2);
    if (key == "arguments" || key == "parameters") {
      arguments = member.value == "null" ? "{}" : Unwrapped(member.value);
    } else if (key == "name" || key == "tool_name" || key == "id" || key == "tool_call_id") {
      std::string& field = key.ends_with("name") ? call.name : call.id;
      if (member.ended && field.empty()) field = UnquoteJson(member.value).value_or("");
    }
  }
  if (format.name_is_key && call.name.empty() && !members.empty()) {
    std::string value = Unwrapped(members[0].value);
    if (!value.starts_with('{')) return std::nullopt;
    call.name = UnquoteJson(members[0].key).value_or("");
    arguments = std::move(value);
  }
  if (call.name.empty()) return std::nullopt;
  call.arguments = std::move(arguments).value_or(ended ? "{}" : "");
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

std::optional<ToolCall> ReadNamedCall(const CallFormat& format, std::string_view body) {
  const size_t mark = body.find(format.args_mark);
  size_t begin = body.find('{');  // of the arguments
  if (mark < begin) begin = body.find_first_of("{\"", mark + format.args_mark.size());
  if (mark == body.npos && begin == body.npos) return std::nullopt;
  auto [before, after] = SplitAt(body.substr(0, begin), format.args_mark);
  std::string_view arguments = begin == body.npos ? after : body.substr(begin);
  if (!format.type_word.empty() && Trimmed(before) == format.type_word) {
    const size_t line_end = after.find_first_of("\n`");
    if (line_end == after.npos && begin == body.npos) return std::nullopt;
    before = after.substr(0, line_end);
    if (begin == body.npos) arguments = {};
  }
  const auto [name, id] = SplitAt(before, format.id_mark);
  ToolCall call;
  call.name = Trimmed(name);
  call.id = Trimmed(id);
  call.arguments = Unwrapped(Trimmed(arguments));
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

// The arguments between tags as a JSON object; none where a value does not end.
std::optional<std::string> ReadTaggedArguments(const CallTags& tags, const ToolTypes& types, std::string_view tool,
                                               std::string_view rest) {
  std::string json = "{";
  for (size_t at; (at = rest.find(tags.key_begin)) != rest.npos;) {
    const auto [key, after_key] = SplitAt(rest.substr(at + tags.key_begin.size()), tags.key_end);
    const size_t value_at = after_key.find(tags.value_begin);
    if (value_at == after_key.npos) return std::nullopt;
    const JsonTypes declared = TypesOf(after_key.substr(0, value_at), types.Of(tool, Trimmed(key)));
    const std::string_view from_value = after_key.substr(value_at + tags.value_begin.size());
    size_t end = from_value.find(tags.value_end);
    const bool last = end == from_value.npos && !tags.end.empty();  // only the call's end ends this value
    if (last) end = from_value.find(tags.end);
    if (end == from_value.npos) return std::nullopt;
    std::string_view value = from_value.substr(0, end);
    if (tags.value_on_lines) value = WithoutLineEnds(value);
    if (json.size() > 1) json += ", ";
    json += QuoteJson(Trimmed(key)) + ": " + BareTextToJson(value, declared);
    if (last) break;
    rest = from_value.substr(end + tags.value_end.size());
  }
  return json + "}";
}

std::optional<ToolCall> ReadTaggedCall(const CallTags& tags, const ToolTypes& types, std::string_view body, bool ended) {
  if (!body.starts_with(tags.name_begin)) return std::nullopt;
  body.remove_prefix(tags.name_begin.size());
  const size_t key = body.find(tags.key_begin), name_end = body.find(tags.name_end);
  const size_t end = std::min(key, name_end);
  if (end == body.npos && !ended) return std::nullopt;
  ToolCall call;
  call.name = Trimmed(body.substr(0, end));
  if (call.name.empty()) return std::nullopt;
  std::string_view rest = end == body.npos ? std::string_view() : body.substr(name_end < key ? end + tags.name_end.size() : end);
  const bool closed = ended || (!tags.end.empty() && rest.find(tags.end) != rest.npos);
  const std::optional<std::string> json = closed ? ReadTaggedArguments(tags, types, call.name, rest) : std::nullopt;
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

std::optional<ToolCall> ReadCall(const CallFormat& format, const ToolTypes& types, CallBody body_kind, std::string_view body,
                                 bool ended) {
  if (body.empty()) return std::nullopt;
  switch (body_kind) {
    case CallBody::kJson: return ReadJsonCall(format, body, ended);
    case CallBody::kNamed: return ReadNamedCall(format, body);
    case CallBody::kTagged: return ReadTaggedCall(*format.tags, types, body, ended);
    case CallBody::kBraced: return ReadBracedCall(format, body, ended);
    case CallBody::kPython: return ReadPythonCall(body, ended);
  }
  return std::nullopt;
}

}  // namespace tally
