// SPDX-License-Identifier: Apache-2.0
// Sets of Unicode characters, and how their characters are spelled in bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/grammar/expressions.h"

namespace tally {

// Characters U+0000 to U+10FFFF without the surrogates U+D800 to U+DFFF.
class CodePoints {
 public:
  using Range = std::pair<uint32_t, uint32_t>;  // first, last

  CodePoints() = default;
  static CodePoints Of(uint32_t first, uint32_t last) {
    CodePoints set;
    set.Add(first, last);
    return set;
  }
  static CodePoints All() { return Of(0, 0x10ffff); }
  // "L", "Lu", "Nd", ...: a general category or a group of them. None: there is no such one.
  static std::optional<CodePoints> Category(std::string_view name);

  void Add(uint32_t first, uint32_t last);
  void Add(const CodePoints& other);
  CodePoints Complement() const;
  CodePoints Intersection(const CodePoints& other) const;
  bool Has(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }  // ascending, apart from one another

 private:
  std::vector<Range> ranges_;
};

// kBadInput: it is not UTF-8.
Result<std::u32string> DecodeUtf8(std::string_view text);
// The UTF-8 of one of the characters.
Expr Utf8Of(Expressions& e, const CodePoints& set);
// One of the characters within a string of JSON as it is written: `"`, `\` and those below U+0020 by their shortest escape (\n, \u0001),
// others as they are.
Expr JsonPlain(Expressions& e, const CodePoints& set);
// One of the characters within a string of JSON in any spelling: \/ and \u00e9 too, and pairs of escaped surrogates.
Expr JsonAny(Expressions& e, const CodePoints& set);

}  // namespace tally
