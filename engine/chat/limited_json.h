// SPDX-License-Identifier: Apache-2.0
// JSON of tools, calls and variables, which comes from outside: members keep their order, and what it may grow to is limited.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/json.h"

namespace tally {

using OrderedJson = nlohmann::ordered_json;

// kBadInput: `where`, and what is wrong (engine/base/json.h).
inline Result<OrderedJson> ParseLimitedJson(const std::string& text, const std::string& where) {
  return ReadJson<OrderedJson>(where, text, kOrderedJsonLimits);
}

}  // namespace tally
