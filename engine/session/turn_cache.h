// SPDX-License-Identifier: Apache-2.0
// The KV cache of a conversation between its turns; internal to the session.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/session/engine.h"
#include "engine/session/scoped_sequence.h"

namespace tally {

// One sequence and the tokens that it has run. Where windows may keep it from being rolled back, a fork of where the last answer began
// is kept as well.
class TurnCache {
 public:
  // `engine` must outlive the cache.
  explicit TurnCache(Engine& engine);

  // Makes the sequence one that has run a beginning of `prompt`, the longest that can be had, but never its last token. Returns the
  // length of that beginning. Errors as Engine::NewSequence.
  Result<int64_t> Begin(std::span<const int32_t> prompt);
  // The sequence, and the tokens that it has run. Begin or Adopt comes first.
  int32_t sequence() const { return last_->sequence.id(); }
  // What the sequence has run now: the first Length of `tokens`.
  void SetTokens(std::vector<int32_t> tokens);
  std::span<const int32_t> tokens() const { return last_ ? std::span<const int32_t>(last_->tokens) : std::span<const int32_t>(); }
  // What is worth keeping for a prompt that begins as `next`: the sequence, or where its answer began, if it agrees no longer than that.
  struct Run {
    int32_t sequence;
    std::span<const int32_t> tokens;  // that it has run
  };
  std::optional<Run> Worth(std::span<const int32_t> next) const;
  // An answer begins here. No fork is kept where there is no room for one.
  void BeginAnswer();
  // Frees everything.
  void Clear();
  // Takes over a sequence that has run `tokens`, in place of everything.
  void Adopt(int32_t sequence, std::vector<int32_t> tokens);

 private:
  struct Kept {
    ScopedSequence sequence;
    std::vector<int32_t> tokens;  // that it has run
  };

  Engine& engine_;
  bool has_windows_;
  std::optional<Kept> last_;    // after the last turn
  std::optional<Kept> answer_;  // where its answer began
};

}  // namespace tally
