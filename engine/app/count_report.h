// SPDX-License-Identifier: Apache-2.0
// What tally count prints: tables, and a JSON document.
#pragma once

#include <span>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/json.h"
#include "engine/app/table.h"

namespace tally::app {

// One model: its parameters tensor by tensor (`layers`: each layer's apart), totals, memory, work, with their closed forms. Several:
// one table, a column a model.
std::vector<Table> CountTables(std::span<const CountedModel> models, bool layers);

// What is published of models, each figure under every convention that could be meant: the empty table, a model's rows, as JSON.
Table ClaimsTable();
void AddClaims(const std::string& model, const books::PublishedFigures& published, std::span<const books::ClaimCheck> checks,
               Table& table);
Json ClaimsJson(const books::PublishedFigures& published, std::span<const books::ClaimCheck> checks);

// Where a model's parameters are, and which of them a token uses (active(all)), as bars.
std::string CountPlot(const CountedModel& model, int width, bool colour);

// {"models": [objects]}, of one model too.
Json CountDocument(std::span<const CountedModel> models);

}  // namespace tally::app
