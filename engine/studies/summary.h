// SPDX-License-Identifier: Apache-2.0
// The figures of a run, from the engine's ledger.
#pragma once

#include <string>

#include "counters/books/books.h"
#include "engine/base/export.h"
#include "engine/session/generate.h"

namespace tally {

// Figures of all steps since the engine's ledger was reset; times and token counts are from `result`. Reset the ledger before
// Generate, so that both are of the same run. RunSummary formats the figures as text.
TALLY_API books::RunFigures MeasureRun(Engine& engine, const GenerateResult& result);

// The figures as text of at most 80 columns; lines end in '\n'.
TALLY_API std::string RunSummary(const books::RunFigures& figures);

}  // namespace tally
