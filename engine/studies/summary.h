// The figures of a run, from the engine's ledger (counters/books).
#pragma once

#include "counters/books/books.h"
#include "engine/base/export.h"
#include "engine/session/generate.h"

namespace tally {

// Of everything the engine has stepped through since its ledger was reset; `result` (Generate's) tells times and token counts, so the
// two must be of the same run: reset the ledger before it. books::RunSummary makes text of the figures.
TALLY_API books::RunFigures MeasureRun(Engine& engine, const GenerateResult& result);

}  // namespace tally
