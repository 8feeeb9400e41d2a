// SPDX-License-Identifier: Apache-2.0
// Lists of token ids, as arguments and files hold them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace tally::app {

// "1,2,3" (spaces and newlines separate too), in brackets or not. `what` names the source in messages.
Result<std::vector<int32_t>> ParseTokens(const std::string& text, const std::string& what);

}  // namespace tally::app
