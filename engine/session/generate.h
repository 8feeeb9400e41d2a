// SPDX-License-Identifier: Apache-2.0
// Generating text: prefill, sampling, stop conditions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/ledger/bill.h"
#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/session/engine.h"
#include "engine/session/sampling.h"

namespace tally {

class Grammar;

using SamplingOptions = SamplerConfig;

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: until the context is full
  SamplingOptions sampling = {};
  std::vector<std::string> stop = {};     // generation ends before any of these
  bool ignore_eos = false;                // end tokens are never drawn
  int64_t draft = 0;                      // RequestOptions::draft
  std::shared_ptr<Grammar> grammar = {};  // RequestOptions::grammar
  bool jump = true;                       // RequestOptions::jump
  // Called once per generated token with the text that became certain: whole characters that cannot begin a stop string. It is
  // often empty, and always without a tokenizer. Called once more with token -1 if text was held back until the end. Returning
  // false stops (`finish` is kInterrupted); it is not called again.
  std::function<bool(std::string_view piece, int32_t token)> on_token = {};
  // Called before the first and after each piece of the prompt with how many of its tokens have run, of how many.
  std::function<void(int64_t done, int64_t total)> prompt_progress = {};
  std::function<bool()> interrupted = {};  // polled between prefill chunks and tokens; true: stop
};

enum class FinishReason : uint8_t { kLength, kEos, kStop, kContextFull, kInterrupted, kError };

struct GenerateResult {
  std::vector<int32_t> tokens = {};   // generated, the end token not included
  int32_t end_token = -1;             // the end token that was drawn, if `finish` is kEos
  int32_t stop_token = -1;            // the token of TokenRules::stop that was drawn, if one ended it
  std::string text = {};              // UTF-8; empty without a tokenizer
  int64_t prompt_tokens = 0;          // prompt tokens that were run
  int64_t decode_tokens = 0;          // tokens that ran after the prompt, without drafts that were not accepted; the first token
                                      // comes from the prompt's logits
  int64_t decode_steps = 0;           // steps that they took: fewer than tokens where drafts were accepted
  int64_t forced = 0;                 // tokens that were not drawn: a grammar left no other
  int64_t drafted = 0, accepted = 0;  // tokens that were drafted; of these, drawn
  double prompt_seconds = 0;          // prefill
  double first_token_seconds = 0;     // from the beginning of the prefill until the first token was chosen; 0: none was
  double generate_seconds = 0;        // decode steps, sampling included
  FinishReason finish = FinishReason::kLength;
  Status error = {};  // of the failed step, if `finish` is kError; kBadInput without a token that may be drawn
  Bill bill = {};     // the work of its rows in the ledger
};

// kBadInput: no tokens, one beyond the vocabulary, more than the engine's context.
TALLY_API Status CheckTokens(const Engine& engine, std::span<const int32_t> tokens);

// Prefills `prompt` into a new sequence (in pieces of max_batch), generates, and frees the sequence. The ledger is not reset;
// Reset it first for the figures of this generation alone.
// kBadInput: an empty prompt, a token id beyond the vocabulary, a prompt longer than the context, a sampling option out of range,
// a stop string without a tokenizer; errors of Step in the prompt. kNoRoom: no sequence or memory is left. If a later step
// fails, the result holds what was generated until then, `finish` is kError and `error` is the step's. An interruption is not an
// error (`finish` is kInterrupted).
TALLY_API Result<GenerateResult> Generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace tally
