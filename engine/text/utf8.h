// SPDX-License-Identifier: Apache-2.0
// UTF-8, one character at a time. Well-formed byte sequences are those of Unicode 15, table 3-7. An ill-formed one becomes one U+FFFD
// for each maximal subpart (section 3.9, "U+FFFD substitution").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

struct Utf8Char {
  int32_t code = -1;        // -1: not a character
  uint32_t bytes = 0;       // of the character, or of the maximal subpart of an ill-formed one; 0 at the end
  bool incomplete = false;  // ill-formed only because the text ends here
};

Utf8Char ReadUtf8(std::string_view text, size_t at);

// The character that ends at `end` of well-formed text; bytes 0 at the beginning.
Utf8Char ReadUtf8Before(std::string_view text, size_t end);

void AppendUtf8(uint32_t code, std::string* out);

// `text` itself if it is well formed; else a copy in *storage with U+FFFD for ill-formed bytes.
std::string_view WellFormed(std::string_view text, std::string* storage);

// Appends the whole characters of `bytes`, with U+FFFD for ill-formed ones. Returns the number of bytes used; the rest (at most 3) begins a
// character.
size_t AppendWholeCharacters(std::string_view bytes, std::string* out);

// White_Space of the Unicode database (what \s is in Oniguruma and in Rust), and numbers (general categories
// N*).
bool IsUnicodeSpace(int32_t code);
bool IsUnicodeNumber(int32_t code);
// ASCII punctuation and symbols, and general categories P*.
bool IsUnicodePunctuation(int32_t code);

// text.find(what, from), in time linear in the text for every `what`.
size_t FindText(std::string_view text, std::string_view what, size_t from);

}  // namespace tally
