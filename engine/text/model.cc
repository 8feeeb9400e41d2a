// SPDX-License-Identifier: Apache-2.0
#include "engine/text/model.h"

#include "engine/text/utf8.h"

namespace tally {

void Neighbours::AddToken(std::string_view token) {
  int32_t previous = -1;
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = ReadUtf8(token, at);
    if (previous >= 0 && c.code >= 0) {
      if (previous < 128 && c.code < 128) {
        ascii_[previous][c.code] = true;
      } else {
        others_.insert(static_cast<uint64_t>(previous) << 32 | static_cast<uint32_t>(c.code));
      }
    }
    previous = c.code;
    at += c.bytes;
  }
}

bool Neighbours::Has(int32_t left, int32_t right) const {
  if (left < 128 && right < 128) return ascii_[left][right];
  return others_.contains(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right));
}

}  // namespace tally
