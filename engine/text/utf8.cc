// SPDX-License-Identifier: Apache-2.0
#include "engine/text/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace tally {

Utf8Char ReadUtf8(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {lead, 1, false};
  int more = 0;
  uint8_t low = 0x80, high = 0xBF;  // of the second byte
  uint32_t code = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    more = 1;
    code = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    more = 2;
    code = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;  // surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    more = 3;
    code = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {-1, 1, false};
  }
  for (int k = 1; k <= more; ++k) {
    if (at + k >= text.size()) return {-1, static_cast<uint32_t>(k), true};
    const uint8_t next = byte(at + k);
    if (next < low || next > high) return {-1, static_cast<uint32_t>(k), false};
    code = (code << 6) | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {static_cast<int32_t>(code), static_cast<uint32_t>(more + 1), false};
}

Utf8Char ReadUtf8Before(std::string_view text, size_t end) {
  if (end == 0) return {};
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return ReadUtf8(text.substr(0, end), begin);
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto tail = [&](int shift) { out->push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3F))); };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string_view WellFormed(std::string_view text, std::string* storage) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = ReadUtf8(text, at);
    if (c.code < 0) break;
    at += c.bytes;
  }
  if (at == text.size()) return text;
  storage->assign(text.substr(0, at));
  const size_t used = AppendWholeCharacters(text.substr(at), storage);
  if (at + used < text.size()) AppendUtf8(0xFFFD, storage);
  return *storage;
}

size_t AppendWholeCharacters(std::string_view bytes, std::string* out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Char c = ReadUtf8(bytes, at);
    if (c.incomplete) break;
    if (c.code < 0) {
      AppendUtf8(0xFFFD, out);
    } else {
      out->append(bytes, at, c.bytes);
    }
    at += c.bytes;
  }
  return at;
}

bool IsUnicodeSpace(int32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool IsUnicodeNumber(int32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return true;
    default: return false;
  }
}

bool IsUnicodePunctuation(int32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  }
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
  }
}

size_t FindText(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size() || what.size() > text.size() - from) return text.npos;
  if (what.empty()) return from;
  // memmem searches overlapping windows: it is linear, but sanitizers check the whole range of each call.
  const size_t window = std::max<size_t>(256, 4 * what.size());
  for (; text.size() - from >= what.size(); from += window - (what.size() - 1)) {
    const size_t length = std::min(window, text.size() - from);
    const void* const found = ::memmem(text.data() + from, length, what.data(), what.size());
    if (found != nullptr) return static_cast<size_t>(static_cast<const char*>(found) - text.data());
    if (length < window) break;
  }
  return text.npos;
}

}  // namespace tally
