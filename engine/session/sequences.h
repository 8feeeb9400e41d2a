// SPDX-License-Identifier: Apache-2.0
// Sequences over a loaded model: made, forked, reused, cut, exported.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "engine/base/export.h"
#include "engine/base/kinds.h"
#include "engine/base/rows.h"
#include "engine/base/status.h"

namespace tally {

// The KV cache of an engine's sequences. An engine's steps give them positions.
class TALLY_API Sequences {
 public:
  virtual ~Sequences() = default;
  virtual int64_t context() const = 0;  // maximum positions of a sequence
  // The number of a new, empty sequence, to be freed with Free. kNoRoom: EngineOptions::sequences are in use.
  virtual Result<int32_t> NewSequence() = 0;
  // A new sequence with the first `length` positions of another. It shares their memory, except for the last length % 128
  // positions, which are copied. Results are the same bits as without sharing. kBadInput: no such sequence, a length it does not
  // have, positions that a sliding window or a recurrent layer needs and has already dropped. kNoRoom: EngineOptions::sequences are
  // in use, no room for the copy. Nothing changes on an error.
  virtual Result<int32_t> Fork(int32_t sequence, int64_t length) = 0;
  // A new sequence with all positions of another, in memory of its own: Fork without the sharing. kBadInput: no such sequence.
  // kNoRoom: EngineOptions::sequences are in use, no room. Nothing changes on an error.
  virtual Result<int32_t> Copy(int32_t sequence) = 0;
  // A new sequence with as many of the first `tokens` as are remembered for this key, maybe none: Length tells. The caller leaves out
  // the token whose logits it wants. Results are the same bits as without. kNoRoom: EngineOptions::sequences are in use.
  // `rows`: the rows among `tokens` that are more than tokens (BatchRow), ascending; positions as given to their steps. An embedding is
  // found by its identity, which is compared exactly, and by all else that its step was given. A span that is seen both ways is found whole
  // or not at all.
  virtual Result<int32_t> NewSequenceFor(std::string_view key, std::span<const int32_t> tokens,
                                         std::span<const PrefixRow> rows) = 0;
  Result<int32_t> NewSequenceFor(std::string_view key, std::span<const int32_t> tokens) {
    return NewSequenceFor(key, tokens, std::span<const PrefixRow>());
  }
  // The length of such a sequence, were it made now.
  virtual int64_t Reusable(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow> rows) const = 0;
  int64_t Reusable(std::string_view key, std::span<const int32_t> tokens) const {
    return Reusable(key, tokens, std::span<const PrefixRow>());
  }
  // From now on NewSequenceFor finds the positions of the sequence, which have run `tokens`, until others need their memory; also after
  // Free. To be called after each step, since the next one drops positions that a window has left. A sequence has one key. With recurrent
  // layers, only positions that have a state are found: the last `states` (0 to 2) that the sequence has. Rows that were more than tokens
  // are found as such; from the first embedding without an identity on, nothing is.
  virtual void Remember(int32_t sequence, std::string_view key, std::span<const int32_t> tokens, int32_t states) = 0;
  virtual int64_t Length(int32_t sequence) const = 0;  // positions; 0 if there is no such sequence
  // The position that the sequence's next row gets if none is given (BatchRow::position).
  virtual int64_t NextPosition(int32_t sequence) const { return Length(sequence); }
  // Keeps the first `length` positions. kBadInput: no such sequence, a length it does not have or that parts rows which see each other (so
  // does Fork), positions that a sliding window
  // has already dropped, a state that recurrent layers have given up: they can go back over the last steps, some 32 positions.
  virtual Status Truncate(int32_t sequence, int64_t length) = 0;
  virtual void Free(int32_t sequence) = 0;  // an unknown one is ignored
  // Writes a sequence's KV cache as bytes, block by block: `write` gets what follows, valid during the call. With several processes: all
  // parts in order. kBadInput: no such sequence, or one with rows that were more than tokens; errors of `write`.
  virtual Status Export(int32_t sequence, const std::function<Status(std::span<const uint8_t> bytes)>& write) const = 0;
  // How many bytes Export writes. kBadInput: no such sequence.
  virtual Result<uint64_t> ExportedBytes(int32_t sequence) const = 0;
  // A new sequence out of the bytes of Export; its next steps give the same bits. `read` fills what it is given with the bytes that
  // follow. They must come from sequences of the same Fingerprint() and kv_type(). kBadInput: bytes that Export did not make, more
  // positions than the context. kNoRoom: EngineOptions::sequences are in use, no room. Errors of `read`. Nothing changes on an error.
  virtual Result<int32_t> Import(const std::function<Status(std::span<uint8_t> bytes)>& read) = 0;
  virtual uint64_t KvBudget() const = 0;                   // bytes of the KV cache of all sequences
  virtual uint64_t KvBytesInUse() const = 0;               // of live sequences; what is shared counts once
  virtual uint64_t KvBytesOf(int32_t sequence) const = 0;  // of one sequence, with what it shares
  // The most bytes that a sequence of `positions` takes.
  virtual uint64_t KvBytesFor(int64_t positions) const = 0;
  // The most positions that a sequence can have: the context, or what the KV cache holds of one sequence alone.
  int64_t MostPositions() const;
  // What a KV cache depends on besides its type: a checksum of the family's name, of all weights (shapes, types, every byte) and of the
  // frequencies of the rotary embedding. The first call for a model reads all weights, on the engine's threads; the model keeps what it
  // found. The same on every machine.
  virtual uint64_t Fingerprint() const = 0;
  virtual KvType kv_type() const = 0;  // of the KV cache
};

}  // namespace tally
