// SPDX-License-Identifier: Apache-2.0
// The built-in models as a list.
#pragma once

#include <span>
#include <string>

#include "engine/render/table.h"
#include "engine/render/value.h"
#include "engine/studies/count.h"

namespace tally {

// Name, family, total, active(head), what is published, aliases.
Table KnownModelTable(std::span<const KnownModelLine> models);
// {"models": [{"name", "aliases", "family", "runs", "parameters": {"total_run", "active": {...}, "not_run": [...]}, "published"}]}
Value KnownModelDocument(std::span<const KnownModelLine> models);
// "name,family,runs,total_run,active_all,active_head,active_none,published_total,published_active,source,aliases", a line a model; aliases
// are divided by blanks.
std::string KnownModelCsv(std::span<const KnownModelLine> models);

}  // namespace tally
