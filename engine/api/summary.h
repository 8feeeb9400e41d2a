// The figures of a run, from the engine's ledger (counters/books).
#pragma once

#include "counters/books/books.h"
#include "engine/api/tally.h"

namespace tally {

// Of everything the engine has stepped through since its ledger was reset; `result` tells times and token counts.
books::RunFigures MeasureRun(Engine& engine, const GenerateResult& result);

}  // namespace tally
