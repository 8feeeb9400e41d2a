// SPDX-License-Identifier: Apache-2.0
// JSON documents of the commands.
#pragma once

#include <string>
#include <string_view>

#include "engine/api/tally.h"
#include "engine/render/json.h"
#include "engine/render/table.h"
#include "engine/reports/values.h"

namespace tally::app {

using Json = Value;

// The document, an object, as the one on standard output, with a newline. A last member `tally` says what made it (Maker).
void PrintJson(Json document);
Json Maker();  // {"version", "commit", "date"}
// The CSV with two more columns, tally_version and date. No cell of it has a line break.
std::string MarkedCsv(std::string_view csv);
// The same of lines without a head.
std::string MarkedCsvLines(std::string_view lines);

Json MemoryJson(const Engine& engine);

}  // namespace tally::app
