// SPDX-License-Identifier: Apache-2.0
// --schema, --regex and --grammar: what an answer may be, in run, chat and batch.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/api/tally.h"
#include "engine/app/command.h"
#include "engine/base/status.h"

namespace tally::app {

struct GrammarFlags {
  std::optional<std::string> schema, regex, grammar;
  bool spaced = false, no_jump = false;
};
void AddGrammar(Command& command, GrammarFlags& flags);
// Null: none was given. kBadInput names the option, and what is wrong. Keywords without a meaning are noted.
Result<std::shared_ptr<Grammar>> ReadGrammar(const GrammarFlags& flags);
// A schema: a file's name, or the text of it, which begins with {.
Result<std::string> ReadSchema(const std::string& given);

}  // namespace tally::app
