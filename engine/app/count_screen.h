// SPDX-License-Identifier: Apache-2.0
// What tally count says of models on one screen.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "engine/api/tally.h"
#include "engine/app/table.h"

namespace tally::app {

// Of one token, as a mean.
struct TokenCost {
  std::array<double, books::kFlopsViews> flops = {};
  double bytes = 0;  // of weights, experts chosen uniformly, and of KV and states read and written
};
TokenCost PrefillCost(const books::Count& count);
TokenCost DecodeCost(const books::Count& count);

// One model: how many parameters it has, what is published of them and under which convention that holds, active parameters by
// convention, where parameters are, memory at the types that people use, FLOPs and bytes of a token. About 24 lines of at most `width`
// columns, 80 where that is 0.
std::string CountScreen(const CountedModel& model, size_t width);
// Several: a table, a column a model, or a row with fewer figures if columns have no room (width 0: there is room for all).
std::string CountScreen(std::span<const CountedModel> models, size_t width);
// The table with columns. `exact`: all digits, and shares of the parameters.
Table ModelColumns(std::span<const CountedModel> models, bool exact);

}  // namespace tally::app
