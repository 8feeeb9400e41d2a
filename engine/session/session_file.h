// SPDX-License-Identifier: Apache-2.0
// Session files: a conversation with the KV cache of what it has run.
//
//   header   SessionHeader, 64 bytes
//   history  messages and settings as JSON (session_json.h)
//   tokens   int32 each: those whose keys and values follow
//   cache    what Sequences::Export wrote; nothing without tokens
//   u64      Checksum of all bytes before it
//
// Numbers are little-endian. The cache is the memory layout of its type: whoever changes that layout, or what Sequences::Fingerprint is
// made of, raises kSessionVersion.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/message.h"
#include "engine/session/engine.h"
#include "loaders/inventory/file_reader.h"

namespace tally {

inline constexpr uint32_t kSessionVersion = 3;

struct SessionHeader {
  char magic[8] = {'T', 'A', 'L', 'L', 'Y', 'S', 'E', 'S'};
  uint32_t version = kSessionVersion;
  uint32_t kv_type = 0;      // KvType
  uint64_t fingerprint = 0;  // Sequences::Fingerprint
  uint64_t context = 0;      // of the engine that wrote it
  uint64_t history_bytes = 0;
  uint64_t tokens = 0;
  uint64_t cache_bytes = 0;
  uint64_t checksum = 0;  // of the header before it
};
static_assert(sizeof(SessionHeader) == 64);

// The contents of a file besides the KV cache.
struct SessionState {
  std::vector<ChatMessage> messages = {};
  ChatRequest settings = {};         // without messages
  std::vector<int32_t> tokens = {};  // whose keys and values are in the cache
};

// Replaces a session file, or an empty one, in one step, or makes one, for its owner alone. `sequence` has run the state's tokens and
// nothing else; it is ignored if there are none. `durable`: the file is on the disk when this returns; else a crash of the system may leave
// one that is damaged, which Open finds.
// kBadInput: the file cannot be written, or is another kind of file.
Status WriteSession(const std::string& path, const SessionState& state, const Sequences& sequences, int32_t sequence,
                    bool durable = true);

// A session file that has been checked as a whole, and its KV cache still in the file.
class SessionFile {
 public:
  // kBadInput names the file: it cannot be read, is no session file, cut short or damaged, of another version, model or KV type,
  // longer than the context.
  static Result<SessionFile> Open(const std::string& path, const Engine& engine);
  // The same without the checksum of all bytes, which Check looks at: the state may be damaged.
  static Result<SessionFile> Peek(const std::string& path, const Engine& engine);
  Status Check() const;

  const SessionState& state() const { return state_; }
  // A new sequence of those of Open's engine, which has run the state's tokens. kBadInput: as Sequences::Import.
  Result<int32_t> ImportCache(Sequences& sequences) const;

 private:
  explicit SessionFile(FileReader file) : file_(std::move(file)) {}
  Status Refusal(const std::string& why) const;
  Status CheckHeader(const Engine& engine);
  Status ReadState(const Engine& engine);

  FileReader file_;
  SessionHeader header_;
  SessionState state_;
};

}  // namespace tally
