// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/str_operations.h"

#include <algorithm>

#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

Status SplitSpaces(Budget* budget, std::string_view text, int64_t most, std::vector<Stretch>* pieces) {
  Stretch rest = Stripped(text, true, false);
  while (rest.begin < rest.end) {
    TALLY_RETURN_IF_ERROR(budget->Step());
    if (most == 0) {
      pieces->push_back({rest.begin, text.size()});
      return {};
    }
    --most;
    size_t end = rest.begin;
    for (Utf8Char c = ReadUtf8(text, end); c.bytes > 0 && !IsPythonSpace(c.code); c = ReadUtf8(text, end)) end += c.bytes;
    pieces->push_back({rest.begin, end});
    rest.begin = end + Stripped(text.substr(end), true, false).begin;
  }
  return {};
}

Status SplitSpacesFromRight(Budget* budget, std::string_view text, int64_t most, std::vector<Stretch>* pieces) {
  size_t end = Stripped(text, false, true).end;
  while (end > 0) {
    TALLY_RETURN_IF_ERROR(budget->Step());
    if (most == 0) {
      pieces->push_back({0, end});
      break;
    }
    --most;
    size_t begin = end;
    for (Utf8Char c = ReadUtf8Before(text, begin); c.bytes > 0 && !IsPythonSpace(c.code); c = ReadUtf8Before(text, begin)) {
      begin -= c.bytes;
    }
    pieces->push_back({begin, end});
    end = Stripped(text.substr(0, begin), false, true).end;
  }
  std::reverse(pieces->begin(), pieces->end());
  return {};
}

Status SplitAt(Budget* budget, std::string_view text, std::string_view separator, int64_t most, std::vector<Stretch>* pieces) {
  size_t begin = 0;
  for (size_t at; most != 0 && (at = FindText(text, separator, begin)) != text.npos; --most) {
    TALLY_RETURN_IF_ERROR(budget->Step());
    pieces->push_back({begin, at});
    begin = at + separator.size();
  }
  pieces->push_back({begin, text.size()});
  return {};
}

Status SplitAtFromRight(Budget* budget, std::string_view text, std::string_view separator, int64_t most,
                        std::vector<Stretch>* pieces) {
  size_t end = text.size();
  for (size_t at; most != 0 && (at = text.substr(0, end).rfind(separator)) != text.npos; --most) {
    TALLY_RETURN_IF_ERROR(budget->Read(64 + (end - at) * std::min<size_t>(separator.size(), 64)));  // rfind compares at each byte
    pieces->push_back({at + separator.size(), end});
    end = at;
  }
  pieces->push_back({0, end});
  std::reverse(pieces->begin(), pieces->end());
  return {};
}

}  // namespace

Result<Text> Replace(Budget* budget, const Text& text, const Text& old, const Text& with, int64_t count) {
  const std::string& bytes = text.bytes();
  TALLY_RETURN_IF_ERROR(budget->Read(bytes.size()));
  TALLY_RETURN_IF_ERROR(budget->Make(bytes.size()));
  Text out;
  size_t begin = 0;
  if (old.empty()) {  // before every character, and at the end
    for (; count != 0; --count) {
      TALLY_RETURN_IF_ERROR(budget->Step());
      TALLY_RETURN_IF_ERROR(budget->Make(with.size()));
      out.Append(with);
      if (begin == bytes.size()) return out;
      const size_t next = begin + ReadUtf8(bytes, begin).bytes;
      out.AppendPart(text, begin, next);
      begin = next;
      TALLY_RETURN_IF_ERROR(budget->Fits(out.size()));
    }
  }
  for (size_t at; count != 0 && (at = FindText(bytes, old.bytes(), begin)) != std::string::npos; --count) {
    TALLY_RETURN_IF_ERROR(budget->Step());
    TALLY_RETURN_IF_ERROR(budget->Make(with.size()));
    out.AppendPart(text, begin, at);
    out.Append(with);
    begin = at + old.size();
    TALLY_RETURN_IF_ERROR(budget->Fits(out.size()));
  }
  out.AppendPart(text, begin, bytes.size());
  return out;
}

Result<std::vector<Line>> SplitLines(Budget* budget, std::string_view text) {
  TALLY_RETURN_IF_ERROR(budget->Read(text.size()));
  std::vector<Line> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    const bool ends = (c.code >= 0x0A && c.code <= 0x0D) || (c.code >= 0x1C && c.code <= 0x1E) || c.code == 0x85 ||
                      c.code == 0x2028 || c.code == 0x2029;
    size_t next = at + c.bytes;
    if (ends) {
      if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      TALLY_RETURN_IF_ERROR(budget->Step());
      lines.push_back({begin, at, next});
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back({begin, text.size(), text.size()});
  return lines;
}

Result<Values> Split(Budget* budget, const Text& text, const Text* separator, int64_t most, bool from_right) {
  const std::string& bytes = text.bytes();
  TALLY_RETURN_IF_ERROR(budget->Read(bytes.size()));
  TALLY_RETURN_IF_ERROR(budget->Make(bytes.size()));
  if (separator != nullptr && separator->empty()) return BadInput("empty separator");
  std::vector<Stretch> pieces;
  if (separator == nullptr) {
    TALLY_RETURN_IF_ERROR((from_right ? SplitSpacesFromRight : SplitSpaces)(budget, bytes, most, &pieces));
  } else {
    TALLY_RETURN_IF_ERROR((from_right ? SplitAtFromRight : SplitAt)(budget, bytes, separator->bytes(), most, &pieces));
  }
  TALLY_RETURN_IF_ERROR(budget->MakeItems(2 * pieces.size()));
  Values values;
  values.reserve(pieces.size());
  for (const Stretch& piece : pieces) values.emplace_back(text.Part(piece.begin, piece.end));
  return values;
}

Result<Text> Join(Budget* budget, const Text& separator, const std::vector<Text>& parts) {
  Text out;
  uint64_t size = parts.empty() ? 0 : separator.size() * (parts.size() - 1);
  for (const Text& part : parts) size += part.size();
  TALLY_RETURN_IF_ERROR(budget->Make(size));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(parts[i]);
  }
  return out;
}

Result<Text> Escaped(Budget* budget, const Text& text) {
  TALLY_RETURN_IF_ERROR(budget->Make(5 * text.size()));
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string_view with;
    switch (text.bytes()[i]) {
      case '&': with = "&amp;"; break;
      case '<': with = "&lt;"; break;
      case '>': with = "&gt;"; break;
      case '\'': with = "&#39;"; break;
      case '"': with = "&#34;"; break;
      default: out.AppendPart(text, i, i + 1); continue;
    }
    out.Append(with, text.TrustedAt(i));
  }
  out.set_markup(true);
  return out;
}

}  // namespace tally::jinja
