// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, termination and a terminal that goes: the first SIGINT, SIGTERM or SIGHUP asks for a clean end, a second one ends the process
// at once. A conversation outlives its answers: there Ctrl-C is an event, as often as it comes.
#pragma once

namespace tally::app {

void InstallInterruptHandlers();
void RemoveInterruptHandlers();  // from here on a signal ends the process at once
// True if a signal has come; in a conversation, one that TakeInterrupt has not taken yet.
bool Interrupted();
// 128 + the signal that came: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP; 130 where none did.
int InterruptExitCode();

// From here on SIGINT is kept until TakeInterrupt, and every signal, the terminal's resizing and coming to the foreground included, makes
// WakeDescriptor readable. False: the system has no descriptor for it.
bool BeginConversation();
bool TakeInterrupt();  // whether SIGINT came since the last call
bool Terminated();     // whether SIGTERM or SIGHUP came
// To be polled beside a terminal. -1 outside of a conversation.
int WakeDescriptor();
// Empties it. True: the terminal has another size, or another program may have changed its modes.
bool TakeWakeUp();

}  // namespace tally::app
