// SPDX-License-Identifier: Apache-2.0
// What training a model takes (counters/books/training.h), as tables and JSON.
#pragma once

#include <vector>

#include "engine/api/tally.h"
#include "engine/app/json.h"
#include "engine/app/table.h"

namespace tally::app {

// Memory, then FLOPs. kBadInput: a figure does not fit 64 bits.
Result<std::vector<Table>> TrainingTables(const CountedModel& model);
Result<Json> TrainingJson(const CountedModel& model);

}  // namespace tally::app
