// SPDX-License-Identifier: Apache-2.0
// The subcommands: each adds its options to the command line and says what to run.
#pragma once

#include <functional>

#include "engine/app/cli.h"

namespace tally::app {

inline constexpr const char* kTallyVersion = "0.2.0";  // of Tally

// Runs after parsing; gives the exit code.
using Action = std::function<int()>;

Action AddRun(CLI::App& app);
Action AddChat(CLI::App& app);
Action AddBatch(CLI::App& app);
Action AddServe(CLI::App& app);
Action AddLogits(CLI::App& app);
Action AddTokenize(CLI::App& app);
Action AddInspect(CLI::App& app);
Action AddSynth(CLI::App& app);
Action AddPerplexity(CLI::App& app);
Action AddQuantize(CLI::App& app);
Action AddBench(CLI::App& app);
Action AddCount(CLI::App& app);
Action AddAudit(CLI::App& app);
Action AddPull(CLI::App& app);
Action AddFit(CLI::App& app);
Action AddReport(CLI::App& app);
Action AddCompletion(CLI::App& app);
Action AddMan(CLI::App& app);  // after all others, which it knows

}  // namespace tally::app
