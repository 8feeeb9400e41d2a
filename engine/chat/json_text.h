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
struct JsonObject {
  std::vector<JsonMember> members;
  std::string_view rest = {};  // what stands where a member was expected, or behind one that is not followed by ',' or the end
};
// The object that `text` begins with, as far as its members can be told apart. Strings between '\'' count too. The last member may lack
// its end.
JsonObject ReadJsonObject(std::string_view text);

// JSON of text in a notation that differs from it only so far: strings between '"', between '\'' or between two `quote`, bare keys,
// '=' after a key, Python's tuples, True, False and None, other bare words for strings. Other texts give what need not be JSON.
std::string LooseToJson(std::string_view text, std::string_view quote);

// JSON of the text of a JSON object, or of a Python dictionary, in which strings may hold line feeds and escapes that JSON does not
// know; as it stands where it is neither.
std::string DictionaryToJson(std::string_view text);

}  // namespace tally
