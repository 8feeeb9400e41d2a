// SPDX-License-Identifier: Apache-2.0
// What the commands that write reports share.
#pragma once

#include <string>

#include "engine/api/tally.h"
#include "engine/base/status.h"

namespace tally::app {

// kBadInput where something is there that is neither empty nor a page of ours: a report takes the place of a report only.
Status CheckReportFile(const std::string& path);

// Those of this machine with so many threads: kept, or measured now, in about two seconds. Unknown, and `how` says why, where they
// cannot be measured.
ReportRoofs MachineRoofs(int threads);

}  // namespace tally::app
