// SPDX-License-Identifier: Apache-2.0
// What the commands that write reports share.
#pragma once

#include <string>

#include "engine/api/tally.h"
#include "engine/base/status.h"

namespace tally::app {

// kBadInput if the file exists and is neither empty nor a report: a report replaces only reports.
Status CheckReportFile(const std::string& path);

// Those of this machine with so many threads: kept, or measured now, in about two seconds. Unknown, and `how` says why, where they
// cannot be measured, or where the kernels here are of another instruction set than `target` (empty: any).
ReportRoofs MachineRoofs(int threads, const std::string& target = "");

// Makes the folder of --svg where it is not there. kBadInput: it cannot be one, or has pictures and `force` is not given.
Status MakeFigureFolder(const std::string& path, bool force);

}  // namespace tally::app
