// SPDX-License-Identifier: Apache-2.0
// The prompt of commands that study a run: any will do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/command.h"
#include "engine/base/status.h"

namespace tally::app {

struct StudyPrompt {
  std::optional<std::string> text, tokens;
  int64_t decode = 8;  // tokens after it
  std::optional<CommandOption> decode_option;
  Status Check() const;       // kBadInput: both are given; a negative number of tokens
  std::string Shown() const;  // for a report: "'Once upon'", "ids 1,2,3"
};
void AddStudyPrompt(Command& command, StudyPrompt& prompt);  // -p, --prompt-tokens, -n

// What Audit is to run: the tokens given; else a line of verse, or of a model without a tokenizer some tokens. `name` stands in messages.
// Without -n fewer tokens are decoded if the engine's context ends.
Result<AuditOptions> AuditOptionsOf(const StudyPrompt& prompt, const std::string& name, const Engine& engine);

}  // namespace tally::app
