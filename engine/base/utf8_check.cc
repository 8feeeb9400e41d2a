// SPDX-License-Identifier: Apache-2.0
#include "engine/base/utf8_check.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/format.h"

namespace tally {

Status CheckUtf8(std::string_view text, std::string_view place) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t n = Utf8Length(text.substr(at));
    if (n == 0) break;
    at += n;
  }
  if (at == text.size()) return {};
  char value[8];
  std::snprintf(value, sizeof value, "0x%02X", static_cast<unsigned>(static_cast<unsigned char>(text[at])));
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  return BadInput((place.empty() ? "" : Printable(place) + ": ") + "byte " + std::to_string(at) + " (line " +
                  std::to_string(line) + ") is " + value + ", which is not UTF-8; iconv -t utf-8 converts other encodings");
}

}  // namespace tally
