// SPDX-License-Identifier: Apache-2.0
// --draft: several tokens a pass, in run, chat, batch and serve.
#pragma once

#include <string>

#include "engine/api/tally.h"
#include "engine/app/command.h"
#include "engine/app/json.h"
#include "engine/base/status.h"

namespace tally::app {

void AddDraft(Command& command, std::string& draft);
// What --draft says -> RequestOptions::draft, and room for it in the engine, whose sequences are set already. kBadInput names the option.
Result<int64_t> ReadDraft(const std::string& draft, EngineOptions& engine);

// "drafted 120, accepted 84 (70 %), 2.9 tokens a pass"; empty: nothing was drafted.
std::string DraftWords(const books::RunFigures& figures);
Json DraftJson(const books::RunFigures& figures);

}  // namespace tally::app
