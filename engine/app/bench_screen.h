// SPDX-License-Identifier: Apache-2.0
// One screen of a measurement: how fast, and how much of what the machine can do.
#pragma once

#include <string>

#include "engine/api/tally.h"

namespace tally::app {

// The fastest decode and prefill first, then where they were measured, then every point of the grid. Lines of at most 80 columns. What
// all points have in common is no column of their tables.
std::string BenchScreen(const std::string& description, double load_seconds, const SpeedReport& report);

// Whether the roofs of a point moved in all of its rounds.
bool AnyMoved(const SpeedReport& report);

}  // namespace tally::app
