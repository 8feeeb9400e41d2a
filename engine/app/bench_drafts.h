// SPDX-License-Identifier: Apache-2.0
// `tally bench --draft lookup --replay FILE`: recorded answers with drafts and without.
#pragma once

#include <string>

#include "engine/api/tally.h"
#include "engine/app/options.h"

namespace tally::app {

struct DraftBench {
  ModelFlags model;
  std::string draft, replay;  // --draft, --replay
  int32_t rounds = 0;
  bool json = false;
};
// Measures and prints. kBadInput names the option, or the line of the file.
Result<int> RunDraftBench(const DraftBench& bench);

}  // namespace tally::app
