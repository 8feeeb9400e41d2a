// SPDX-License-Identifier: Apache-2.0
// What `fit` and `count` say of models that are bigger than their memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/render/table.h"
#include "engine/render/value.h"
#include "engine/studies/count.h"
#include "engine/studies/streaming_forecast.h"

namespace tally {

// "1.93 to 7.31", "4.2": tokens/s; "-": unknown.
std::string RangeText(const RateRange& range);
// "1.93-7.31", for a column.
std::string RangeCell(const RateRange& range);
// "3.00 GB/s (assumed)", "2.71 GB/s"
std::string DiskText(const FitDisk& disk);

// Labelled lines of at most `width` columns: what lies where, decode, prefill, and more memory.
std::string StreamingLines(const StreamingForecast& forecast, const std::vector<MoreMemory>& more, const FitDisk& disk,
                           size_t width);
Value StreamingJson(const StreamingForecast& forecast, const std::vector<MoreMemory>& more);

// ---- of count

// What `--resident` and `--disk` make of a model, with closed forms; and budgets below one another.
std::vector<Table> ResidentTables(const CountedModel& model, const StreamingForecast& forecast,
                                  const std::vector<MoreMemory>& more);
Value ResidentJson(const StreamingForecast& forecast, const std::vector<MoreMemory>& more);

}  // namespace tally
