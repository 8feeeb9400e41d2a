// SPDX-License-Identifier: Apache-2.0
// Options that take numbers: the whole of the argument must be one, and it must fit; +0.5 is one, and 8k is the whole number 8,192.
// (CLI11's own conversion saturates integers and takes -1 for an unsigned number.)
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/app/command.h"

namespace tally::app {

// Whether the whole of `text` is a number that fits; sets it then.
template <class T>
bool ParseNumber(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  value = parsed;
  return true;
}

// The same of a whole number that may end in k or M, which multiply it by 1,024 or its square.
template <class T>
bool ParseWhole(std::string_view text, T& value) {
  int scale = 1;
  T parsed{};
  if (text.size() > 1) {
    if (text.back() == 'k' || text.back() == 'K') scale = 1024;
    if (text.back() == 'm' || text.back() == 'M') scale = 1024 * 1024;
  }
  if (scale > 1) text.remove_suffix(1);
  if (!ParseNumber(text, parsed) || __builtin_mul_overflow(parsed, scale, &parsed)) return false;
  value = parsed;
  return true;
}

// An option that takes a number. `value` keeps its present value, shown in the help, where the option is not given.
CommandOption AddNumber(Command& command, const std::string& names, int& value, const std::string& description);
CommandOption AddNumber(Command& command, const std::string& names, uint16_t& value, const std::string& description);
CommandOption AddNumber(Command& command, const std::string& names, int64_t& value, const std::string& description);
CommandOption AddNumber(Command& command, const std::string& names, uint64_t& value, const std::string& description);
CommandOption AddNumber(Command& command, const std::string& names, float& value, const std::string& description);
CommandOption AddNumber(Command& command, const std::string& names, double& value, const std::string& description);

}  // namespace tally::app
