// SPDX-License-Identifier: Apache-2.0
#include "engine/app/study_prompt.h"

#include <algorithm>

#include "engine/app/interrupt.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

constexpr const char* kDefaultPrompt = "O Romeo, Romeo! wherefore art thou Romeo?";

Result<std::vector<int32_t>> PromptTokens(const StudyPrompt& prompt, const std::string& name, const Model& model) {
  if (prompt.tokens) return ParseTokens(*prompt.tokens, "--prompt-tokens");
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer == nullptr) {
    if (prompt.text) TALLY_RETURN_IF_ERROR(model.tokenizer_status());
    if (prompt.text) return BadInput(name + ": the model has no tokenizer: give --prompt-tokens 1,2,3");
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 12; ++i) tokens.push_back((7 * i + 1) % model.sizes().vocab);
    return tokens;
  }
  std::string text = prompt.text.value_or(kDefaultPrompt);
  if (prompt.text == "-") {
    TALLY_ASSIGN_OR_RETURN(text, ReadPromptText("-"));
  }
  TALLY_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer->Encode(text, {.add_special = true}));
  if (tokens.empty()) return BadInput("the prompt has no tokens: at least one is needed to begin");
  return tokens;
}

}  // namespace

Status StudyPrompt::Check() const {
  if (decode < 0) return BadInput("-n must be 0 or more, not " + std::to_string(decode));
  return text && tokens ? BadInput("give the prompt once: -p TEXT or --prompt-tokens 1,2,3") : Status();
}

std::string StudyPrompt::Shown() const { return tokens ? "ids " + Printable(*tokens, 64) : Quote(text.value_or(kDefaultPrompt)); }

void AddStudyPrompt(Command& command, StudyPrompt& prompt) {
  TextOption(command.Option("-p,--prompt", prompt.text, "prompt text (-: standard input; default: a line of verse)"));
  command.Option("--prompt-tokens,--tokens", prompt.tokens, "prompt as token ids: 1,2,3").OneEach();
  prompt.decode_option =
      AddNumber(command, "-n,--decode", prompt.decode, "tokens to decode after the prompt; without -n fewer if the context ends");
}

Result<AuditOptions> AuditOptionsOf(const StudyPrompt& prompt, const std::string& name, const Engine& engine) {
  AuditOptions options;
  options.interrupted = Interrupted;
  TALLY_ASSIGN_OR_RETURN(options.prompt, PromptTokens(prompt, name, engine.model()));
  options.decode_tokens = prompt.decode;
  if (prompt.decode_option->count() == 0) {
    const int64_t room = engine.context() - static_cast<int64_t>(options.prompt.size());
    options.decode_tokens = std::clamp<int64_t>(room, 0, prompt.decode);
  }
  return options;
}

}  // namespace tally::app
