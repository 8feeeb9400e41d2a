// SPDX-License-Identifier: Apache-2.0
// What this program was built from and with.
#pragma once

#include <string>

namespace tally::app {

// Lines below the version in `tally --version`: commit, compiler, kernels' targets, and which parts are in. Names and values, aligned.
std::string BuildInfo();
std::string Commit();  // of the tree, as there; "unknown"

}  // namespace tally::app
