// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/session/generate.h"
#include "engine/session/output_stream.h"
#include "engine/session/run_alone.h"

namespace tally {
namespace {

Status CheckStops(const Model& model, const GenerateOptions& options) {
  if (options.stop.empty() || model.tokenizer() != nullptr) return {};
  TALLY_RETURN_IF_ERROR(model.tokenizer_status());
  return BadInput("stop strings need a tokenizer, and this model has none");
}

}  // namespace

Status CheckTokens(const Engine& engine, std::span<const int32_t> tokens) {
  if (tokens.empty()) return BadInput("the prompt has no tokens: at least one is needed to begin");
  const int32_t vocab = engine.model().recipe().vocab;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return BadInput("token " + std::to_string(i) + " of the prompt is " + std::to_string(tokens[i]) +
                      ": ids of this model are 0 to " + std::to_string(vocab - 1));
    }
  }
  if (static_cast<int64_t>(tokens.size()) > engine.context()) {
    return BadInput("the prompt has " + std::to_string(tokens.size()) + " tokens and the context room for " +
                    std::to_string(engine.context()));
  }
  return {};
}

Result<GenerateResult> Generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options) {
  TALLY_RETURN_IF_ERROR(CheckStops(engine.model(), options));
  const RequestOptions of_request = {.max_tokens = options.max_tokens,
                                     .sampling = options.sampling,
                                     .ignore_eos = options.ignore_eos,
                                     .draft = options.draft,
                                     .grammar = options.grammar,
                                     .jump = options.jump};
  TALLY_ASSIGN_OR_RETURN(const std::shared_ptr<Request> request, Request::New(engine, prompt, of_request, options.stop));
  std::string text;
  bool listening = true;
  const auto listen = [&](const RequestEvent& event) {
    std::string piece;
    for (const OutputPart& part : event.parts) piece += part.text;
    text += piece;
    if (listening && options.on_token) listening = options.on_token(piece, event.token);
    return listening;
  };
  TALLY_ASSIGN_OR_RETURN(GenerateResult result, RunAlone(engine, request, options.prompt_progress, options.interrupted, listen));
  result.text = std::move(text);
  return result;
}

}  // namespace tally
