// SPDX-License-Identifier: Apache-2.0
// What `tally bench` says of a measurement.
#pragma once

#include <string>

#include "engine/api/tally.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/render/table.h"

namespace tally::app {

struct BenchRun {
  std::string model;  // as given
  const Model* loaded = nullptr;
  LoadTime load;
  int32_t rounds = 0;
};

Json BenchJson(const BenchRun& run, const SpeedReport& report);
// A document on each line: the run, then every point of the grid; `record` says which.
std::string BenchJsonLines(const BenchRun& run, const SpeedReport& report);
// A head and a line for each point of the grid.
std::string BenchCsv(const BenchRun& run, const SpeedReport& report);
// For people: kText or kMarkdown.
std::string BenchTables(const BenchRun& run, const SpeedReport& report, TableFormat format);

// The fastest decode and prefill first, then where they were measured, then every point of the grid. Lines of at most 80 columns. What
// all points have in common is no column of their tables.
std::string BenchScreen(const std::string& description, double load_seconds, const SpeedReport& report);

// Rounds that a point's figures are of: those kept, or all where none held still.
int32_t RoundsOf(const SpeedPoint& p);
// Half of the range of these rounds, as a part of the median; "-" of one round.
std::string PlusMinus(const SpeedPoint& p);
// What is said of a spread where a point has only one such round; else empty.
std::string SpreadNote(const SpeedReport& report);

// Whether the roofs of a point moved in all of its rounds.
bool AnyMoved(const SpeedReport& report);

}  // namespace tally::app
