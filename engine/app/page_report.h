// SPDX-License-Identifier: Apache-2.0
// The page proof of an audit as tables and JSON.
#pragma once

#include "engine/api/tally.h"
#include "engine/app/json.h"
#include "engine/render/table.h"

namespace tally::app {

Table PageStepTable(const AuditReport& report);     // step by step, decode steps together
Table PageSiteTable(const AuditReport& report);     // the run's sums, site by site
Table PageFindingTable(const AuditReport& report);  // pages that are not as charged: as many as are worth reading
Json PagesJson(const AuditReport::Step& step);      // every weight of a step

}  // namespace tally::app
