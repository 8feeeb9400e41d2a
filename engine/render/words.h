// SPDX-License-Identifier: Apache-2.0
// Words and figures in the lines of a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tally {

inline constexpr size_t kPlainWidth = 80;  // columns of a screen where output is no terminal

// Columns that `text` takes: UTF-8 characters, none of which is wide here; escapes of colour take none.
size_t TextWidth(std::string_view text);

// `text` in lines of at most `width` columns, broken at blanks, but not between a number and the word that it counts; a word that is
// longer than a line is cut, behind a comma where it has one. Width 0: one line. `lead`: columns of the first line that are taken.
std::vector<std::string> WrapWords(std::string_view text, size_t width, size_t lead = 0);

// Words behind a label, in lines of at most `width` columns (0: one line) that are flush from column `indent` on. Lines end in '\n'.
std::string Paragraph(std::string_view label, std::string_view text, size_t width, size_t indent = 10);

// The words of a list, one behind another.
template <class Words>
std::string Join(const Words& words, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const auto& word : words) text.append(std::exchange(first, false) ? "" : separator).append(word);
  return text;
}

// The end of a text of more than `most` bytes, behind "...", whole characters: names that are paths.
std::string TailOf(const std::string& text, size_t most);

// Three or four digits and a decimal prefix: "3.71 GB", "250 G", "36.86 kB", "12 B".
std::string Scaled(double x, std::string_view unit);

// A number of parameters or tokens, as papers print it: "20.91B", "124M", "36.86k".
std::string ShortCount(double n);

// "1,234"
std::string Thousands(int64_t n);
// "1,234 tokens", "1 token"
std::string Counted(int64_t n, const char* what);

// "27.10 %"; "<0.01 %" of a part that is not 0; empty where there is no whole.
std::string Share(uint64_t part, uint64_t whole);

// Speeds. Three digits, and all before the point: "7.05", "43.1", "291", "2,322"; "-" of a rate that is not known (0).
std::string ShortRate(double per_second);

// "1.23 s", "12.3 ms"
std::string ShortSeconds(double seconds);

// A part of a roof, in percent: "94 %", "102 %", "4.2 %".
std::string OfRoof(double part);

// "13.6 GB/s"
std::string ShortGigabytes(double bytes_per_second);

}  // namespace tally
