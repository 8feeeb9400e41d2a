// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace tally {
namespace {

using Range = CodePoints::Range;

constexpr Range kSurrogates = {0xd800, 0xdfff};

std::string Encoded(uint32_t c) {
  std::string bytes;
  if (c < 0x80) {
    bytes += static_cast<char>(c);
  } else if (c < 0x800) {
    bytes += static_cast<char>(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    bytes += static_cast<char>(0xe0 | c >> 12);
    bytes += static_cast<char>(0x80 | (c >> 6 & 0x3f));
  } else {
    bytes += static_cast<char>(0xf0 | c >> 18);
    bytes += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    bytes += static_cast<char>(0x80 | (c >> 6 & 0x3f));
  }
  if (c >= 0x80) bytes += static_cast<char>(0x80 | (c & 0x3f));
  return bytes;
}

// Texts of one length between `low` and `high`, which differ at most from `at` on, where each position may be from `least` to `most`
// once the position before it lies strictly between its bounds.
Expr Between(Expressions& e, const std::string& low, const std::string& high, size_t at, const ByteSet& any) {
  const auto byte = [](char c) { return static_cast<uint8_t>(c); };
  if (at == low.size()) return Expressions::kEmpty;
  const uint8_t first = byte(low[at]), last = byte(high[at]);
  if (at + 1 == low.size()) {
    ByteSet set = ByteSet::Range(first, last);
    if (at > 0) set &= any;
    return e.Bytes(set);
  }
  if (first == last) return e.Concat(e.Bytes(ByteSet::Of(first)), Between(e, low, high, at + 1, any));
  uint8_t least = 0, most = 255;
  while (!any.Has(least)) ++least;
  while (!any.Has(most)) --most;
  const std::string top(low.size(), static_cast<char>(most)), bottom(low.size(), static_cast<char>(least));
  std::vector<Expr> parts;
  parts.push_back(e.Concat(e.Bytes(ByteSet::Of(first)), Between(e, low, top, at + 1, any)));
  if (last - first > 1) {
    ByteSet middle = ByteSet::Range(static_cast<uint8_t>(first + 1), static_cast<uint8_t>(last - 1));
    if (at > 0) middle &= any;
    parts.push_back(e.Concat(e.Bytes(middle), Between(e, bottom, top, at + 1, any)));
  }
  parts.push_back(e.Concat(e.Bytes(ByteSet::Of(last)), Between(e, bottom, high, at + 1, any)));
  return e.Or(parts);
}

// Four hexadecimal digits, of either case, of a number from `first` to `last`.
Expr HexBetween(Expressions& e, uint32_t first, uint32_t last, int digits) {
  const auto digit = [&](uint32_t from, uint32_t to) {
    ByteSet set;
    for (uint32_t d = from; d <= to; ++d) {
      set.Add(static_cast<uint8_t>("0123456789abcdef"[d]));
      set.Add(static_cast<uint8_t>("0123456789ABCDEF"[d]));
    }
    return e.Bytes(set);
  };
  const int shift = 4 * (digits - 1);
  const uint32_t a = first >> shift, b = last >> shift, below = (1u << shift) - 1;
  if (digits == 1) return digit(a, b);
  if (a == b) return e.Concat(digit(a, a), HexBetween(e, first & below, last & below, digits - 1));
  std::vector<Expr> parts = {e.Concat(digit(a, a), HexBetween(e, first & below, below, digits - 1)),
                             e.Concat(digit(b, b), HexBetween(e, 0, last & below, digits - 1))};
  if (b - a > 1) parts.push_back(e.Concat(digit(a + 1, b - 1), HexBetween(e, 0, below, digits - 1)));
  return e.Or(parts);
}

// Two escaped surrogates; the range is above U+FFFF.
Expr EscapedPair(Expressions& e, const Range& range) {
  constexpr uint32_t kOfOneHigh = 0x400;
  std::vector<Expr> parts;
  for (uint32_t c = range.first; c <= range.second;) {
    const uint32_t high = 0xd800 + (c - 0x10000) / kOfOneHigh, low = 0xdc00 + c % kOfOneHigh;
    const uint32_t whole = c % kOfOneHigh == 0 ? (range.second - c + 1) / kOfOneHigh : 0;
    const uint32_t last = whole != 0 ? c + whole * kOfOneHigh - 1 : std::min(range.second, c | (kOfOneHigh - 1));
    parts.push_back(e.Concat({e.Literal("\\u"), HexBetween(e, high, whole != 0 ? high + whole - 1 : high, 4), e.Literal("\\u"),
                              HexBetween(e, low, 0xdc00 + last % kOfOneHigh, 4)}));
    c = last + 1;
  }
  return e.Or(parts);
}

constexpr std::array<std::pair<char, uint32_t>, 8> kShortEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 8}, {'f', 12}, {'n', 10}, {'r', 13}, {'t', 9}}};

CodePoints MustEscape() {
  CodePoints set = CodePoints::Of(0, 0x1f);
  set.Add('"', '"');
  set.Add('\\', '\\');
  return set;
}

}  // namespace

void CodePoints::Add(uint32_t first, uint32_t last) {
  last = std::min<uint32_t>(last, 0x10ffff);
  if (first > last) return;
  if (first <= kSurrogates.second && last >= kSurrogates.first) {
    if (first < kSurrogates.first) Add(first, kSurrogates.first - 1);
    if (last > kSurrogates.second) Add(kSurrogates.second + 1, last);
    return;
  }
  // Those that touch [first, last] become one with it. The surrogates stay between their neighbours.
  auto begin = ranges_.begin();
  while (begin != ranges_.end() && begin->second + 1 < first) ++begin;
  auto end = begin;
  while (end != ranges_.end() && end->first <= last + 1) {
    first = std::min(first, end->first);
    last = std::max(last, end->second);
    ++end;
  }
  begin = ranges_.erase(begin, end);
  ranges_.insert(begin, {first, last});
}

void CodePoints::Add(const CodePoints& other) {
  for (const auto& [first, last] : other.ranges_) Add(first, last);
}

CodePoints CodePoints::Complement() const {
  CodePoints set;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) set.Add(next, first - 1);
    next = last + 1;
  }
  set.Add(next, 0x10ffff);
  return set;
}

CodePoints CodePoints::Intersection(const CodePoints& other) const {
  CodePoints set = Complement();
  set.Add(other.Complement());
  return set.Complement();
}

bool CodePoints::Has(uint32_t c) const {
  return std::ranges::any_of(ranges_, [&](const Range& range) { return range.first <= c && c <= range.second; });
}

std::optional<CodePoints> CodePoints::Category(std::string_view name) {
  const std::pair<std::string_view, std::string_view> long_names[] = {{"Letter", "L"},
                                                                      {"Lowercase_Letter", "Ll"},
                                                                      {"Uppercase_Letter", "Lu"},
                                                                      {"Mark", "M"},
                                                                      {"Number", "N"},
                                                                      {"Decimal_Number", "Nd"},
                                                                      {"Punctuation", "P"},
                                                                      {"Symbol", "S"},
                                                                      {"Separator", "Z"},
                                                                      {"Other", "C"}};
  for (const auto& [full, shorter] : long_names) {
    if (name == full) name = shorter;
  }
  // A walk over all of Unicode, once for each of the few names there are.
  static std::mutex mutex;
  static std::map<std::string, CodePoints, std::less<>> found;
  const std::scoped_lock lock(mutex);
  if (const auto place = found.find(name); place != found.end()) return place->second;
  CodePoints set;
  bool known = false;
  uint32_t begin = 0;
  bool inside = false;
  for (uint32_t c = 0; c <= 0x110000; ++c) {
    bool in = false;
    if (c <= 0x10ffff) {
      const std::string_view category = utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
      in = category == name || (name.size() == 1 && category.substr(0, 1) == name);
    }
    if (in && !inside) begin = c;
    if (!in && inside) set.Add(begin, c - 1);
    inside = in;
    known |= in;
  }
  if (!known) return std::nullopt;
  return found.emplace(name, std::move(set)).first->second;
}

Result<std::u32string> DecodeUtf8(std::string_view text) {
  std::u32string decoded;
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t c = 0;
    const utf8proc_ssize_t n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                                static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (n <= 0) return BadInput("byte " + std::to_string(at + 1) + " is not UTF-8");
    decoded += static_cast<char32_t>(c);
    at += static_cast<size_t>(n);
  }
  return decoded;
}

Expr Utf8Of(Expressions& e, const CodePoints& set) {
  ByteSet any;  // of the bytes after the first
  for (int b = 0x80; b <= 0xbf; ++b) any.Add(static_cast<uint8_t>(b));
  std::vector<Expr> parts;
  for (auto [first, last] : set.ranges()) {
    for (const uint32_t end : {0x7fu, 0x7ffu, 0xffffu, 0x10ffffu}) {  // of one length
      if (first > last || first > end) continue;
      const uint32_t until = std::min(last, end);
      parts.push_back(Between(e, Encoded(first), Encoded(until), 0, any));
      first = until + 1;
    }
  }
  return e.Or(parts);
}

Expr JsonPlain(Expressions& e, const CodePoints& set) {
  const CodePoints escaped = MustEscape();
  std::vector<Expr> parts = {Utf8Of(e, set.Intersection(escaped.Complement()))};
  const CodePoints special = set.Intersection(escaped);
  for (const auto& [first, last] : special.ranges()) {
    for (uint32_t c = first; c <= last; ++c) {
      const auto* const place = std::ranges::find(kShortEscapes, c, &std::pair<char, uint32_t>::second);
      if (place != kShortEscapes.end()) {
        parts.push_back(e.Literal(std::string("\\") + place->first));
      } else {
        parts.push_back(e.Concat(e.Literal("\\u"), HexBetween(e, c, c, 4)));
      }
    }
  }
  return e.Or(parts);
}

Expr JsonAny(Expressions& e, const CodePoints& set) {
  std::vector<Expr> parts = {Utf8Of(e, set.Intersection(MustEscape().Complement()))};
  for (const auto& [letter, c] : kShortEscapes) {
    if (set.Has(c)) parts.push_back(e.Literal(std::string("\\") + letter));
  }
  for (const auto& [first, last] : set.ranges()) {
    if (first <= 0xffff) parts.push_back(e.Concat(e.Literal("\\u"), HexBetween(e, first, std::min(last, 0xffffu), 4)));
    if (last > 0xffff) parts.push_back(EscapedPair(e, {std::max(first, 0x10000u), last}));
  }
  return e.Or(parts);
}

}  // namespace tally
