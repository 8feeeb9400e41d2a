// SPDX-License-Identifier: Apache-2.0
#include "engine/app/numbers.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <type_traits>

namespace tally::app {
namespace {

template <class T>
std::string ReadNumber(const std::string& text, T& value) {  // what is wrong with it
  if constexpr (std::is_integral_v<T>) {
    if (ParseWhole(text, value)) return "";
  } else {
    if (ParseNumber(text, value)) return "";
  }
  std::string wanted = std::is_integral_v<T> ? "a whole number" : "a number";
  if constexpr (std::is_integral_v<T>) {
    const bool digits = text.find_first_not_of("+-0123456789") == text.npos && text.find_first_of("0123456789") != text.npos;
    if (digits) {  // so it is the range
      wanted += " from " + std::to_string(std::numeric_limits<T>::min()) + " to " + std::to_string(std::numeric_limits<T>::max());
    }
  }
  return "'" + text + "' is not " + wanted;
}

template <class T>
CommandOption Add(Command& command, const std::string& names, T& value, const std::string& description) {
  std::string shown = names.substr(names.find("--"));  // "-n,--tokens,--more" -> "--tokens"
  shown.resize(std::min(shown.find(','), shown.size()));
  char preset[32];
  std::snprintf(preset, sizeof preset, "%g", static_cast<double>(value));
  return command
      .Option(
          names, shown, [&value](const std::string& text) { return ReadNumber(text, value); }, description)
      .Type(std::is_integral_v<T> ? "INT" : "FLOAT")
      .Preset(preset);
}

}  // namespace

CommandOption AddNumber(Command& command, const std::string& names, int& value, const std::string& description) {
  return Add(command, names, value, description);
}
CommandOption AddNumber(Command& command, const std::string& names, uint16_t& value, const std::string& description) {
  return Add(command, names, value, description);
}
CommandOption AddNumber(Command& command, const std::string& names, int64_t& value, const std::string& description) {
  return Add(command, names, value, description);
}
CommandOption AddNumber(Command& command, const std::string& names, uint64_t& value, const std::string& description) {
  return Add(command, names, value, description);
}
CommandOption AddNumber(Command& command, const std::string& names, float& value, const std::string& description) {
  return Add(command, names, value, description);
}
CommandOption AddNumber(Command& command, const std::string& names, double& value, const std::string& description) {
  return Add(command, names, value, description);
}

}  // namespace tally::app
