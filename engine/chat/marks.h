// SPDX-License-Identifier: Apache-2.0
// Searching for the marks of a format in text of which the rest may still be to come.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tally {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";

// Without the white space at both ends.
std::string_view Trimmed(std::string_view text);

enum class Fit : uint8_t {
  kNo,
  kPart,  // the text ends within the mark
  kYes,
};
Fit FitAt(std::string_view text, size_t at, std::string_view mark);

// None of the marks begins with another.
class MarkSet {
 public:
  void Add(std::string_view mark);  // empty ones are ignored
  bool Has(std::string_view mark) const;

  struct Hit {
    Fit fit = Fit::kNo;
    size_t at = 0;
    std::string_view mark = {};  // kYes
  };
  // Of a mark that begins at `at`.
  Hit At(std::string_view text, size_t at) const;
  // The first; kNo is at the end of the text.
  Hit Find(std::string_view text, size_t from = 0) const;

 private:
  std::vector<std::string_view> marks_;
};

}  // namespace tally
