// SPDX-License-Identifier: Apache-2.0
// What tally count prints: tables, and a JSON document.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/render/table.h"
#include "engine/render/value.h"
#include "engine/studies/count.h"
#include "engine/studies/streaming_forecast.h"

namespace tally {

// Each model's parameters tensor by tensor (`layers`: each layer's apart), totals, memory, work, with their closed forms. Several models
// stand side by side first.
TALLY_API std::vector<Table> CountTables(std::span<const CountedModel> models, bool layers);

// "total", or "total (run)" where something is left out.
TALLY_API const char* TotalName(const CountedModel& model);

// A model's layers: what each is, its parameters, KV bytes of a position, FLOPs of a token.
TALLY_API Table LayerTable(const CountedModel& model);
// A row a model, figures with three digits, and a title that says what they count: for a paper, with TableFormat::kLatex.
TALLY_API Table PaperTable(std::span<const CountedModel> models);

// Where a model's parameters are, and which of them a token uses (active(all)), as bars of `width` columns.
TALLY_API std::string CountPlot(const CountedModel& model, size_t width, bool colour);

// {"models": [objects]}, of one model too.
TALLY_API Value CountDocument(std::span<const CountedModel> models);

struct CsvTables {
  bool counts = true;
  bool layers = false;  // each layer's tensors in lines of their own
  // What is published of the models: under each convention the count (the row is "active 3.61B"), and 1 or 0 for whether it holds.
  bool claims = false;
  bool training = false;
  bool by_layer = false;
  std::vector<StreamingForecast> resident = {};  // by model; empty: none was asked for
};

// As RFC 4180, lines ended by '\n'. One header, "model,context,prompt,batch,table,row,figure,value"; one line a figure; every
// value a number, exact, without unit: parameters, bytes, FLOPs. One model and several have the same lines. kBadInput: counts that
// do not fit 64 bits.
TALLY_API Result<std::string> CountCsv(std::span<const CountedModel> models, const CsvTables& tables);

// The number as `format` writes it; "partial" of a figure that is only part.
template <class T, class Format>
std::string FigureCell(const books::Figure<T>& figure, const Format& format) {
  const std::optional<T> number = figure.number();
  return number ? format(*number) : "partial";
}

// The parameters of a token by each convention, with their shares.
TALLY_API Table ConventionTable(const CountedModel& model);

// One model: how many parameters it has, what is published of them and under which convention that holds, active parameters by
// convention, where parameters are, memory at the types that people use, FLOPs and bytes of a token. About 24 lines of at most `width`
// columns, 80 where that is 0.
TALLY_API std::string CountScreen(const CountedModel& model, size_t width);
// Several: a table, a column a model, or a row with fewer figures if columns have no room (width 0: there is room for all).
TALLY_API std::string CountScreen(std::span<const CountedModel> models, size_t width);
// The table with columns. `exact`: all digits, and shares of the parameters.
TALLY_API Table ModelColumns(std::span<const CountedModel> models, bool exact);

}  // namespace tally
