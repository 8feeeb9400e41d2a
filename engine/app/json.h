// SPDX-License-Identifier: Apache-2.0
// JSON documents of the commands.
#pragma once

#include "engine/api/tally.h"
#include "engine/render/json.h"
#include "engine/render/table.h"

namespace tally::app {

using Json = Value;

// The document as the one on standard output, with a newline.
void PrintJson(const Json& document);
inline Json Number(double x) { return WholeOr(x); }  // a whole number where it is one

Json NotRunJson(const books::NotRun& not_run);
Json ParametersJson(const books::RunFigures& figures);
Json MemoryJson(const Engine& engine);

}  // namespace tally::app
