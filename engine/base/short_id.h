// SPDX-License-Identifier: Apache-2.0
// Ids of calls as templates of Mistral want them: 9 letters and digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tally {

inline constexpr std::string_view kShortIdDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
inline constexpr size_t kShortIdLength = 9;
inline constexpr uint64_t kShortIds = 13'537'086'546'263'552;  // 62^9

inline bool IsShortId(std::string_view id) {
  return id.size() == kShortIdLength && id.find_first_not_of(kShortIdDigits) == id.npos;
}

// That of n modulo kShortIds: different numbers below it have different ids.
inline std::string ShortId(uint64_t n) {
  std::string id(kShortIdLength, '0');
  for (char& digit : id) {
    digit = kShortIdDigits[n % kShortIdDigits.size()];
    n /= kShortIdDigits.size();
  }
  return id;
}

}  // namespace tally
