// SPDX-License-Identifier: Apache-2.0
// JSON documents of the commands.
#pragma once

#include "engine/api/tally.h"
#include "engine/render/json.h"
#include "engine/render/table.h"
#include "engine/reports/values.h"

namespace tally::app {

using Json = Value;

// The document as the one on standard output, with a newline.
void PrintJson(const Json& document);
Json MemoryJson(const Engine& engine);

}  // namespace tally::app
