// SPDX-License-Identifier: Apache-2.0
#include "engine/session/turn_cache.h"

#include <algorithm>

namespace tally {
namespace {

// Tokens that both begin with.
size_t CommonLength(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

TurnCache::TurnCache(Engine& engine) : engine_(engine), has_windows_(AnyLayer(engine.model().recipe(), &LayerRecipe::forgets)) {}

Result<int64_t> TurnCache::Begin(std::span<const int32_t> prompt) {
  for (std::optional<Kept>* kept : {&last_, &answer_}) {
    if (!*kept) continue;
    const size_t common = CommonLength((*kept)->tokens, prompt.first(prompt.size() - 1));
    if (common == 0 || !engine_.Truncate((*kept)->sequence.id(), static_cast<int64_t>(common)).ok()) continue;
    Kept found = std::move(**kept);
    found.tokens.resize(common);
    Clear();
    last_.emplace(std::move(found));
    return static_cast<int64_t>(common);
  }
  Clear();
  TALLY_ASSIGN_OR_RETURN(ScopedSequence sequence, ScopedSequence::New(engine_));
  last_.emplace(Kept{std::move(sequence), {}});
  return 0;
}

void TurnCache::SetTokens(std::vector<int32_t> tokens) {
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(engine_.Length(sequence()))));
  last_->tokens = std::move(tokens);
}

std::optional<TurnCache::Run> TurnCache::Worth(std::span<const int32_t> next) const {
  if (!last_) return std::nullopt;
  const bool at_answer = answer_ && CommonLength(last_->tokens, next) <= answer_->tokens.size();
  const Kept& kept = at_answer ? *answer_ : *last_;
  return Run{kept.sequence.id(), kept.tokens};
}

void TurnCache::BeginAnswer() {
  answer_.reset();
  if (!has_windows_) return;  // the sequence itself can be rolled back to here
  Result<ScopedSequence> fork = ScopedSequence::Of(engine_, sequence(), true);
  if (fork.ok()) answer_.emplace(Kept{std::move(fork).value(), last_->tokens});
}

void TurnCache::Clear() {
  last_.reset();
  answer_.reset();
}

void TurnCache::Adopt(int32_t sequence, std::vector<int32_t> tokens) {
  Clear();
  last_.emplace(Kept{ScopedSequence::Own(engine_, sequence), std::move(tokens)});
}

}  // namespace tally
