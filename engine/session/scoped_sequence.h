// SPDX-License-Identifier: Apache-2.0
// A sequence that is freed when it goes out of scope.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "engine/session/sequences.h"

namespace tally {

class ScopedSequence {
 public:
  static Result<ScopedSequence> New(Sequences& sequences) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, sequences.NewSequence());
    return ScopedSequence(sequences, id);
  }
  // One that begins with what is remembered of `tokens` (Sequences::NewSequenceFor).
  static Result<ScopedSequence> For(Sequences& sequences, std::string_view key, std::span<const int32_t> tokens) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, sequences.NewSequenceFor(key, tokens));
    return ScopedSequence(sequences, id);
  }
  // One that they have made.
  static ScopedSequence Own(Sequences& sequences, int32_t id) { return {sequences, id}; }
  // All positions of another sequence: `shared` with it, or in memory of their own.
  static Result<ScopedSequence> Of(Sequences& sequences, int32_t sequence, bool shared) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id,
                           shared ? sequences.Fork(sequence, sequences.Length(sequence)) : sequences.Copy(sequence));
    return ScopedSequence(sequences, id);
  }
  ScopedSequence(ScopedSequence&& o) noexcept : sequences_(std::exchange(o.sequences_, nullptr)), id_(o.id_) {}
  ScopedSequence& operator=(ScopedSequence&&) = delete;
  ~ScopedSequence() {
    if (sequences_ != nullptr) sequences_->Free(id_);
  }
  int32_t id() const { return id_; }

 private:
  ScopedSequence(Sequences& sequences, int32_t id) : sequences_(&sequences), id_(id) {}
  Sequences* sequences_;
  int32_t id_;
};

}  // namespace tally
