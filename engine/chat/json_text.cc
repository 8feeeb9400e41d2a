// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/json_text.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "engine/chat/marks.h"
#include "engine/text/utf8.h"

namespace tally {
namespace {

using Json = nlohmann::json;

size_t SkipSpace(std::string_view text, size_t at) { return std::min(text.find_first_not_of(kWhiteSpace, at), text.size()); }

// Behind the string that begins at `at`, which is a quotation mark; npos: it does not end.
size_t SkipString(std::string_view text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size(); ++at) {
    if (text[at] == quote) return at + 1;
    if (text[at] == '\\') ++at;
  }
  return text.npos;
}

// Whether a string may begin behind `before`.
bool BeginsValue(char before) { return before == '{' || before == '[' || before == ',' || before == ':'; }

// Behind the value that begins at `at`; npos: it does not end.
size_t SkipValue(std::string_view text, size_t at) {
  size_t depth = 0;
  char before = ':';  // but for white space
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"' || (c == '\'' && BeginsValue(before))) {
      at = SkipString(text, at);
      if (at == text.npos || depth == 0) return at;
      before = c;
      continue;
    }
    if (kWhiteSpace.find(c) == kWhiteSpace.npos) before = c;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    }
    if (c == ',' && depth == 0) return at;
    ++at;
  }
  return text.npos;
}

// \xHH, \uHHHH or \UHHHHHHHH, without the backslash.
struct NumberedEscape {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: it is none
};

NumberedEscape ReadNumberedEscape(std::string_view text) {
  const size_t digits = text.starts_with('x') ? 2 : text.starts_with('u') ? 4 : text.starts_with('U') ? 8 : 0;
  if (digits == 0 || text.size() <= digits) return {};
  NumberedEscape escape = {0, digits + 1};
  const char* const end = text.data() + escape.bytes;
  return std::from_chars(text.data() + 1, end, escape.code, 16).ptr == end ? escape : NumberedEscape();
}

// The same as a character, which two of UTF-16 may be together.
NumberedEscape ReadCharacterEscape(std::string_view text) {
  NumberedEscape escape = ReadNumberedEscape(text);
  if (escape.code >= 0xD800 && escape.code < 0xDC00 && text.substr(escape.bytes).starts_with("\\u")) {
    const NumberedEscape low = ReadNumberedEscape(text.substr(escape.bytes + 1));
    if (low.code >= 0xDC00 && low.code < 0xE000) {
      return {0x10000 + ((escape.code - 0xD800) << 10) + (low.code - 0xDC00), escape.bytes + 1 + low.bytes};
    }
  }
  const bool is_character = escape.code < 0xD800 || (escape.code >= 0xE000 && escape.code < 0x110000);
  return is_character ? escape : NumberedEscape();
}

// What a string of Python or C says. Escapes that have no meaning here stay as they are.
std::string Unescaped(std::string_view inner) {
  std::string text;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] != '\\' || i + 1 == inner.size()) {
      text += inner[i];
      continue;
    }
    const NumberedEscape escape = ReadCharacterEscape(inner.substr(i + 1));
    if (escape.bytes > 0) {
      AppendUtf8(escape.code, &text);
      i += escape.bytes;
      continue;
    }
    switch (const char c = inner[++i]; c) {
      case 'n': text += '\n'; break;
      case 't': text += '\t'; break;
      case 'r': text += '\r'; break;
      case 'b': text += '\b'; break;
      case 'f': text += '\f'; break;
      case '\\':
      case '\'':
      case '"': text += c; break;
      default: (text += '\\') += c;
    }
  }
  return text;
}

std::string_view PythonWord(std::string_view word) {
  if (word == "True") return "true";
  if (word == "False") return "false";
  return word == "None" ? "null" : word;
}

std::string WordToJson(std::string_view word, bool is_key) {
  if (is_key) return QuoteJson(word);
  word = PythonWord(word);
  return IsJson(word) ? std::string(word) : QuoteJson(word);
}

// The string that begins at `at`, which is a quotation mark, as JSON; goes behind it. One that does not end stays as it is.
std::string StringToJson(std::string_view text, size_t* at) {
  const size_t end = SkipString(text, *at);
  const std::string_view string = text.substr(*at, end - *at);
  *at = std::min(end, text.size());
  if (end == text.npos || IsJson(string)) return std::string(string);
  return QuoteJson(Unescaped(string.substr(1, string.size() - 2)));
}

}  // namespace

bool IsJson(std::string_view text) { return Json::accept(text.begin(), text.end()); }

std::string QuoteJson(std::string_view text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::optional<std::string> UnquoteJson(std::string_view quoted) {
  if (!quoted.starts_with('"')) return std::nullopt;
  const Json value = Json::parse(quoted.begin(), quoted.end(), nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

JsonObject ReadJsonObject(std::string_view text) {
  JsonObject object;
  if (!text.starts_with('{')) return object;
  for (size_t at = 1;; ++at) {
    at = SkipSpace(text, at);
    if (at == text.size() || text[at] == '}') return object;
    const bool quoted = text[at] == '"' || text[at] == '\'';
    const size_t key_end = quoted ? SkipString(text, at) : text.npos;
    const size_t colon = key_end == text.npos ? text.size() : SkipSpace(text, key_end);
    if (colon == text.size() || text[colon] != ':') {
      object.rest = Trimmed(text.substr(at));
      return object;
    }
    const std::string_view key = text.substr(at, key_end - at);
    at = SkipSpace(text, colon + 1);
    const size_t end = SkipValue(text, at);
    if (end == text.npos) {
      object.members.push_back({key, Trimmed(text.substr(at)), false});
      return object;
    }
    object.members.push_back({key, Trimmed(text.substr(at, end - at)), true});
    at = SkipSpace(text, end);
    if (at == text.size() || text[at] == '}') return object;
    if (text[at] != ',') {
      object.rest = Trimmed(text.substr(at));
      return object;
    }
  }
}

std::string LooseToJson(std::string_view text, std::string_view quote) {
  static constexpr std::string_view kPunctuation = " \t\r\n{}[]():,=\"'";
  std::string json;
  for (size_t at = 0; at < text.size();) {
    if (!quote.empty() && FitAt(text, at, quote) == Fit::kYes) {
      const size_t begin = at + quote.size(), end = std::min(text.find(quote, begin), text.size());
      json += QuoteJson(text.substr(begin, end - begin));
      at = std::min(end + quote.size(), text.size());
      continue;
    }
    const char c = text[at];
    if (c == '"' || c == '\'') {
      json += StringToJson(text, &at);
      continue;
    }
    if (kPunctuation.find(c) != kPunctuation.npos) {
      json += c == '(' ? '[' : c == ')' ? ']' : c == '=' ? ':' : c;
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && kPunctuation.find(text[end]) == kPunctuation.npos &&
           (quote.empty() || FitAt(text, end, quote) != Fit::kYes)) {
      ++end;
    }
    const size_t next = SkipSpace(text, end);
    const bool is_key = next < text.size() && (text[next] == ':' || text[next] == '=');
    json += WordToJson(text.substr(at, end - at), is_key);
    at = end;
  }
  return json;
}

std::string DictionaryToJson(std::string_view text) {
  static constexpr std::string_view kPunctuation = " \t\r\n{}[]:,\"'";
  if (IsJson(text)) return std::string(text);
  std::string json;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"' || text[at] == '\'') {
      json += StringToJson(text, &at);
    } else if (kPunctuation.find(text[at]) != kPunctuation.npos) {
      json += text[at++];
    } else {
      const size_t end = std::min(text.find_first_of(kPunctuation, at), text.size());
      json += PythonWord(text.substr(at, end - at));
      at = end;
    }
  }
  return IsJson(json) ? json : std::string(text);
}

}  // namespace tally
