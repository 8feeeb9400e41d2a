// SPDX-License-Identifier: Apache-2.0
// What is said of a command line that cannot be parsed: one line, with what to write instead where that can be guessed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/app/command.h"
#include "engine/base/status.h"

namespace tally::app {

// The candidate that `given` is a slip of: a letter or two changed, left out, added or swapped, or one that begins like it. Capitals
// do not matter. Nothing: none is near.
std::optional<std::string> Nearest(std::string_view given, const std::vector<std::string>& candidates);

// kBadInput. `first` is no command of `app`.
Status UnknownCommand(const Command& app, const std::string& first);

// kBadInput: why parsing failed; `command`: the subcommand whose arguments they are, if there is one.
Status ParseFailure(const Command& app, const std::optional<Command>& command, const ParseOutcome& outcome);

}  // namespace tally::app
