// SPDX-License-Identifier: Apache-2.0
// What `tally bench --beside` starts: the same work in a second process of this program, spoken to by lines, or a command.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/api/tally.h"

namespace tally::app {

// Starts this program with `arguments`, which end in the option that makes it call ServeSpeedSteps, and waits until it is ready.
// kBadInput: what it says is in its way. kInterrupted.
Result<std::unique_ptr<SpeedNeighbour>> NewSecondProcess(std::vector<std::string> arguments);

// `command` of the shell, started anew for each measurement, its output dropped: "command". It should run for as long as it is let.
std::unique_ptr<SpeedNeighbour> NewCommand(const std::string& command);

// The second process. Says "ready" on standard output; then for each line of standard input, "prefill" or "decode", says "running",
// does that work until the next line comes, and says "rate" and its tokens per second. Ends with standard input. A failure before
// is one line, "failed" and why.
int ServeSpeedSteps(Result<std::unique_ptr<SpeedLoop>> loop);

}  // namespace tally::app
