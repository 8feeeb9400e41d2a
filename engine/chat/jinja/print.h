// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str and repr, and its json.dumps.
//
// The text of a string keeps its provenance. Numbers and names such as True are trusted: none of them can spell a special token. The
// text of a list or dict is trusted if every string in it is; and, as JSON, the indent and the separators.
#pragma once

#include <optional>
#include <string>

#include "engine/base/status.h"
#include "engine/chat/jinja/value.h"

namespace tally::jinja {

Result<Text> Str(Budget* budget, const Value& value);
Result<Text> Repr(Budget* budget, const Value& value);

// Python's repr of a float: the shortest digits that give it back.
std::string FloatRepr(double number);
// Python's repr of a string: quoted, with escapes.
std::string StringRepr(std::string_view text);

// Options of transformers' filter tojson, which are those of json.dumps; ensure_ascii is false there unless given.
struct DumpOptions {
  std::optional<Text> indent = {};  // of one level
  Text item_separator = Text(", ", true), key_separator = Text(": ", true);
  bool sort_keys = false, ensure_ascii = false;
};
Result<Text> DumpJson(Budget* budget, const Value& value, const DumpOptions& options);

}  // namespace tally::jinja
