// SPDX-License-Identifier: Apache-2.0
// The prompt of commands that study a run: any will do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/base/status.h"

namespace CLI {
class App;
}

namespace tally::app {

struct StudyPrompt {
  std::optional<std::string> text, tokens;
  Status Check() const;       // kBadInput: both are given
  std::string Shown() const;  // for a report: "'Once upon'", "ids 1,2,3"
};
void AddStudyPrompt(CLI::App& command, StudyPrompt& prompt);  // -p, --prompt-tokens

// The tokens given; else a line of verse, or of a model without a tokenizer some tokens. `name` stands in messages.
Result<std::vector<int32_t>> PromptTokens(const StudyPrompt& prompt, const std::string& name, const Model& model);

}  // namespace tally::app
