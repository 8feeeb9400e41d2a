// SPDX-License-Identifier: Apache-2.0
// The page proof of an audit as tables and JSON.
#pragma once

#include "engine/render/table.h"
#include "engine/render/value.h"
#include "engine/studies/audit.h"

namespace tally {

Table PageStepTable(const AuditReport& report);     // step by step, decode steps together
Table PageSiteTable(const AuditReport& report);     // the run's sums, site by site
Table PageFindingTable(const AuditReport& report);  // pages that are not as charged: as many as are worth reading
Value PagesJson(const AuditReport::Step& step);     // every weight of a step

}  // namespace tally
