// SPDX-License-Identifier: Apache-2.0
// A request: the answer to a prompt, as a state machine. It says which tokens are to run, draws the next one from the logits of the last,
// and returns its results as events. It runs nothing and waits for nothing: the scheduler does (scheduler.h).
//
// The same request gives the same tokens alone and beside others: a draw depends on its seed and logits alone.
//
// A request may draft: it guesses the next tokens, and they run in the step of the last token that was drawn. The logits of a draft are
// used only if the token drawn for its position is the draft, so a request gives the same tokens as without drafts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/export.h"
#include "engine/chat/chat_format.h"
#include "engine/chat/output.h"
#include "engine/session/engine.h"
#include "engine/session/generate.h"
#include "engine/session/logprobs.h"
#include "engine/session/output_stream.h"
#include "engine/session/token_rules.h"

namespace tally {

struct AnswerCalls;
class DrawMask;
class Grammar;
class Guide;
class LookupDrafter;

struct RequestOptions {
  int64_t max_tokens = -1;  // -1: until the context is full
  SamplingOptions sampling = {};
  bool ignore_eos = false;  // end tokens are never drawn
  // Which tokens are drawn, and which end the answer. One that ends it is counted and shown only if `show_stop` says so.
  TokenRules rules = {};
  bool show_stop = false;
  // Added to the logits of these tokens before they are sampled from.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  int32_t top_logprobs = -1;  // each token has its log probability, and so many of the most probable ones; -1: none at all
  // The same of the prompt's tokens, each given those before it. All of the prompt runs then, whatever others have run. -1: none.
  int32_t prompt_logprobs = -1;
  // Requests of equal keys run equal beginnings of their tokens once; none: this one shares nothing.
  std::optional<std::string> prefix_key = {};
  std::string client = {};  // who asks: the scheduler gives clients equal shares
  // How many of the prompt's first tokens other prompts are likely to begin with too. The states of recurrent layers are remembered at
  // that position. 0: not known.
  int64_t shared_beginning = 0;
  // The most tokens that are drafted for one step. The checkpoint's own layer drafts them if the engine predicts
  // (EngineOptions::prediction); else they are looked up in the prompt and the text so far. Only an engine with room for drafts runs them
  // (EngineOptions::draft_rows). 0: none.
  int64_t draft = 0;
  // What the answer may be, from its first token on; null: anything. Other tokens are not drawn, and drafts are cut before them. An answer
  // that nothing may follow ends at once, with kEos and no end token. The model must have a tokenizer.
  std::shared_ptr<Grammar> grammar = {};
  AnswerStart start = {};  // the grammar begins where the content does: what may stand before it is free
  bool may_call = false;   // calls may stand in its place
  // What calls are held to, also where there is no other grammar. Null: nothing.
  std::shared_ptr<const AnswerCalls> calls = {};
  // Text that the grammar leaves no choice about is not drawn: its tokens, cut as the tokenizer cuts the whole text, run in one step.
  bool jump = true;
  // A recorded answer, whose tokens replace the drawn ones from the first token on. Tokens are still drawn, and dropped.
  std::vector<int32_t> replay = {};
};

// The results of one token.
struct RequestEvent {
  int32_t token = -1;                  // drawn, end tokens excepted; -1: only what was held back until the end
  std::vector<OutputPart> parts = {};  // that became certain with it
  TokenLogprobs logprobs = {};         // of the token, if they were asked for
};

class TALLY_API Request {
 public:
  // kBadInput: no tokens, one beyond the vocabulary, more than the engine's context or than its KV cache holds; a
  // bias of a token beyond the vocabulary; an option out of range.
  static Status Check(const Engine& engine, std::span<const int32_t> prompt, const RequestOptions& options);
  // The arguments must pass Check. The model must outlive the request.
  Request(const Engine& engine, std::vector<int32_t> prompt, const RequestOptions& options, std::unique_ptr<OutputStream> output);
  // A request whose answer is plain text, cut before the first of `stop`. The model must outlive it. Errors of Check.
  static Result<std::shared_ptr<Request>> New(const Engine& engine, std::span<const int32_t> prompt,
                                              const RequestOptions& options, const std::vector<std::string>& stop = {});
  ~Request();

  // --- for the scheduler

  const std::optional<std::string>& prefix_key() const { return options_.prefix_key; }
  const std::string& client() const { return options_.client; }
  int64_t shared_beginning() const { return options_.shared_beginning; }
  // All that is to run, in order: the prompt and the tokens that were drawn. The request ends before it draws one that could not run.
  std::span<const int32_t> tokens() const { return tokens_; }
  bool IsGenerated(int64_t position) const { return position >= prompt_size_; }
  bool WantsLogits(int64_t position) const {
    return (position + 1 == static_cast<int64_t>(tokens_.size()) && options_.max_tokens != 0) || WantsPromptLogits(position);
  }
  // Whether log probabilities of the prompt are wanted, and those of the token after `position` have not come.
  bool WantsPromptLogits(int64_t position) const {
    return prompt_logprobs_ && position + 1 < prompt_size_ && position >= static_cast<int64_t>(prompt_logprobs_->size());
  }
  bool RunsAllOfPrompt() const { return prompt_logprobs_.has_value(); }
  // It starts to run on a sequence that holds the first `held` tokens.
  void Begin(int64_t held);
  // The sequence has run `length` tokens, the last `rows` of them in this step.
  void Ran(int64_t length, int64_t rows);
  // Its sequence was freed to make room: the request will Begin again and run its tokens again.
  void Preempted() { ++preemptions_; }
  // One of these two is to be called before each step that may have drafts. Draft returns at most `most` tokens, found by lookup, to run
  // after tokens(); valid until the next call. MayDraft returns how many tokens, at most `most`, to ask of Engine::Predict.
  std::span<const int32_t> Draft(int64_t most);
  int64_t MayDraft(int64_t most);
  // The drafts before the first end token: the end token is never run, so no draft after it can be right.
  std::span<const int32_t> WithoutEnd(std::span<const int32_t> drafts) const;
  // How many of the drafted tokens that ran were drawn. `row_cost`: as DraftLength::Settle.
  void Drafted(int64_t drafted, int64_t accepted, double row_cost);
  // A step with drafts failed for this request: its next step has none.
  void SkipDrafts() { skip_drafts_ = true; }
  // A sequence of it ran the token at this position before.
  bool HasRun(int64_t position) const { return position < ran_; }
  // The logits, [vocab], of the next position for which WantsPromptLogits says true.
  void TakePrompt(std::span<const float> logits);
  // The logits of the last token, [vocab]: draws the next.
  void Take(std::span<const float> logits);
  void End(FinishReason finish, Status error = {});
  // The bill, once the request has ended and no row of it will run.
  void Billed(Bill bill) { result_.bill = std::move(bill); }
  // Its sequence, with what it shares, holds so many bytes of the KV cache and of states.
  void Held(uint64_t bytes) { held_bytes_ = std::max(held_bytes_, bytes); }

  // The last `rows` tokens were appended together: one was drawn, and the grammar left no other after it.
  bool AreForced(int64_t rows) const { return rows <= forced_rows_; }

  // --- for its owner

  bool ended() const { return ended_; }
  // The events since the last call, in order.
  std::vector<RequestEvent> TakeEvents() { return std::exchange(events_, {}); }
  const std::string& stop() const { return output_->stop(); }  // the stop string that ended it; empty: none did
  bool wants_logprobs() const { return options_.top_logprobs >= 0; }
  // Of the prompt's tokens from the second on, as far as they have run; null: they were not asked for.
  const std::vector<TokenLogprobs>* prompt_logprobs() const { return prompt_logprobs_ ? &*prompt_logprobs_ : nullptr; }
  bool begun() const { return begin_ != 0; }  // it has run, or is about to
  int64_t prompt_size() const { return prompt_size_; }
  int64_t prompt_done() const { return std::min(ran_, prompt_size_); }  // tokens of the prompt that have run
  int64_t prompt_reused() const { return held_; }                       // tokens of the prompt that had run before it began
  int64_t prompt_to_run() const { return prompt_size_ - held_; }        // the others
  int64_t preemptions() const { return preemptions_; }
  uint64_t held_bytes() const { return held_bytes_; }  // the most that it held when a sequence of it was given back
  // Counts, times and tokens so far; no text. The bill comes when the scheduler drops the request, in the step that it ends in.
  const GenerateResult& result() const { return result_; }

 private:
  std::span<const float> Masked(std::span<const float> logits);
  RequestEvent EventOf(int32_t token, std::span<const float> logits);
  void Push(RequestEvent event);
  bool Append(int32_t token, std::span<const float> logits);
  void Jump();
  int64_t MostDrafts(int64_t most);

  const RequestOptions options_;
  const int64_t prompt_size_;
  const int64_t context_;  // the most positions that it may reach
  std::vector<int32_t> tokens_;
  std::vector<int32_t> ends_;  // the model's end tokens
  std::unique_ptr<DrawMask> mask_;
  std::vector<float> masked_;  // logits, for log probabilities within a grammar
  std::optional<std::vector<TokenLogprobs>> prompt_logprobs_;
  std::unique_ptr<Guide> guide_;
  int64_t forced_rows_ = 0;
  Sampler sampler_;
  std::unique_ptr<LookupDrafter> drafter_;
  bool skip_drafts_ = false;
  std::unique_ptr<OutputStream> output_;
  GenerateResult result_;
  std::vector<RequestEvent> events_;
  int64_t held_ = 0;  // tokens that its first sequence held
  int64_t ran_ = 0;   // the most tokens that a sequence of it has run
  int64_t preemptions_ = 0;
  uint64_t held_bytes_ = 0;
  double begin_ = 0, decode_begin_ = 0;  // seconds of the clock; 0: not yet
  bool ended_ = false;
};

}  // namespace tally
