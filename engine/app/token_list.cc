// SPDX-License-Identifier: Apache-2.0
#include "engine/app/token_list.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "engine/app/numbers.h"
#include "engine/base/format.h"

namespace tally::app {

Result<std::vector<int32_t>> ParseTokens(const std::string& given, const std::string& what) {
  static constexpr std::string_view kSpace = " \t\n\r", kBetween = ", \t\n\r";
  std::string_view text = given;
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text.remove_suffix(text.size() - std::min(text.find_last_not_of(kSpace) + 1, text.size()));
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  std::vector<int32_t> tokens;
  for (size_t at = 0, end = 0; (at = text.find_first_not_of(kBetween, end)) != text.npos;) {
    end = std::min(text.find_first_of(kBetween, at), text.size());
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0) {
      return BadInput(what + ": " + Quote(text.substr(at, std::min<size_t>(end - at, 40))) + " is not a token id");
    }
    tokens.push_back(id);
  }
  if (tokens.empty()) return BadInput(what + ": no token ids");
  return tokens;
}

std::vector<std::string> ListItems(const std::string& list) {
  std::vector<std::string> items(1);
  for (const char c : list) {
    if (c == ',') {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  return items;
}

Result<std::vector<int64_t>> ParseNumbers(const std::string& option, const std::string& list, int64_t least, int64_t most) {
  std::vector<int64_t> numbers;
  for (const std::string& item : ListItems(list)) {
    int64_t n = 0;
    if (!ParseWhole(item, n) || n < least || n > most) {
      return BadInput(option + ": '" + item + "' is not a whole number from " + std::to_string(least) + " to " +
                      std::to_string(most) + " (several: 1,2)");
    }
    if (std::find(numbers.begin(), numbers.end(), n) != numbers.end()) return BadInput(option + ": " + item + " is there twice");
    numbers.push_back(n);
  }
  return numbers;
}

}  // namespace tally::app
