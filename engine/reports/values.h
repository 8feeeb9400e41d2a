// SPDX-License-Identifier: Apache-2.0
// Values that several documents have.
#pragma once

#include "counters/books/books.h"
#include "counters/cost/cost.h"
#include "engine/render/table.h"
#include "engine/render/value.h"

namespace tally {

inline Value Number(double x) { return WholeOr(x); }  // a whole number where it is one
Value BytesJson(const Cost& cost);                    // {KIND: n}, all kinds
Value FlopsByClass(const Cost& cost);                 // {CLASS: n}, without classes that have none
Value NotRunJson(const books::NotRun& not_run);
Value ParametersJson(const books::RunFigures& figures);
// Of a model that reads experts from disk: {PHASE: {hits, misses, first_uses, bytes_from_disk, layers: [{layer, ...}]}}, phases that ran.
// Null: all weights are in memory.
Value ExpertsJson(const Ledger& ledger);
// Of a model that reads layers from disk: {PHASE: {bytes_from_disk, layers: [{layer, bytes_from_disk}]}}. Null: all weights are in memory.
Value StreamedLayersJson(const Ledger& ledger);

}  // namespace tally
