// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "engine/text/utf8.h"

namespace tally::jinja {

void Text::MakeMask() {
  if (mask_.empty()) mask_.assign(bytes_.size(), trusted_ ? 1 : 0);
}

void Text::Append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  if (bytes_.empty()) {
    trusted_ = trusted;
  } else if (!mask_.empty() || trusted != trusted_) {
    MakeMask();
    mask_.append(bytes.size(), trusted ? 1 : 0);
  }
  bytes_.append(bytes);
}

void Text::AppendPart(const Text& other, size_t begin, size_t end) {
  if (begin >= end) return;
  if (other.mask_.empty()) {
    Append(std::string_view(other.bytes_).substr(begin, end - begin), other.trusted_);
    return;
  }
  MakeMask();
  mask_.append(other.mask_, begin, end - begin);
  bytes_.append(other.bytes_, begin, end - begin);
}

Text Text::Part(size_t begin, size_t end) const {
  Text part;
  part.AppendPart(*this, begin, end);
  part.markup_ = markup_;
  return part;
}

std::vector<PromptSegment> Text::Segments(size_t most) const {
  std::vector<PromptSegment> segments;
  for (size_t begin = 0, end = 0; begin < size() && segments.size() < most; begin = end) {
    const bool trusted = TrustedAt(begin);
    end = size();
    if (!mask_.empty()) end = std::min(end, mask_.find(trusted ? '\0' : '\1', begin));
    segments.push_back({bytes_.substr(begin, end - begin), trusted});
  }
  return segments;
}

size_t CountCharacters(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return n;
}

size_t ByteOfCharacter(std::string_view text, size_t n) {
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) continue;
    if (n-- == 0) return at;
  }
  return text.size();
}

bool IsPythonSpace(int32_t code) { return IsUnicodeSpace(code) || (code >= 0x1C && code <= 0x1F); }

Stretch Stripped(std::string_view text, bool left, bool right, const std::string* characters) {
  const auto goes = [&](size_t at, const Utf8Char& c) {
    if (characters == nullptr) return IsPythonSpace(c.code);
    return characters->find(text.substr(at, c.bytes)) != std::string::npos;
  };
  Stretch kept{0, text.size()};
  while (left && kept.begin < kept.end) {
    const Utf8Char c = ReadUtf8(text, kept.begin);
    if (!goes(kept.begin, c)) break;
    kept.begin += c.bytes;
  }
  while (right && kept.begin < kept.end) {
    const Utf8Char c = ReadUtf8Before(text, kept.end);
    if (!goes(kept.end - c.bytes, c)) break;
    kept.end -= c.bytes;
  }
  return kept;
}

bool IsLetter(int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
  }
}

bool IsUnicodeDigit(int32_t code) { return utf8proc_category(code) == UTF8PROC_CATEGORY_ND; }
bool IsLowerCase(int32_t code) { return utf8proc_islower(code) != 0; }
bool IsUpperCase(int32_t code) { return utf8proc_isupper(code) != 0; }

namespace {

void AppendUpper(int32_t code, bool title, bool trusted, Text* out) {
  if (code == 0xDF) return out->Append(title ? "Ss" : "SS", trusted);
  std::string one;
  AppendUtf8(static_cast<uint32_t>(title ? utf8proc_totitle(code) : utf8proc_toupper(code)), &one);
  out->Append(one, trusted);
}

void AppendLower(int32_t code, bool trusted, Text* out) {
  std::string one;
  AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(code)), &one);
  out->Append(one, trusted);
}

bool IsCased(int32_t code) { return IsLowerCase(code) || IsUpperCase(code) || utf8proc_category(code) == UTF8PROC_CATEGORY_LT; }

}  // namespace

bool HasCase(std::string_view text, bool upper) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    if (upper ? IsLowerCase(c.code) : IsUpperCase(c.code)) return false;
    any = any || IsCased(c.code);
    at += c.bytes;
  }
  return any;
}

Result<Text> ChangeCase(Budget* budget, const Text& text, Case to) {
  TALLY_RETURN_IF_ERROR(budget->Make(2 * text.size()));
  TALLY_RETURN_IF_ERROR(budget->Step(text.size() / 8));
  Text out;
  out.set_markup(text.markup());
  bool first = true, after_cased = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text.bytes(), at);
    const bool trusted = text.TrustedAt(at);
    bool upper = false;
    switch (to) {
      case Case::kLower: break;
      case Case::kUpper: upper = true; break;
      case Case::kTitle: upper = !after_cased; break;
      case Case::kCapitalize: upper = first; break;
    }
    upper ? AppendUpper(c.code, to == Case::kTitle || to == Case::kCapitalize, trusted, &out)
          : AppendLower(c.code, trusted, &out);
    first = false;
    after_cased = IsCased(c.code);
    at += c.bytes;
  }
  return out;
}

}  // namespace tally::jinja
