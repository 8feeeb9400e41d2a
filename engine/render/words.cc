// SPDX-License-Identifier: Apache-2.0
#include "engine/render/words.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "engine/base/format.h"
#include "engine/render/table.h"

namespace tally {
namespace {

bool Begins(char c) { return (c & 0xc0) != 0x80; }  // a character of UTF-8

// Bytes of the first `columns` characters.
size_t BytesOf(std::string_view text, size_t columns) {
  size_t at = 0;
  while (at < text.size() && (columns > 0 || !Begins(text[at]))) columns -= Begins(text[at++]) ? 1 : 0;
  return at;
}

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// The first word of `text`; a number together with the word that it counts: "70.44 GB".
std::string_view FirstWord(std::string_view text) {
  const size_t end = std::min(text.find(' '), text.size());
  const bool number = end > 0 && text.substr(0, end).find_first_not_of("0123456789,.") == text.npos && text[end - 1] != ',';
  if (!number || end + 1 >= text.size() || !IsLetter(text[end + 1])) return text.substr(0, end);
  return text.substr(0, text.find(' ', end + 1));
}

}  // namespace

size_t TextWidth(std::string_view text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size() - 1);
    } else {
      columns += Begins(text[i]) ? 1 : 0;
    }
  }
  return columns;
}

std::vector<std::string> WrapWords(std::string_view text, size_t width, size_t lead) {
  if (width == 0 || lead + TextWidth(text) <= width) return {std::string(text)};
  std::vector<std::string> lines;
  std::string line;
  const auto begin_line = [&] {
    lines.push_back(std::exchange(line, {}));
    lead = 0;
  };
  while (!text.empty()) {
    std::string_view word = FirstWord(text);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    if (lead + TextWidth(line) > 0 && lead + TextWidth(line) + 1 + TextWidth(word) > width) begin_line();
    for (; TextWidth(word) > width; begin_line()) {
      const size_t most = BytesOf(word, width), comma = word.substr(0, most).rfind(',');
      line = word.substr(0, comma == word.npos ? most : comma + 1);
      word.remove_prefix(line.size());
    }
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  lines.push_back(line);
  return lines;
}

std::string Paragraph(std::string_view label, std::string_view text, size_t width, size_t indent) {
  const size_t room = width == 0 ? 0 : std::max(width, indent + 10) - indent, taken = label.empty() ? 0 : TextWidth(label) + 1;
  const size_t lead = taken > indent ? taken - indent : 0;
  std::string out(label), before(indent + lead - TextWidth(label), ' ');
  for (const std::string& line : WrapWords(text, room, lead)) {
    out += (line.empty() ? "" : before) + line + "\n";
    before.assign(indent, ' ');
  }
  return out;
}

std::string TailOf(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t at = text.size() - (most - 3);
  while (at < text.size() && !Begins(text[at])) ++at;
  return "..." + text.substr(at);
}

std::string Scaled(double x, std::string_view unit) {
  constexpr std::pair<double, const char*> kScales[] = {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, letter] : kScales) {
    if (x >= 0.9995 * scale) return Fixed(x / scale, x / scale < 100 ? 2 : 0) + " " + letter + std::string(unit);
  }
  return Fixed(x, 0) + " " + std::string(unit);
}

std::string ShortCount(double n) {
  std::string text = Scaled(n, "");
  std::erase(text, ' ');
  if (text.ends_with('G')) text.back() = 'B';
  return text;
}

std::string Thousands(int64_t n) { return WithThousands(static_cast<uint64_t>(n)); }

std::string Counted(int64_t n, const char* what) { return Thousands(n) + " " + what + (n == 1 ? "" : "s"); }

std::string Share(uint64_t part, uint64_t whole) {
  if (whole == 0) return "";
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return part > 0 && percent < 0.005 ? "<0.01 %" : Fixed(percent, 2) + " %";
}

std::string ShortRate(double x) {
  if (x <= 0) return "-";
  if (x >= 999.5) return WithThousands(x);
  return Fixed(x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0);
}

std::string ShortSeconds(double seconds) {
  if (seconds <= 0) return "0 s";
  return seconds < 0.9995 ? ShortRate(seconds * 1e3) + " ms" : ShortRate(seconds) + " s";
}

std::string OfRoof(double part) { return Fixed(100 * part, part < 0.0995 ? 1 : 0) + " %"; }

std::string ShortGigabytes(double bytes_per_second) { return ShortRate(bytes_per_second / 1e9) + " GB/s"; }

}  // namespace tally
