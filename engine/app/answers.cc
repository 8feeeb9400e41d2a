// SPDX-License-Identifier: Apache-2.0
#include "engine/app/answers.h"

#include <utility>

#include "engine/app/chat_options.h"
#include "engine/app/draft.h"
#include "engine/app/numbers.h"

namespace tally::app {
namespace {

constexpr int64_t kMostParallel = 1024;

Result<ChatSide> SideOf(const AnswerFlags& flags, const Model& model, bool tools) {
  TALLY_ASSIGN_OR_RETURN(const ChatTemplateSource source, FindTemplate(flags.chat_template, flags.model.model, model, tools));
  return MakeChatSide(source, /*native=*/!IsTemplateFile(flags.chat_template));
}

}  // namespace

void AddAnswerFlags(Command& command, AnswerFlags& flags) {
  AddNumber(command, "--parallel", flags.parallel, "most answers that are generated at once");
  AddChatTemplate(command, flags.chat_template);
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
  engine.sequences = static_cast<int32_t>(flags.parallel);
  TALLY_RETURN_IF_ERROR(ReadDraft(flags.draft, engine).status());
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
  return ServedModel{.engine = loaded.engine.get(),
                     .name = name,
                     .sampling = flags.sampling,
                     .max_tokens = flags.tokens < 0 ? -1 : flags.tokens,
                     .draft = draft,
                     .parse_special = flags.special,
                     .chat = SideOf(flags, *loaded.model, false),
                     .tool_chat = SideOf(flags, *loaded.model, true)};
}

}  // namespace tally::app
