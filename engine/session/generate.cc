// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/session/generate.h"
#include "engine/session/generation.h"
#include "engine/session/scoped_sequence.h"
#include "engine/session/stop_filter.h"

namespace tally {
namespace {

Status CheckStops(const Model& model, const GenerateOptions& options) {
  if (options.stop.empty() || model.tokenizer() != nullptr) return {};
  TALLY_RETURN_IF_ERROR(model.tokenizer_status());
  return BadInput("stop strings need a tokenizer, and this model has none");
}

// True if the first generated token begins the text: the prompt has only control tokens, such as a start token.
bool BeginsText(const Tokenizer* tokenizer, std::span<const int32_t> prompt) {
  return tokenizer != nullptr && std::all_of(prompt.begin(), prompt.end(), [&](int32_t id) { return tokenizer->IsControl(id); });
}

// The text of a generation: tokens -> whole characters -> cut before a stop string -> the listener.
class TextStream {
 public:
  TextStream(const Tokenizer* tokenizer, bool at_start, const GenerateOptions& options)
      : options_(options), stops_(options.stop) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer, at_start);
  }
  // A reason: the listener or a stop string ended the generation.
  std::optional<FinishReason> Push(int32_t token) {
    const std::string piece = decoder_ ? stops_.Push(decoder_->Push(token)) : std::string();
    text_ += piece;
    if (options_.on_token && !options_.on_token(piece, token)) {
      listening_ = false;
      return FinishReason::kInterrupted;
    }
    if (stops_.stopped()) return FinishReason::kStop;
    return std::nullopt;
  }
  // Adds the text held back, even if the listener stopped. The reason for which the generation ended, `finish` until now.
  FinishReason Finish(FinishReason finish) {
    if (!decoder_ || stops_.stopped()) return finish;
    std::string piece = stops_.Push(decoder_->Finish());
    const bool stopped = stops_.stopped();
    if (!stopped) piece += stops_.Finish();
    text_ += piece;
    if (!listening_) return finish;
    if (!piece.empty() && options_.on_token && !options_.on_token(piece, -1)) return FinishReason::kInterrupted;
    return stopped ? FinishReason::kStop : finish;
  }
  const std::string& text() const { return text_; }

 private:
  const GenerateOptions& options_;
  StopFilter stops_;
  std::optional<StreamingDecoder> decoder_;
  std::string text_;
  bool listening_ = true;  // false after the listener returned false
};

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
  TALLY_RETURN_IF_ERROR(Generation::Check(engine, prompt, options));
  TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(engine));
  Generation generation(engine, sequence.id(), prompt, options);
  TALLY_ASSIGN_OR_RETURN(const bool ready, generation.Prefill());
  if (!ready) return std::move(generation.result());
  const Tokenizer* tokenizer = engine.model().tokenizer();
  TextStream text(tokenizer, BeginsText(tokenizer, prompt), options);
  generation.Decode([&](int32_t token) { return text.Push(token); });
  GenerateResult result = std::move(generation.result());
  const FinishReason finish = text.Finish(result.finish);
  if (result.error.ok()) result.finish = finish;
  result.text = text.text();
  return result;
}

}  // namespace tally
