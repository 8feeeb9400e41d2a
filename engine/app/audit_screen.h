// SPDX-License-Identifier: Apache-2.0
// What tally audit says on one screen.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/claims.h"

namespace tally::app {

// The accounts, added up over sites, layers and steps; what a decode step touched; pages, experts and published figures, where there
// are; rows that differ, as many as are worth reading; the verdict in the last line. About 24 lines of at most `width` columns, 80 where
// that is 0. `description` of the model and `notes` (AuditNotes) are printed as they are. `claims`: null where they were not asked for.
std::string AuditScreen(const AuditReport& report, const Recipe& recipe, const std::string& description, const std::string& notes,
                        const std::vector<Claims>* claims, size_t width);

}  // namespace tally::app
