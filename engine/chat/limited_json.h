// SPDX-License-Identifier: Apache-2.0
// JSON of tools, calls and variables, which comes from outside: members keep their order, and what it may grow to is limited.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/base/json.h"

namespace tally {

using OrderedJson = nlohmann::ordered_json;

// kBadInput: `where`, and what is wrong (engine/base/json.h).
inline Result<OrderedJson> ParseLimitedJson(const std::string& text, const std::string& where) {
  return ReadJson<OrderedJson>(where, text, kOrderedJsonLimits);
}

// Arguments of a call, an object, as programs' JSON readers have it: of members of one key the last one counts. Where such readers would
// have an infinity, which JSON cannot write, there is the largest number of that sign. None: no JSON object, or one beyond the limits.
std::optional<OrderedJson> ParseArguments(const std::string& text);

}  // namespace tally
