// SPDX-License-Identifier: Apache-2.0
// Where the repository's golden models are.
#pragma once
#include <string>

namespace tally {

inline const std::string kGoldens = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";

}  // namespace tally
