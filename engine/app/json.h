// SPDX-License-Identifier: Apache-2.0
// JSON documents of the commands.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/api/tally.h"

namespace tally::app {

using Json = nlohmann::ordered_json;  // keys in the order written

// The document as the one on standard output, with a newline. Bytes that are no UTF-8 become U+FFFD.
void PrintJson(const Json& document);
// The document in one line, with a newline.
std::string JsonLine(const Json& document);
// A whole number where the value is one.
Json Number(double x);

Json NotRunJson(const books::NotRun& not_run);
Json ParametersJson(const books::RunFigures& figures);
Json MemoryJson(const Engine& engine);

}  // namespace tally::app
