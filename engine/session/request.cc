// SPDX-License-Identifier: Apache-2.0
#include "engine/session/request.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"
#include "engine/session/draw_mask.h"
#include "engine/session/guide.h"
#include "engine/session/lookup_drafter.h"

namespace tally {
namespace {

GuideOptions GuideOf(const RequestOptions& options) {
  return {.grammar = options.grammar, .start = options.start, .may_call = options.may_call, .calls = options.calls};
}

Status CheckRules(const TokenRules& rules, int32_t vocab) {
  if (rules.min_tokens < 0) {
    return BadInput("the least number of tokens to generate must be 0 or more, not " + std::to_string(rules.min_tokens));
  }
  const auto check = [vocab](const char* what, const std::vector<int32_t>& tokens) -> Status {
    for (const int32_t token : tokens) {
      if (token >= 0 && token < vocab) continue;
      return BadInput(what + std::string(" is ") + std::to_string(token) + ", and the vocabulary has " + std::to_string(vocab));
    }
    return {};
  };
  TALLY_RETURN_IF_ERROR(check("a token that stops an answer", rules.stop));
  TALLY_RETURN_IF_ERROR(check("a token that is allowed", rules.allowed));
  TALLY_RETURN_IF_ERROR(check("a token that is never drawn", rules.never));
  for (const std::vector<int32_t>& sequence : rules.forbidden) {
    if (sequence.empty()) return BadInput("a sequence of tokens that is forbidden has none");
    TALLY_RETURN_IF_ERROR(check("a token that is forbidden", sequence));
  }
  return {};
}

}  // namespace

Status Request::Check(const Engine& engine, std::span<const int32_t> prompt, const RequestOptions& options) {
  TALLY_RETURN_IF_ERROR(options.sampling.Validate());
  if (options.max_tokens < -1) {
    return BadInput("the number of tokens to generate must be 0 or more, or -1 (until the context is full), not " +
                    std::to_string(options.max_tokens));
  }
  TALLY_RETURN_IF_ERROR(CheckTokens(engine, prompt));
  const int32_t vocab = engine.model().recipe().vocab;
  if (options.draft < 0) {
    return BadInput("the number of tokens to draft must be 0 (none) or more, not " + std::to_string(options.draft));
  }
  for (const int32_t token : options.replay) {
    if (token >= 0 && token < vocab) continue;
    return BadInput("a replayed token is " + std::to_string(token) + ", and the vocabulary has " + std::to_string(vocab));
  }
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || token >= vocab) {
      return BadInput("a bias is of token " + std::to_string(token) + ", and the vocabulary has " + std::to_string(vocab));
    }
  }
  TALLY_RETURN_IF_ERROR(CheckRules(options.rules, vocab));
  if (options.grammar != nullptr || options.calls != nullptr) {
    TALLY_RETURN_IF_ERROR(engine.model().tokenizer_status());
    if (engine.model().tokenizer() == nullptr) return BadInput("a grammar needs a tokenizer, and this model has none");
    TALLY_RETURN_IF_ERROR(Guide::Check(engine.model(), GuideOf(options)));
    if (options.ignore_eos || options.rules.min_tokens > 0)
      return BadInput("an answer that follows a grammar ends where the grammar does: its end cannot be ignored");
  }
  if (static_cast<int64_t>(prompt.size()) <= engine.MostPositions()) return {};
  return BadInput("the prompt has " + std::to_string(prompt.size()) + " tokens, and the KV cache of " +
                  BytesText(engine.KvBudget()) + " holds " + std::to_string(engine.MostPositions()));
}

Request::Request(const Engine& engine, std::vector<int32_t> prompt, const RequestOptions& options,
                 std::unique_ptr<OutputStream> output)
    : options_(options),
      prompt_size_(static_cast<int64_t>(prompt.size())),
      context_(engine.MostPositions()),
      tokens_(std::move(prompt)),
      ends_(EndTokens(engine.model())),
      sampler_(options.sampling),
      drafter_(std::make_unique<LookupDrafter>(options.draft)),
      output_(std::move(output)) {
  if (options.grammar != nullptr || options.calls != nullptr) guide_ = std::make_unique<Guide>(engine.model(), GuideOf(options));
  sampler_.SetBias(options_.logit_bias);
  if (options.ignore_eos || options.rules.Hold()) {
    mask_ =
        std::make_unique<DrawMask>(options_.rules, ends_, options.ignore_eos, static_cast<size_t>(engine.model().recipe().vocab));
  }
  if (options.prompt_logprobs >= 0) prompt_logprobs_.emplace();
}

Request::~Request() = default;

Result<std::shared_ptr<Request>> Request::New(const Engine& engine, std::span<const int32_t> prompt,
                                              const RequestOptions& options, const std::vector<std::string>& stop) {
  TALLY_RETURN_IF_ERROR(Check(engine, prompt, options));
  const Tokenizer* const tokenizer = engine.model().tokenizer();
  return std::make_shared<Request>(engine, std::vector<int32_t>(prompt.begin(), prompt.end()), options,
                                   NewTextStream(tokenizer, BeginsText(tokenizer, prompt), stop));
}

void Request::Begin(int64_t held) {
  if (begin_ != 0) return;
  begin_ = MonotonicSeconds();
  held_ = held;
  ran_ = held;
}

void Request::Ran(int64_t length, int64_t rows) {
  const int64_t fresh = std::max<int64_t>(0, length - std::max(ran_, length - rows));  // not run before
  const int64_t prompt = std::clamp<int64_t>(prompt_size_ - (length - fresh), 0, fresh);
  ran_ = std::max(ran_, length);
  result_.prompt_tokens += prompt;
  result_.decode_tokens += fresh - prompt;
  result_.decode_steps += fresh > prompt ? 1 : 0;
  const double now = MonotonicSeconds();
  if (decode_begin_ == 0) {
    result_.prompt_seconds = now - begin_;
    if (length >= prompt_size_) decode_begin_ = now;
  }
  if (length >= prompt_size_ && options_.max_tokens == 0) End(FinishReason::kLength);
}

// With minus infinity where the grammar allows nothing.
std::span<const float> Request::Masked(std::span<const float> logits) {
  if (guide_ == nullptr) return logits;
  const std::span<const uint64_t> mask = guide_->Mask();
  if (mask.empty()) return logits;
  masked_.assign(logits.begin(), logits.end());
  for (size_t i = 0; i < masked_.size(); ++i) {
    if (i / 64 >= mask.size() || (mask[i / 64] >> (i % 64) & 1) == 0) masked_[i] = -std::numeric_limits<float>::infinity();
  }
  return masked_;
}

void Request::Take(std::span<const float> logits) {
  if (ended_) return;
  forced_rows_ = 0;
  // One that is not drawn uses no random number.
  int32_t token = guide_ == nullptr || mask_ != nullptr ? Sampler::kNoToken : guide_->Only();
  if (token == Sampler::kNoToken) {
    std::span<const uint64_t> mask = guide_ == nullptr ? std::span<const uint64_t>() : guide_->Mask();
    if (mask_ != nullptr) mask = mask_->For(result_.tokens, mask);
    token = sampler_.Sample(logits, tokens_, mask, result_.tokens.size());
  }
  if (result_.tokens.size() < options_.replay.size()) token = options_.replay[result_.tokens.size()];
  if (token == Sampler::kNoToken) {
    const char* const why =
        guide_ == nullptr   ? "no token is left to draw: the request allows none"
        : mask_ != nullptr  ? "no token is left to draw: the request allows none of those that the grammar allows"
        : guide_->is_full() ? "the grammar is too complex: what may follow here needs more states than there may be"
                            : "the model has no token for what the grammar allows next";
    return End(FinishReason::kError, BadInput(why));
  }
  const bool ends = !options_.ignore_eos && std::find(ends_.begin(), ends_.end(), token) != ends_.end();
  if (ends && (guide_ == nullptr || guide_->Take(token))) {
    result_.end_token = token;
    return End(FinishReason::kEos);
  }
  if (result_.tokens.empty()) result_.first_token_seconds = MonotonicSeconds() - begin_;
  if (Append(token, logits)) Jump();
}

void Request::TakePrompt(std::span<const float> logits) {
  const size_t next = prompt_logprobs_->size() + 1;
  prompt_logprobs_->push_back(LogprobsOf(logits, tokens_[next], options_.prompt_logprobs));
}

// To be called before the guide takes the token.
RequestEvent Request::EventOf(int32_t token, std::span<const float> logits) {
  RequestEvent event{.token = token};
  if (wants_logprobs()) {
    event.logprobs = logits.empty() ? TokenLogprobs() : LogprobsOf(Masked(logits), token, options_.top_logprobs);
  }
  return event;
}

void Request::Push(RequestEvent event) {
  result_.tokens.push_back(event.token);
  tokens_.push_back(event.token);
  ++forced_rows_;
  output_->Push(event.token, &event.parts);
  events_.push_back(std::move(event));
}

// False: the answer has ended.
bool Request::Append(int32_t token, std::span<const float> logits) {
  RequestEvent event = EventOf(token, logits);
  if (std::ranges::find(options_.rules.stop, token) != options_.rules.stop.end()) {
    result_.stop_token = token;
    if (options_.show_stop) Push(std::move(event));
    End(FinishReason::kStop);
    return false;
  }
  if (guide_ != nullptr && !guide_->Take(token)) {
    End(FinishReason::kError,
        BadInput("token " + std::to_string(token) + " of the recorded answer is not what the grammar allows"));
    return false;
  }
  Push(std::move(event));
  if (output_->stopped()) {
    End(FinishReason::kStop);
  } else if (guide_ != nullptr && guide_->IsComplete()) {
    End(FinishReason::kEos);
  } else if (static_cast<int64_t>(result_.tokens.size()) == options_.max_tokens) {
    End(FinishReason::kLength);
  } else if (static_cast<int64_t>(tokens_.size()) > context_) {
    End(FinishReason::kContextFull);
  }
  return !ended_;
}

// Appends what the grammar leaves no choice about. A replayed answer has it already.
void Request::Jump() {
  if (guide_ == nullptr || mask_ != nullptr || !options_.jump || !options_.replay.empty()) return;
  for (const int32_t token : guide_->Forced()) {
    ++result_.forced;
    if (!Append(token, {})) return;
  }
}

// The most drafts that can be of use: the last token of an answer does not run, nor does one beyond the context.
int64_t Request::MostDrafts(int64_t most) {
  if (ended_ || options_.draft == 0 || std::exchange(skip_drafts_, false)) return 0;
  if (options_.max_tokens >= 0) most = std::min(most, options_.max_tokens - static_cast<int64_t>(result_.tokens.size()) - 1);
  return std::min(most, context_ - static_cast<int64_t>(tokens_.size()));
}

std::span<const int32_t> Request::Draft(int64_t most) {
  most = MostDrafts(most);
  return most > 0 ? WithoutEnd(drafter_->Propose(tokens_, most)) : std::span<const int32_t>();
}

int64_t Request::MayDraft(int64_t most) { return drafter_->length().Next(MostDrafts(most)); }

std::span<const int32_t> Request::WithoutEnd(std::span<const int32_t> drafts) const {
  const auto ends = [this](int32_t token) {
    return std::ranges::find(ends_, token) != ends_.end() ||
           std::ranges::find(options_.rules.stop, token) != options_.rules.stop.end();
  };
  const auto end = std::ranges::find_if(drafts, ends);
  const std::span<const int32_t> kept = drafts.first(static_cast<size_t>(end - drafts.begin()));
  return guide_ == nullptr ? kept : kept.first(guide_->Allowed(kept));
}

void Request::Drafted(int64_t drafted, int64_t accepted, double row_cost) {
  drafter_->length().Settle(drafted, accepted, row_cost);
  result_.drafted += drafted;
  result_.accepted += accepted;
  // Accepted drafts ran in the step of the token before them, which Ran() has counted without them.
  result_.decode_tokens += accepted;
  ran_ += accepted;
}

void Request::End(FinishReason finish, Status error) {
  if (ended_) return;
  ended_ = true;
  RequestEvent event;
  const bool is_cut = finish == FinishReason::kLength || finish == FinishReason::kContextFull;
  const bool stopped = output_->stopped();  // what Finish makes of the rest is no call that ended
  output_->Finish(result_.end_token, &event.parts);
  if (!event.parts.empty()) events_.push_back(std::move(event));
  result_.finish = error.ok() && (is_cut ? stopped : output_->stopped()) ? FinishReason::kStop : finish;
  result_.error = std::move(error);
  if (decode_begin_ != 0) result_.generate_seconds = MonotonicSeconds() - decode_begin_;
  std::vector<float>().swap(masked_);
  mask_.reset();
}

}  // namespace tally
