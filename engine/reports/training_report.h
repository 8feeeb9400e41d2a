// SPDX-License-Identifier: Apache-2.0
// What training a model takes (counters/books/training.h), as tables and JSON.
#pragma once

#include <optional>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/render/table.h"
#include "engine/render/value.h"
#include "engine/studies/count.h"

namespace tally {

// A training run on hardware of `peak` FLOPs a second, of which it reaches `utilisation`, a part from 0 to 1.
struct TrainingBudget {
  double tokens = 0, peak = 0, utilisation = 0;
};

// Memory, then FLOPs, then the time of the budget if there is one. kBadInput: a figure does not fit 64 bits.
TALLY_API Result<std::vector<Table>> TrainingTables(const CountedModel& model, const std::optional<TrainingBudget>& budget);
TALLY_API Result<Value> TrainingJson(const CountedModel& model, const std::optional<TrainingBudget>& budget);

}  // namespace tally
