// SPDX-License-Identifier: Apache-2.0
// Options that take numbers: the whole of the argument must be one, and it must fit; +0.5 is one, and 8k is the whole number 8,192.
// (CLI11's own conversion saturates integers and takes -1 for an unsigned number.)
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

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

// `value` keeps its present value, shown in the help, where the option is not given.
template <class T>
CLI::Option* AddNumber(CLI::App& command, const std::string& name, T& value, const std::string& description) {
  std::string shown = name.substr(name.find("--"));  // "-n,--tokens,--more" -> "--tokens"
  shown.resize(std::min(shown.find(','), shown.size()));
  char preset[32];
  std::snprintf(preset, sizeof preset, "%g", static_cast<double>(value));
  return command
      .add_option_function<std::string>(
          name,
          [&value, shown](const std::string& text) {
            if constexpr (std::is_integral_v<T>) {
              if (ParseWhole(text, value)) return;
            } else {
              if (ParseNumber(text, value)) return;
            }
            const bool digits =
                text.find_first_not_of("+-0123456789") == text.npos && text.find_first_of("0123456789") != text.npos;
            std::string wanted = std::is_integral_v<T> ? "a whole number" : "a number";
            if constexpr (std::is_integral_v<T>) {
              if (digits) {  // so it is the range
                wanted += " from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
                          std::to_string(std::numeric_limits<T>::max());
              }
            }
            throw CLI::ValidationError(shown, "'" + text + "' is not " + wanted);
          },
          description)
      ->type_name(std::is_integral_v<T> ? "INT" : "FLOAT")
      ->default_str(preset);
}

}  // namespace tally::app
