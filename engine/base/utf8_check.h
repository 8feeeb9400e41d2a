// SPDX-License-Identifier: Apache-2.0
// Text from outside must be UTF-8: anything else would reach a model as other text than was given.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace tally {

// kBadInput: `text`, of the file or option `place` (empty: the caller names it), has a byte that is not UTF-8. The message has its offset,
// its line and its value.
Status CheckUtf8(std::string_view text, std::string_view place);

}  // namespace tally
