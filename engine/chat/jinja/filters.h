// SPDX-License-Identifier: Apache-2.0
// The filters of jinja2, in two tables: those that make text, and those for lists and dicts.
#pragma once

#include <map>
#include <string_view>

#include "engine/chat/jinja/runtime.h"

namespace tally::jinja {

using Operations = std::map<std::string_view, Operation>;
const Operations& TextFilters();
const Operations& ListFilters();

}  // namespace tally::jinja
