// SPDX-License-Identifier: Apache-2.0
#include "engine/app/answers.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "engine/app/build_info.h"
#include "engine/app/chat_options.h"
#include "engine/app/commands.h"
#include "engine/app/draft.h"
#include "engine/app/numbers.h"
#include "engine/base/checksum.h"

namespace tally::app {
namespace {

constexpr int64_t kMostParallel = 1024;
constexpr int64_t kLogitRows = 32;  // of a step, for log probabilities of prompts

Result<ChatSide> SideOf(const AnswerFlags& flags, const Model& model, bool tools) {
  TALLY_ASSIGN_OR_RETURN(const ChatTemplateSource source, FindTemplate(flags.chat_template, flags.model.model, model, tools));
  return MakeChatSide(source, /*native=*/!IsTemplateFile(flags.chat_template));
}

// Of the model and the build. Not of every weight: reading them all takes seconds.
std::string FingerprintOf(const Engine& engine) {
  Checksum sum;
  sum.Add(engine.model().Description());
  sum.Add(kTallyVersion);
  sum.Add(BuildInfo());
  sum.Add(engine.target());
  char text[20];
  std::snprintf(text, sizeof text, "fp_%016llx", static_cast<unsigned long long>(sum.value()));
  return text;
}

}  // namespace

void AddAnswerFlags(Command& command, AnswerFlags& flags) {
  AddNumber(command, "--parallel", flags.parallel, "most answers that are generated at once");
  AddChatTemplate(command, flags.chat_template);
  command
      .Option("--template-vars", flags.template_vars,
              "variables of the template, as a JSON object, for requests that do not set them")
      .Type("JSON");
  command.Flag("--special", flags.special, "special tokens spelled out in prompts of /v1/completions become tokens");
  command.Flag("--strict", flags.strict, "refuse fields of a request that would be ignored");
  AddNumber(command, "-n,--tokens", flags.tokens,
            "most tokens of an answer whose request does not say (-1 or -2: until the context is full)");
  AddSamplingSteps(command, flags.sampling);
  AddDraft(command, flags.draft);
}

Result<EngineOptions> EngineOptionsOf(const AnswerFlags& flags) {
  TALLY_RETURN_IF_ERROR(CheckGeneration(flags.sampling, flags.tokens));
  if (flags.parallel < 1 || flags.parallel > kMostParallel) {
    return BadInput("--parallel must be 1 to " + std::to_string(kMostParallel) + ", not " + std::to_string(flags.parallel));
  }
  TALLY_ASSIGN_OR_RETURN(EngineOptions engine, ToEngineOptions(flags.model));
  if (flags.template_vars) TALLY_RETURN_IF_ERROR(ReadTemplateVars(*flags.template_vars).status());
  engine.sequences = static_cast<int32_t>(flags.parallel);
  TALLY_RETURN_IF_ERROR(ReadDraft(flags.draft, engine).status());
  engine.max_logit_rows = std::max(kLogitRows, engine.sequences + engine.draft_rows);
  return engine;
}

Result<Loaded> LoadForAnswers(const AnswerFlags& flags, const EngineOptions& engine) {
  LoadOptions load;
  if (flags.chat_template) {  // what was asked for must not be found wrong request by request
    load.before_weights = [&](const Model& model) { return SideOf(flags, model, false).status(); };
  }
  return Load(flags.model.model, engine, std::move(load));
}

Result<ServedModel> ServedModelOf(const AnswerFlags& flags, const Loaded& loaded, const std::string& name) {
  EngineOptions made;  // the engine has its rows for drafts already
  TALLY_ASSIGN_OR_RETURN(const int64_t draft, ReadDraft(flags.draft, made));
  std::map<std::string, std::string> variables;
  if (flags.template_vars) {
    TALLY_ASSIGN_OR_RETURN(variables, ReadTemplateVars(*flags.template_vars));
  }
  return ServedModel{.engine = loaded.engine.get(),
                     .name = name,
                     .sampling = flags.sampling,
                     .max_tokens = flags.tokens < 0 ? -1 : flags.tokens,
                     .draft = draft,
                     .parse_special = flags.special,
                     .chat = SideOf(flags, *loaded.model, false),
                     .tool_chat = SideOf(flags, *loaded.model, true),
                     .template_variables = std::move(variables),
                     .fingerprint = FingerprintOf(*loaded.engine)};
}

}  // namespace tally::app
