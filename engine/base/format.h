// SPDX-License-Identifier: Apache-2.0
// Values as the text that people read: in messages, tables and notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace tally {

// Bytes of the valid UTF-8 sequence that starts `text`, 0 if there is none (RFC 3629: no surrogates, no overlong forms). `text` is not
// empty.
size_t Utf8Length(std::string_view text);

// Text from a file, a path or a token made fit for one line of a terminal. Control characters (C0, DEL, C1, and U+2028 and
// U+2029, which break lines in some terminals and JSON tools) and bytes that are not UTF-8 are escaped: \n, \t, \r, else \xNN
// for each byte. Of a text longer than `longest` bytes only the beginning is shown, and "...".
std::string Printable(std::string_view text, size_t longest = std::string_view::npos);

// 'name': the same in quotes; a long name is cut in the middle and its length given.
std::string Quote(std::string_view name);

// "[64, 172]"
std::string ShapeText(std::span<const uint64_t> shape);

// "1,234,567". Of a double the nearest whole number, 0 where that is negative.
std::string WithThousands(uint64_t n);
std::string WithThousands(double x);

enum class Rounding : uint8_t { kNearest, kUp, kDown };

// 1234567890 -> "1.15 GiB", 17 -> "17 bytes": in the largest binary unit that leaves at least 1.
std::string BytesText(uint64_t bytes, Rounding rounding = Rounding::kNearest);
// The reverse: a number, a unit (K, M, G, T: powers of 1,000; Ki, Mi, Gi, Ti: of 1,024; in either case), then optional suffixes. `suffixes`
// lists them from the end: {"/s", "B"} for "50GB/s". 0: not an amount, or not positive.
double ParseAmount(std::string_view text, std::initializer_list<std::string_view> suffixes);

// Always in GiB, for figures that are to be added up by eye.
std::string GibText(uint64_t bytes, Rounding rounding = Rounding::kNearest);

}  // namespace tally
