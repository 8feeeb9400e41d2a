// SPDX-License-Identifier: Apache-2.0
// Generating on a sequence that may have run the beginning of the prompt already; internal to the session. generate.h makes a new
// sequence for it, conversation.h keeps one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/session/engine.h"
#include "engine/session/generate.h"

namespace tally {

class Generation {
 public:
  // Called with each token that was drawn, end tokens excepted, before it is run. A reason ends the generation with it.
  using Listener = std::function<std::optional<FinishReason>(int32_t token)>;

  // kBadInput: a sampling option or a number of tokens out of range; what CheckTokens refuses.
  static Status Check(const Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options);
  // For what Check passes. The sequence holds the first Length(sequence) tokens of `prompt`, which are fewer than all. Of the options, `stop` and `on_token`
  // are not used. All arguments must outlive the generation.
  Generation(Engine& engine, int32_t sequence, std::span<const int32_t> prompt, const GenerateOptions& options);

  // Runs what the sequence lacks of the prompt, in pieces of max_batch. Errors are those of Step. True: all has run; false: it was
  // interrupted.
  Result<bool> Prefill();
  // After Prefill: draws tokens and runs them until something ends that. The last token is drawn only and not run. Does nothing if
  // no tokens are wanted.
  void Decode(const Listener& listener);

  // What has been generated, without its text.
  GenerateResult& result() { return result_; }

 private:
  bool Interrupted() const { return options_.interrupted && options_.interrupted(); }
  std::optional<FinishReason> Draw(const Listener& listener);

  Engine& engine_;
  const int32_t sequence_;
  const std::span<const int32_t> prompt_;
  const GenerateOptions& options_;
  GenerateResult result_;
  Mat<const float> logits_;       // of the last token that was run
  std::vector<int32_t> ends_;     // the model's end tokens
  std::vector<int32_t> history_;  // prompt and generated tokens, for the repeat penalty
  std::vector<uint64_t> mask_;    // of what may be drawn; empty: all
  Sampler sampler_;
  double prefill_begin_ = 0;
};

}  // namespace tally
