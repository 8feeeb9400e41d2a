// SPDX-License-Identifier: Apache-2.0
// Lists as arguments and files hold them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace tally::app {

// "1,2,3" (spaces and newlines separate too), in brackets or not. `what` names the source in messages.
Result<std::vector<int32_t>> ParseTokens(const std::string& text, const std::string& what);

std::vector<std::string> ListItems(const std::string& list);  // "a,b" -> {"a", "b"}
// "1k,2" -> {1024, 2}, each from `least` to `most`, none twice (numbers.h). `option` names the source in messages.
Result<std::vector<int64_t>> ParseNumbers(const std::string& option, const std::string& list, int64_t least, int64_t most);

}  // namespace tally::app
