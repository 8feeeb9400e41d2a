// SPDX-License-Identifier: Apache-2.0
// Formats of JSON Schema as regular expressions.
#pragma once

#include <span>
#include <string_view>
#include <utility>

namespace tally {

// Names and expressions, whole texts, as regex.h reads them.
std::span<const std::pair<std::string_view, std::string_view>> StringFormats();
// Empty: a format that is not held; the standard has it as an annotation.
std::string_view FormatPattern(std::string_view name);

}  // namespace tally
