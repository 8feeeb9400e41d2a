// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/session/generate.h"
#include "engine/session/scoped_sequence.h"
#include "engine/session/stop_filter.h"

namespace tally {
namespace {

Status CheckRequest(const Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options) {
  const Model& model = engine.model();
  TALLY_RETURN_IF_ERROR(options.sampling.Validate());
  if (options.max_tokens < -1) {
    return BadInput("the number of tokens to generate must be 0 or more, or -1 (until the context is full), not " +
                    std::to_string(options.max_tokens));
  }
  if (!options.stop.empty() && model.tokenizer() == nullptr) {
    TALLY_RETURN_IF_ERROR(model.tokenizer_status());
    return BadInput("stop strings need a tokenizer, and this model has none");
  }
  return CheckTokens(engine, prompt);
}

std::vector<int32_t> EndTokens(const Model& model) {
  std::vector<int32_t> ends = model.recipe().eos_tokens;
  if (model.tokenizer() != nullptr) {
    for (const int32_t id : model.tokenizer()->eos()) ends.push_back(id);
  }
  return ends;
}

// The logits without the end tokens; uses `masked` if there are any.
std::span<const float> WithoutEnds(std::span<const float> logits, std::span<const int32_t> ends, std::vector<float>& masked) {
  if (ends.empty()) return logits;
  masked.assign(logits.begin(), logits.end());
  for (const int32_t id : ends) {
    if (id >= 0 && static_cast<size_t>(id) < masked.size()) masked[static_cast<size_t>(id)] = -INFINITY;
  }
  return masked;
}

// True if the first generated token begins the text: the prompt has only control tokens, such as a start token.
bool BeginsText(const Tokenizer* tokenizer, std::span<const int32_t> prompt) {
  return tokenizer != nullptr && std::all_of(prompt.begin(), prompt.end(), [&](int32_t id) { return tokenizer->IsControl(id); });
}

// The text of a generation: tokens -> whole characters -> cut before a stop string -> the listener.
class TextStream {
 public:
  TextStream(const Tokenizer* tokenizer, bool at_start, const GenerateOptions& options, GenerateResult& result)
      : options_(options), result_(result), stops_(options.stop) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer, at_start);
  }
  // False: the listener or a stop string ended the generation; result.finish says which.
  bool Push(int32_t token) {
    const std::string piece = decoder_ ? stops_.Push(decoder_->Push(token)) : std::string();
    result_.text += piece;
    if (options_.on_token && !options_.on_token(piece, token)) {
      result_.finish = FinishReason::kInterrupted;
      listening_ = false;
      return false;
    }
    if (stops_.stopped()) result_.finish = FinishReason::kStop;
    return !stops_.stopped();
  }
  // Adds the text held back to the result, even if the listener stopped.
  void Finish() {
    if (!decoder_ || stops_.stopped()) return;
    std::string piece = stops_.Push(decoder_->Finish());
    const bool stopped = stops_.stopped();
    if (!stopped) piece += stops_.Finish();
    result_.text += piece;
    if (!listening_) return;
    if (stopped) result_.finish = FinishReason::kStop;
    if (!piece.empty() && options_.on_token && !options_.on_token(piece, -1)) result_.finish = FinishReason::kInterrupted;
  }

 private:
  const GenerateOptions& options_;
  GenerateResult& result_;
  StopFilter stops_;
  std::optional<StreamingDecoder> decoder_;
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
  TALLY_RETURN_IF_ERROR(CheckRequest(engine, prompt, options));
  TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(engine));
  auto interrupted = [&] { return options.interrupted && options.interrupted(); };
  GenerateResult result;

  // Prefill: only the last row needs logits, and only if something is to be generated.
  const double prefill_begin = MonotonicSeconds();
  const size_t piece = static_cast<size_t>(std::max<int64_t>(1, engine.max_batch()));
  std::vector<BatchRow> rows;
  Mat<const float> logits;
  const auto progress = [&] {
    if (options.prompt_progress) options.prompt_progress(result.prompt_tokens, static_cast<int64_t>(prompt.size()));
  };
  progress();
  while (static_cast<size_t>(result.prompt_tokens) < prompt.size()) {
    if (interrupted()) {
      result.finish = FinishReason::kInterrupted;
      result.prompt_seconds = MonotonicSeconds() - prefill_begin;
      return result;
    }
    rows.clear();
    for (const int32_t token : prompt.subspan(static_cast<size_t>(result.prompt_tokens))
                                   .first(std::min(piece, prompt.size() - static_cast<size_t>(result.prompt_tokens)))) {
      rows.push_back({token, sequence.id(), false});
    }
    result.prompt_tokens += static_cast<int64_t>(rows.size());
    if (static_cast<size_t>(result.prompt_tokens) == prompt.size()) rows.back().want_logits = options.max_tokens != 0;
    TALLY_ASSIGN_OR_RETURN(logits, engine.Step(rows));
    progress();
  }
  result.prompt_seconds = MonotonicSeconds() - prefill_begin;
  if (options.max_tokens == 0) return result;

  const std::vector<int32_t> ends = EndTokens(engine.model());
  const std::span<const int32_t> hidden = options.ignore_eos ? ends : std::span<const int32_t>();
  std::vector<float> masked;
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  Sampler sampler(options.sampling);
  TextStream text(engine.model().tokenizer(), BeginsText(engine.model().tokenizer(), prompt), options, result);
  const double generate_begin = MonotonicSeconds();
  while (true) {
    const std::span<const float> row(logits.Row(0), static_cast<size_t>(logits.cols));
    const int32_t token = sampler.Sample(WithoutEnds(row, hidden, masked), history);
    if (!options.ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end()) {
      result.finish = FinishReason::kEos;
      break;
    }
    if (result.tokens.empty()) result.first_token_seconds = MonotonicSeconds() - prefill_begin;
    result.tokens.push_back(token);
    history.push_back(token);
    if (!text.Push(token)) break;
    if (static_cast<int64_t>(result.tokens.size()) == options.max_tokens) break;  // kLength
    if (engine.Length(sequence.id()) >= engine.context()) {
      result.finish = FinishReason::kContextFull;
      break;
    }
    if (interrupted()) {
      result.finish = FinishReason::kInterrupted;
      break;
    }
    const BatchRow next{.token = token, .sequence = sequence.id(), .want_logits = true, .generated = true};
    Result<Mat<const float>> stepped = engine.Step({&next, 1});
    if (!stepped.ok()) {
      result.error = stepped.status();
      break;
    }
    logits = *stepped;
    ++result.decode_steps;
  }
  result.generate_seconds = MonotonicSeconds() - generate_begin;
  text.Finish();
  if (!result.error.ok()) result.finish = FinishReason::kError;
  return result;
}

}  // namespace tally
