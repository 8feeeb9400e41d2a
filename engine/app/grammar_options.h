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
void AddJump(Command& command, GrammarFlags& flags);  // --no-jump

struct GivenGrammar {
  std::shared_ptr<Grammar> grammar = {};  // null: none was given
  std::string text = {};                  // what it was made of
};
// kBadInput names the option, and what is wrong. Keywords without a meaning are noted.
Result<GivenGrammar> ReadGrammar(const GrammarFlags& flags);

}  // namespace tally::app
