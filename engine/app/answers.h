// SPDX-License-Identifier: Apache-2.0
// What batch and serve share: the options of a model that answers requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/api/tally.h"
#include "engine/app/options.h"
#include "engine/serve/completion.h"

namespace tally::app {

struct AnswerFlags {
  ModelFlags model;
  std::optional<std::string> chat_template, template_vars;
  int64_t parallel = 8, tokens = -1;
  SamplingOptions sampling;
  std::string draft;
  bool special = false, strict = false;
};
void AddAnswerFlags(Command& command, AnswerFlags& flags);  // without the model's
// kBadInput names the option.
Result<EngineOptions> EngineOptionsOf(const AnswerFlags& flags);
// kBadInput: also a chat template that was asked for and cannot be used, before weights are read.
Result<Loaded> LoadForAnswers(const AnswerFlags& flags, const EngineOptions& engine);
// `loaded` outlives it. kBadInput: --draft.
Result<ServedModel> ServedModelOf(const AnswerFlags& flags, const Loaded& loaded, const std::string& name);

}  // namespace tally::app
