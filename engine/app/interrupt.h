// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and termination: the first SIGINT or SIGTERM asks for a clean end, a second one ends the process at once.
#pragma once

namespace tally::app {

void InstallInterruptHandlers();
void RemoveInterruptHandlers();  // from here on a signal ends the process at once
bool Interrupted();
// 128 + the signal that came: 130 for SIGINT, 143 for SIGTERM; 130 where none did.
int InterruptExitCode();

}  // namespace tally::app
