// SPDX-License-Identifier: Apache-2.0
// The subcommands: each adds its options to the command line and says what to run.
#pragma once

#include <functional>

#include "engine/app/command.h"

namespace tally::app {

inline constexpr const char* kTallyVersion = TALLY_VERSION;  // CMake's, of the project

// Runs after parsing; gives the exit code.
using Action = std::function<int()>;

Action AddRun(Command& app);
Action AddChat(Command& app);
Action AddBatch(Command& app);
Action AddServe(Command& app);
Action AddLogits(Command& app);
Action AddTokenize(Command& app);
Action AddInspect(Command& app);
Action AddSchema(Command& app);
Action AddSynth(Command& app);
Action AddPerplexity(Command& app);
Action AddQuantize(Command& app);
Action AddPack(Command& app);
Action AddBench(Command& app);
Action AddCount(Command& app);
Action AddClaims(Command& app);
Action AddAudit(Command& app);
Action AddPull(Command& app);
Action AddList(Command& app);
Action AddRemove(Command& app);
Action AddFit(Command& app);
Action AddReport(Command& app);
Action AddCompletion(Command& app);
Action AddMan(Command& app);  // after all others, which it knows

}  // namespace tally::app
