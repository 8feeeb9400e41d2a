// SPDX-License-Identifier: Apache-2.0
// A ledger, and the figures of a run, as documents.
#pragma once

#include "counters/books/books.h"
#include "counters/ledger/ledger.h"
#include "engine/base/export.h"
#include "engine/render/value.h"

namespace tally {

// Sums since Reset. {"phases": {PHASE: {"steps", "rows", "logit_rows", "parameters_touched" (mean of a step), "flops", "executed_flops",
// "special", "bytes": {KIND: n}, "flops_by_class": {CLASS: n}}}, "sites": [{"phase", "layer" (null: outside the layers), "component",
// "ops", "flops", "executed_flops", "special", "bytes"}], "parameters": {"total", "active_all", "active_head", "active_none"}}. FLOPs and
// bytes are useful ones unless they are called executed; sites are those with ops that ran.
TALLY_API Value LedgerDocument(const Ledger& ledger, const books::ParameterCounts& parameters);

// A decoded token as a mean, speeds and parameters, by the names of books::RunFigures.
TALLY_API Value RunFiguresDocument(const books::RunFigures& figures);

}  // namespace tally
