// SPDX-License-Identifier: Apache-2.0
// JSON of tools and variables, which comes from outside: members keep their order, and what it may grow to is limited.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/status.h"

namespace tally {

using OrderedJson = nlohmann::ordered_json;

// kBadInput: `where`, and what is wrong: no JSON, nested deeper than 64, or an object of more than 4096 members (each is searched for
// among the others).
Result<OrderedJson> ParseLimitedJson(const std::string& text, const std::string& where);

}  // namespace tally
