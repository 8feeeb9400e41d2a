// SPDX-License-Identifier: Apache-2.0
#include "engine/session/generation.h"

#include <algorithm>
#include <string>

#include "engine/machine/machine.h"

namespace tally {
namespace {

std::vector<int32_t> EndTokens(const Model& model) {
  std::vector<int32_t> ends = model.recipe().eos_tokens;
  if (model.tokenizer() != nullptr) {
    for (const int32_t id : model.tokenizer()->eos()) ends.push_back(id);
  }
  return ends;
}

}  // namespace

Generation::Generation(Engine& engine, int32_t sequence, std::span<const int32_t> prompt, const GenerateOptions& options)
    : engine_(engine),
      sequence_(sequence),
      prompt_(prompt),
      options_(options),
      ends_(EndTokens(engine.model())),
      history_(prompt.begin(), prompt.end()),
      sampler_(options.sampling) {
  if (options.ignore_eos && !ends_.empty()) mask_ = MaskWithout(static_cast<size_t>(engine.model().recipe().vocab), ends_);
}

Status Generation::Check(const Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options) {
  TALLY_RETURN_IF_ERROR(options.sampling.Validate());
  if (options.max_tokens < -1) {
    return BadInput("the number of tokens to generate must be 0 or more, or -1 (until the context is full), not " +
                    std::to_string(options.max_tokens));
  }
  return CheckTokens(engine, prompt);
}

Result<bool> Generation::Prefill() {
  prefill_begin_ = MonotonicSeconds();
  const std::span<const int32_t> missing = prompt_.subspan(static_cast<size_t>(engine_.Length(sequence_)));
  const size_t piece = static_cast<size_t>(std::max<int64_t>(1, engine_.max_batch()));
  const auto progress = [&] {
    if (options_.prompt_progress) options_.prompt_progress(result_.prompt_tokens, static_cast<int64_t>(missing.size()));
  };
  std::vector<BatchRow> rows;
  progress();
  for (size_t done = 0; done < missing.size();) {
    if (Interrupted()) {
      result_.finish = FinishReason::kInterrupted;
      break;
    }
    rows.clear();
    for (const int32_t token : missing.subspan(done, std::min(piece, missing.size() - done))) {
      rows.push_back({token, sequence_, false});
    }
    done += rows.size();
    // Only the last row needs logits, and only if something is to be generated.
    if (done == missing.size()) rows.back().want_logits = options_.max_tokens != 0;
    TALLY_ASSIGN_OR_RETURN(logits_, engine_.Step(rows));
    result_.prompt_tokens = static_cast<int64_t>(done);
    progress();
  }
  result_.prompt_seconds = MonotonicSeconds() - prefill_begin_;
  return result_.finish != FinishReason::kInterrupted;
}

// The next token, from the logits of the last. A reason: it was the last one, or an end token.
std::optional<FinishReason> Generation::Draw(const Listener& listener) {
  const std::span<const float> row(logits_.Row(0), static_cast<size_t>(logits_.cols));
  const int32_t token = sampler_.Sample(row, history_, mask_);
  if (token == Sampler::kNoToken) {
    result_.error = BadInput("no token is left to draw: all tokens of the model end a text, and end tokens are not to be drawn");
    return FinishReason::kError;
  }
  if (!options_.ignore_eos && std::find(ends_.begin(), ends_.end(), token) != ends_.end()) {
    result_.end_token = token;
    return FinishReason::kEos;
  }
  if (result_.tokens.empty()) result_.first_token_seconds = MonotonicSeconds() - prefill_begin_;
  result_.tokens.push_back(token);
  history_.push_back(token);
  if (const std::optional<FinishReason> ended = listener(token)) return ended;
  if (static_cast<int64_t>(result_.tokens.size()) == options_.max_tokens) return FinishReason::kLength;
  if (engine_.Length(sequence_) >= engine_.context()) return FinishReason::kContextFull;
  if (Interrupted()) return FinishReason::kInterrupted;
  return std::nullopt;
}

void Generation::Decode(const Listener& listener) {
  if (options_.max_tokens == 0) return;
  const double begin = MonotonicSeconds();
  std::optional<FinishReason> finish;
  while (!(finish = Draw(listener))) {
    const BatchRow next{.token = result_.tokens.back(), .sequence = sequence_, .want_logits = true, .generated = true};
    Result<Mat<const float>> stepped = engine_.Step({&next, 1});
    if (!stepped.ok()) {
      result_.error = stepped.status();
      finish = FinishReason::kError;
      break;
    }
    logits_ = *stepped;
    ++result_.decode_steps;
  }
  result_.finish = *finish;
  result_.generate_seconds = MonotonicSeconds() - begin;
}

}  // namespace tally
