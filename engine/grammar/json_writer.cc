// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/json_writer.h"

#include <algorithm>
#include <utility>

#include "engine/grammar/json_numbers.h"

namespace tally {
namespace {

using Json = SchemaJson;

}  // namespace

std::string WrittenJson(const Json& value, JsonSpace space) {
  const char *comma = space == JsonSpace::kNone ? "," : ", ", *colon = space == JsonSpace::kNone ? ":" : ": ";
  std::string text;
  if (value.is_object()) {
    for (auto it = value.begin(); it != value.end(); ++it) {
      text += (text.empty() ? "{" : comma) + Json(it.key()).dump() + colon + WrittenJson(*it, space);
    }
    return text.empty() ? "{}" : text + "}";
  }
  if (value.is_array()) {
    for (const Json& part : value) text += (text.empty() ? "[" : comma) + WrittenJson(part, space);
    return text.empty() ? "[]" : text + "]";
  }
  if (value.is_number()) {
    const auto number = Decimal::Parse(value.dump());
    return number ? number->Text() : value.dump();
  }
  return value.dump();
}

JsonWriter::JsonWriter(Expressions& e, JsonSpace space, const CallNotation* notation)
    : e_(e),
      notation_(notation),
      comma_(space == JsonSpace::kNone ? "," : ", "),
      colon_(space == JsonSpace::kNone ? ":" : ": ") {}

Expr JsonWriter::Null(StringStyle style) const {
  if (notation() == ArgumentNotation::kPython) return e_.Literal("None");
  return style == StringStyle::kQuoted ? e_.Literal("null") : e_.Or({e_.Literal("null"), e_.Literal("None")});
}

Expr JsonWriter::Boolean(bool value, StringStyle style) const {
  const Expr python = e_.Literal(value ? "True" : "False");
  if (notation() == ArgumentNotation::kPython) return python;
  const Expr json = e_.Literal(value ? "true" : "false");
  return style == StringStyle::kQuoted ? json : e_.Or({json, python});
}

ObjectMarks JsonWriter::Arguments() const {
  switch (notation()) {
    case ArgumentNotation::kTagged: return {};
    case ArgumentNotation::kPython: return {.comma = e_.Literal(", ")};
    default: return Object();
  }
}

bool JsonWriter::IsQuoted(bool argument) const {
  return notation() == ArgumentNotation::kJson || (notation() != ArgumentNotation::kBraced && !argument);
}

// Of names that have no quotes.
CodePoints JsonWriter::NameCharacters(bool argument) const {
  CodePoints set;
  if (argument && notation() == ArgumentNotation::kPython) {
    for (const auto& [first, last] : {std::pair{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}})
      set.Add(static_cast<uint32_t>(first), static_cast<uint32_t>(last));
    return set;
  }
  for (const char c : std::string_view("\"'(),:;<=>[\\]`{|}")) set.Add(static_cast<uint8_t>(c), static_cast<uint8_t>(c));
  set.Add(0, ' ');
  set.Add(0x7f, 0xa0);
  CodePoints space = *CodePoints::Category("Z");
  set.Add(space);
  return set.Complement();
}

std::optional<Expr> JsonWriter::Member(const std::string& name, Expr value, bool argument) const {
  if (IsQuoted(argument)) {
    const std::string written = Inside(name, StringStyle::kQuoted);
    return e_.Concat({e_.Literal("\"" + written + "\""), Colon(), value});
  }
  const Result<std::u32string> letters = DecodeUtf8(name);
  const CodePoints allowed = NameCharacters(argument);
  const bool begins = !name.empty() && !(argument && notation() == ArgumentNotation::kPython && name[0] >= '0' && name[0] <= '9');
  if (!begins || !letters.ok() || !std::ranges::all_of(*letters, [&](char32_t c) { return allowed.Has(c); })) return std::nullopt;
  if (!argument || notation() == ArgumentNotation::kBraced) return e_.Concat({e_.Literal(name), Colon(), value});
  if (notation() == ArgumentNotation::kPython) return e_.Concat({e_.Literal(name + "="), value});
  return e_.Concat({e_.Literal(notation_->key_begin + name + notation_->key_end), value, e_.Literal(notation_->value_end)});
}

Expr JsonWriter::OtherMember(const std::vector<std::string>& listed, Expr value, bool argument) const {
  const CodePoints allowed = NameCharacters(argument);
  const bool python = argument && notation() == ArgumentNotation::kPython;
  const Expr first = Utf8Of(e_, python ? allowed.Intersection(CodePoints::Of('A', 'z')) : allowed);
  std::vector<Expr> known;
  known.reserve(listed.size());
  for (const std::string& name : listed) known.push_back(e_.Literal(name));
  const Expr any = e_.Concat(first, e_.Star(Utf8Of(e_, allowed)));
  const Expr name = known.empty() ? any : e_.And({any, e_.Not(e_.Or(known))});
  if (!argument || notation() == ArgumentNotation::kBraced) return e_.Concat({name, Colon(), value});
  if (python) return e_.Concat({name, e_.Literal("="), value});
  return e_.Concat(
      {e_.Literal(notation_->key_begin), name, e_.Literal(notation_->key_end), value, e_.Literal(notation_->value_end)});
}

bool JsonWriter::HasEscapes(StringStyle style) const {
  return style == StringStyle::kQuoted && notation() != ArgumentNotation::kBraced;
}

Expr JsonWriter::AnyCharacter(StringStyle style) {
  Expr& known = any_[static_cast<size_t>(style)];
  if (known == Expressions::kNone) known = HasEscapes(style) ? JsonAny(e_, CodePoints::All()) : Utf8Of(e_, CodePoints::All());
  return known;
}

Expr JsonWriter::PlainCharacter(StringStyle style) {
  Expr& known = plain_[static_cast<size_t>(style)];
  if (known == Expressions::kNone) known = Plain(style)(e_, CodePoints::All());
  return known;
}

Spelling JsonWriter::Plain(StringStyle style) const { return HasEscapes(style) ? Spelling(JsonPlain) : Spelling(Utf8Of); }

std::string JsonWriter::Inside(const std::string& text, StringStyle style) const {
  if (!HasEscapes(style)) return text;
  std::string written = Json(text).dump();
  written = written.substr(1, written.size() - 2);
  if (notation() != ArgumentNotation::kTagged) return written;
  for (size_t at; (at = written.find(notation_->text_stop)) != written.npos;) {
    const size_t slash = written.find('/', at);
    if (slash == written.npos) break;
    written.insert(slash, 1, '\\');
  }
  return written;
}

Expr JsonWriter::Whole(Expr inside, StringStyle style) {
  if (!HasEscapes(style) ||
      notation() == ArgumentNotation::kTagged) {  // a tag ends a value within a string too: it can be escaped
    const Expr any = e_.Star(e_.Bytes(ByteSet::All()));
    inside = e_.And({inside, e_.Not(e_.Concat({any, e_.Literal(notation_->text_stop), any}))});
  }
  if (style == StringStyle::kBare) return inside;
  const std::string quote = HasEscapes(style) ? "\"" : notation_->quote;
  return e_.Concat({e_.Literal(quote), inside, e_.Literal(quote)});
}

Expr JsonWriter::Value(const Json& value, StringStyle style) {
  if (value.is_string()) {
    const std::string inside = Inside(value.get<std::string>(), style);
    const bool fits = HasEscapes(style) || inside.find(notation_->text_stop) == inside.npos;
    return fits ? Whole(e_.Literal(inside), style) : Expressions::kNone;
  }
  if (value.is_null()) return Null(style);
  if (value.is_boolean()) return Boolean(value.get<bool>(), style);
  if (value.is_number() || notation() == ArgumentNotation::kJson)
    return e_.Literal(WrittenJson(value, comma_ == "," ? JsonSpace::kNone : JsonSpace::kOne));
  Expr inside = Expressions::kEmpty;
  bool first = true;
  for (auto it = value.begin(); it != value.end(); ++it) {
    const Expr part = Value(*it, StringStyle::kQuoted);
    const std::optional<Expr> member = value.is_array() ? std::optional(part) : Member(it.key(), part, /*argument=*/false);
    if (!member || part == Expressions::kNone) return Expressions::kNone;
    inside = e_.Concat({inside, std::exchange(first, false) ? Expressions::kEmpty : Comma(), *member});
  }
  return e_.Concat({e_.Literal(value.is_array() ? "[" : "{"), inside, e_.Literal(value.is_array() ? "]" : "}")});
}

}  // namespace tally
