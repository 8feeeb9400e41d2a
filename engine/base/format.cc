// SPDX-License-Identifier: Apache-2.0
#include "engine/base/format.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <system_error>

namespace tally {
namespace {

bool IsControl(std::string_view c) {
  const unsigned char first = static_cast<unsigned char>(c[0]);
  if (c.size() == 1) return first < 0x20 || first == 0x7f;
  if (c.size() == 2) return first == 0xc2 && static_cast<unsigned char>(c[1]) < 0xa0;
  return c == "\xe2\x80\xa8" || c == "\xe2\x80\xa9";
}

void AppendEscaped(char c, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto b = static_cast<unsigned char>(c);
  *out += '\\';
  switch (c) {
    case '\n': *out += 'n'; return;
    case '\t': *out += 't'; return;
    case '\r': *out += 'r'; return;
    default: *out += 'x', *out += kHex[b >> 4], *out += kHex[b & 15];
  }
}

bool DropSuffix(std::string_view& text, std::string_view suffix) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  if (text.size() < suffix.size() || !std::ranges::equal(text.substr(text.size() - suffix.size()), suffix, same)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

__extension__ using Wide = unsigned __int128;

// bytes / 2^(10 unit) in hundredths.
uint64_t Hundredths(uint64_t bytes, int unit, Rounding rounding) {
  const int shift = 10 * unit;
  const uint64_t one = uint64_t{1} << shift, whole = bytes >> shift;
  const Wide part = Wide{bytes & (one - 1)} * 100;
  const uint64_t extra = rounding == Rounding::kUp ? one - 1 : rounding == Rounding::kNearest ? one / 2 : 0;
  return whole * 100 + static_cast<uint64_t>((part + extra) >> shift);
}

std::string WithUnit(uint64_t hundredths, std::string_view unit) {
  const std::string cents = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + (cents.size() < 2 ? ".0" : ".") + cents + " " + std::string(unit);
}

}  // namespace

size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (n == 0 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
      (lead == 0xf4 && second > 0x8f)) {
    return 0;
  }
  return n;
}

std::string Printable(std::string_view text, size_t longest) {
  std::string out;
  out.reserve(std::min(text.size(), longest));
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const size_t n = Utf8Length(rest), taken = std::max<size_t>(n, 1);
    if (at + taken > longest) return out + "...";
    if (n > 0 && !IsControl(rest.substr(0, n))) {
      out += rest.substr(0, n);
    } else {
      for (const char c : rest.substr(0, taken)) AppendEscaped(c, &out);
    }
    at += taken;
  }
  return out;
}

std::string Quote(std::string_view name) {
  constexpr size_t kHead = 64, kTail = 24;
  if (name.size() <= kHead + kTail + 16) return "'" + Printable(name) + "'";
  // Cutting may split a character; the bytes of its second part are then shown as \xNN, which is still one honest line.
  return "'" + Printable(name, kHead) + Printable(name.substr(name.size() - kTail)) + "' (" + std::to_string(name.size()) +
         " bytes)";
}

std::string ShapeText(std::span<const uint64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

std::string WithThousands(uint64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string WithThousands(double x) { return WithThousands(x > 0 ? static_cast<uint64_t>(std::llround(x)) : uint64_t{0}); }

std::string BytesText(uint64_t bytes, Rounding rounding) {
  static constexpr std::string_view kUnits[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  for (int unit = 1;; ++unit) {
    const uint64_t hundredths = Hundredths(bytes, unit, rounding);
    if (hundredths < 1024 * 100 || unit == 6) return WithUnit(hundredths, kUnits[unit]);
  }
}

double ParseAmount(std::string_view text, std::initializer_list<std::string_view> suffixes) {
  for (const std::string_view suffix : suffixes) DropSuffix(text, suffix);
  const bool binary = DropSuffix(text, "i");
  double unit = 1;
  const double thousand = binary ? 1024 : 1000;
  const bool has_unit = DropSuffix(text, "K")   ? (unit = thousand, true)
                        : DropSuffix(text, "M") ? (unit = thousand * thousand, true)
                        : DropSuffix(text, "G") ? (unit = std::pow(thousand, 3), true)
                        : DropSuffix(text, "T") ? (unit = std::pow(thousand, 4), true)
                                                : false;
  if (binary && !has_unit) return 0;
  while (text.ends_with(' ')) text.remove_suffix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number) || number <= 0) return 0;
  return number * unit < 1e18 ? number * unit : 0;
}

std::string GibText(uint64_t bytes, Rounding rounding) { return WithUnit(Hundredths(bytes, 3, rounding), "GiB"); }

}  // namespace tally
