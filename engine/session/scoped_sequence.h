// SPDX-License-Identifier: Apache-2.0
// A sequence that is freed when it goes out of scope.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "engine/session/engine.h"

namespace tally {

class ScopedSequence {
 public:
  static Result<ScopedSequence> New(Engine& engine) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, engine.NewSequence());
    return ScopedSequence(engine, id);
  }
  // One that begins with what is remembered of `tokens` (Engine::NewSequenceFor).
  static Result<ScopedSequence> For(Engine& engine, std::string_view key, std::span<const int32_t> tokens) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, engine.NewSequenceFor(key, tokens));
    return ScopedSequence(engine, id);
  }
  // One that the engine has made.
  static ScopedSequence Own(Engine& engine, int32_t id) { return {engine, id}; }
  // All positions of another sequence: `shared` with it, or in memory of their own.
  static Result<ScopedSequence> Of(Engine& engine, int32_t sequence, bool shared) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, shared ? engine.Fork(sequence, engine.Length(sequence)) : engine.Copy(sequence));
    return ScopedSequence(engine, id);
  }
  ScopedSequence(ScopedSequence&& o) noexcept : engine_(std::exchange(o.engine_, nullptr)), id_(o.id_) {}
  ScopedSequence& operator=(ScopedSequence&&) = delete;
  ~ScopedSequence() {
    if (engine_ != nullptr) engine_->Free(id_);
  }
  int32_t id() const { return id_; }

 private:
  ScopedSequence(Engine& engine, int32_t id) : engine_(&engine), id_(id) {}
  Engine* engine_;
  int32_t id_;
};

}  // namespace tally
