// SPDX-License-Identifier: Apache-2.0
// JSON as models write it: often cut off, sometimes not quite JSON. These work on its text, so that numbers and strings stay as they
// were written, and do not recurse.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

// Whether all of `text` is one JSON value.
bool IsJson(std::string_view text);
// `text` as a JSON string; bytes that are no UTF-8 become U+FFFD.
std::string QuoteJson(std::string_view text);
// The text of a JSON string; none where `quoted` is no JSON string.
std::optional<std::string> UnquoteJson(std::string_view quoted);

struct JsonMember {
  std::string_view key, value;  // as written, keys in quotes, without white space around
  bool ended = false;           // else the value is the rest of the text
};
// The members of the object that `text` begins with, as far as they can be told apart. The last may lack its end.
std::vector<JsonMember> JsonMembers(std::string_view text);

// JSON of text in a notation that differs from it only so far: strings between '"', between '\'' or between two `quote`, bare keys,
// '=' after a key, Python's True, False and None, other bare words for strings. Other texts give what need not be JSON.
std::string LooseToJson(std::string_view text, std::string_view quote);

}  // namespace tally
