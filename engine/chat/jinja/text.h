// SPDX-License-Identifier: Apache-2.0
// Strings that remember where they come from. Every byte is trusted (the template's own text, special tokens) or not (what users,
// tools and models wrote); whatever is cut, joined or replaced, each byte keeps that.
//
// Indices of characters are those of Python: code points. A text is well-formed UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/jinja/budget.h"
#include "engine/chat/message.h"

namespace tally::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)), trusted_(trusted) {}

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool TrustedAt(size_t byte) const { return mask_.empty() ? trusted_ : mask_[byte] != 0; }
  // Every byte is trusted; so is an empty text.
  bool AllTrusted() const { return bytes_.empty() || (mask_.empty() && trusted_); }
  // markupsafe's Markup, which the filters safe and escape give: what is added to it is escaped.
  bool markup() const { return markup_; }
  void set_markup(bool markup) { markup_ = markup; }

  void Append(std::string_view bytes, bool trusted);
  void Append(const Text& other) { AppendPart(other, 0, other.size()); }
  // Bytes [begin, end) of `other`. Whether this is markup stays; a part of markup is.
  void AppendPart(const Text& other, size_t begin, size_t end);
  Text Part(size_t begin, size_t end) const;

  // Stretches of equal provenance, none of them empty; the first `most` of them.
  std::vector<PromptSegment> Segments(size_t most) const;

 private:
  void MakeMask();

  std::string bytes_;
  std::string mask_;     // one byte for each of bytes_, 1: trusted; empty where all are alike
  bool trusted_ = true;  // of all bytes, where there is no mask
  bool markup_ = false;
};

// Code points of a well-formed text, and where the n-th begins (the end, where there are not as many).
size_t CountCharacters(std::string_view text);
size_t ByteOfCharacter(std::string_view text, size_t n);

// White space of Python's str.isspace and of \s in its expressions.
bool IsPythonSpace(int32_t code);
// Bytes of `text` between its leading and trailing characters that are white space, or in `characters` where that is given.
struct Stretch {
  size_t begin = 0, end = 0;
};
Stretch Stripped(std::string_view text, bool left, bool right, const std::string* characters = nullptr);

enum class Case : uint8_t { kLower, kUpper, kTitle, kCapitalize };
// Python's str.lower and so on, for characters with a single counterpart, and sharp s in upper case.
Result<Text> ChangeCase(Budget* budget, const Text& text, Case to);
// str.isupper, else str.islower: there is a letter with a case, and none with the other one.
bool HasCase(std::string_view text, bool upper);
bool IsLetter(int32_t code);
bool IsUnicodeDigit(int32_t code);  // decimal ones
bool IsLowerCase(int32_t code);
bool IsUpperCase(int32_t code);

}  // namespace tally::jinja
