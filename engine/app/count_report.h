// SPDX-License-Identifier: Apache-2.0
// What tally count prints: tables, and a JSON document.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/json.h"
#include "engine/app/table.h"

namespace tally::app {

// Each model's parameters tensor by tensor (`layers`: each layer's apart), totals, memory, work, with their closed forms. Several models
// stand side by side first.
std::vector<Table> CountTables(std::span<const CountedModel> models, bool layers);

// "total", or "total (run)" where something is left out.
const char* TotalName(const CountedModel& model);

// Where a model's parameters are, and which of them a token uses (active(all)), as bars of `width` columns.
std::string CountPlot(const CountedModel& model, size_t width, bool colour);

// {"models": [objects]}, of one model too.
Json CountDocument(std::span<const CountedModel> models);

}  // namespace tally::app
