// SPDX-License-Identifier: Apache-2.0
#include "engine/session/session_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "engine/base/kinds.h"
#include "engine/recipe/recipe.h"
#include "engine/session/session_json.h"
#include "loaders/output_file.h"

namespace tally {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kMostHistoryBytes = uint64_t{256} << 20;
constexpr size_t kPieceBytes = size_t{1} << 20;

template <class T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string_view BytesOf(std::span<const int32_t> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

uint64_t HeaderSum(const SessionHeader& header) {
  Checksum sum;
  sum.Add(BytesOf(header).substr(0, offsetof(SessionHeader, checksum)));
  return sum.value();
}

// Bytes of the whole file; UINT64_MAX on overflow.
uint64_t FileBytes(const SessionHeader& header) {
  const uint64_t state = SaturatingAdd(header.history_bytes, SaturatingMul(header.tokens, sizeof(int32_t)));
  return SaturatingAdd(SaturatingAdd(state, header.cache_bytes), sizeof(SessionHeader) + sizeof(uint64_t));
}

uint64_t CacheOffset(const SessionHeader& header) {
  return sizeof(SessionHeader) + header.history_bytes + header.tokens * sizeof(int32_t);
}

std::string_view KvTypeName(uint32_t type) { return type < kKvTypeNames.size() ? kKvTypeNames[type] : "unknown"; }

// Appends to a file, and to the checksum of what it holds.
class SummedFile {
 public:
  explicit SummedFile(internal::OutputFile& file) : file_(file) {}
  Status Append(std::string_view bytes) {
    sum_.Add(bytes);
    return file_.Append(bytes);
  }
  Status Finish(bool durable) {
    TALLY_RETURN_IF_ERROR(file_.Append(BytesOf(sum_.value())));
    return file_.Commit(durable);
  }

 private:
  internal::OutputFile& file_;
  Checksum sum_;
};

// A mistyped name must not destroy another file.
Status CheckMayReplace(const std::string& path) {
  const Result<FileReader> there = FileReader::Open(path);
  if (!there.ok() || there->size() == 0) return {};  // none, or one that OutputFile refuses
  const SessionHeader ours;
  char begin[sizeof ours.magic] = {};
  const size_t n = static_cast<size_t>(std::min<uint64_t>(there->size(), sizeof begin));
  TALLY_RETURN_IF_ERROR(there->ReadAt(0, {reinterpret_cast<uint8_t*>(begin), n}));
  if (std::memcmp(begin, ours.magic, sizeof begin) == 0) return {};
  return BadInput(Printable(path) + ": exists and is no session file; nothing was written");
}

}  // namespace

Status WriteSession(const std::string& path, const SessionState& state, const Sequences& sequences, int32_t sequence,
                    bool durable) {
  TALLY_RETURN_IF_ERROR(CheckMayReplace(path));
  const std::string history = SessionJson(state.messages, state.settings);
  if (history.size() > kMostHistoryBytes) {
    return BadInput(Printable(path) + ": the messages take " + BytesText(history.size()) + "; the limit is " +
                    BytesText(kMostHistoryBytes));
  }
  SessionHeader header;
  header.kv_type = static_cast<uint32_t>(sequences.kv_type());
  header.fingerprint = sequences.Fingerprint();
  header.context = static_cast<uint64_t>(sequences.context());
  header.history_bytes = history.size();
  header.tokens = state.tokens.size();
  if (!state.tokens.empty()) {
    TALLY_ASSIGN_OR_RETURN(header.cache_bytes, sequences.ExportedBytes(sequence));
  }
  header.checksum = HeaderSum(header);
  constexpr unsigned kOwnerOnly = 0600;
  TALLY_ASSIGN_OR_RETURN(internal::OutputFile output, internal::OutputFile::Create(path, FileBytes(header), kOwnerOnly));
  SummedFile file(output);
  TALLY_RETURN_IF_ERROR(file.Append(BytesOf(header)));
  TALLY_RETURN_IF_ERROR(file.Append(history));
  TALLY_RETURN_IF_ERROR(file.Append(BytesOf(std::span<const int32_t>(state.tokens))));
  if (!state.tokens.empty()) {
    TALLY_RETURN_IF_ERROR(sequences.Export(sequence, [&](std::span<const uint8_t> bytes) {
      return file.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }));
  }
  return file.Finish(durable);
}

Result<SessionFile> SessionFile::Open(const std::string& path, const Engine& engine) {
  TALLY_ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(path));
  SessionFile file(std::move(reader));
  TALLY_RETURN_IF_ERROR(file.CheckHeader(engine));
  TALLY_RETURN_IF_ERROR(file.Check());
  TALLY_RETURN_IF_ERROR(file.ReadState(engine));
  return file;
}

Result<SessionFile> SessionFile::Peek(const std::string& path, const Engine& engine) {
  TALLY_ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(path));
  SessionFile file(std::move(reader));
  TALLY_RETURN_IF_ERROR(file.CheckHeader(engine));
  TALLY_RETURN_IF_ERROR(file.ReadState(engine));
  return file;
}

Status SessionFile::Refusal(const std::string& why) const { return BadInput(Printable(file_.path()) + ": " + why); }

Status SessionFile::CheckHeader(const Engine& engine) {
  const SessionHeader ours;
  const size_t there = static_cast<size_t>(std::min<uint64_t>(file_.size(), sizeof header_));
  TALLY_RETURN_IF_ERROR(file_.ReadAt(0, {reinterpret_cast<uint8_t*>(&header_), there}));
  if (there < sizeof ours.magic || std::memcmp(header_.magic, ours.magic, sizeof ours.magic) != 0) {
    return Refusal("no session file: it does not begin with TALLYSES");
  }
  if (there < sizeof header_) return Refusal("the session file is cut short: " + std::to_string(there) + " bytes");
  if (header_.version != ours.version) {
    return Refusal("a session file of version " + std::to_string(header_.version) + "; this program reads version " +
                   std::to_string(ours.version));
  }
  if (header_.checksum != HeaderSum(header_)) return Refusal("the session file is damaged: its header's checksum does not match");
  if (file_.size() != FileBytes(header_)) {
    return Refusal("the session file has " + std::to_string(file_.size()) + " bytes, and its header says " +
                   std::to_string(FileBytes(header_)));
  }
  if (header_.fingerprint != engine.Fingerprint()) {
    return Refusal("a session with another model than " + engine.model().Description() +
                   ", or with other options: --draft layers in one and not in the other, other processes, or positions scaled "
                   "for another context");
  }
  if (header_.kv_type != static_cast<uint32_t>(engine.kv_type())) {
    return Refusal("a session with a KV cache of type " + std::string(KvTypeName(header_.kv_type)) +
                   ", and this one is of type " + std::string(KvTypeName(static_cast<uint32_t>(engine.kv_type()))));
  }
  if (header_.tokens > static_cast<uint64_t>(engine.context())) {
    return Refusal("a session of " + std::to_string(header_.tokens) + " tokens, and the context has room for " +
                   std::to_string(engine.context()));
  }
  if (header_.history_bytes > kMostHistoryBytes) {
    return Refusal("a session whose messages take " + BytesText(header_.history_bytes) + "; the limit is " +
                   BytesText(kMostHistoryBytes));
  }
  return {};
}

Status SessionFile::Check() const {
  const uint64_t end = file_.size() - sizeof(uint64_t);
  std::vector<uint8_t> piece(static_cast<size_t>(std::min<uint64_t>(end, kPieceBytes)));
  Checksum sum;
  for (uint64_t at = 0; at < end; at += piece.size()) {
    piece.resize(static_cast<size_t>(std::min<uint64_t>(end - at, piece.size())));
    TALLY_RETURN_IF_ERROR(file_.ReadAt(at, piece));
    sum.Add({reinterpret_cast<const char*>(piece.data()), piece.size()});
  }
  uint64_t stored = 0;
  TALLY_RETURN_IF_ERROR(file_.ReadAt(end, {reinterpret_cast<uint8_t*>(&stored), sizeof stored}));
  if (stored != sum.value()) return Refusal("the session file is damaged: its checksum does not match");
  return {};
}

Status SessionFile::ReadState(const Engine& engine) {
  std::string history(static_cast<size_t>(header_.history_bytes), '\0');
  TALLY_RETURN_IF_ERROR(file_.ReadAt(sizeof header_, {reinterpret_cast<uint8_t*>(history.data()), history.size()}));
  Result<ChatRequest> request = ParseSessionJson(history);
  if (!request.ok()) return Refusal("a session that cannot be read: " + request.status().message());
  state_.messages = std::exchange(request->messages, {});
  state_.settings = std::move(request).value();
  state_.tokens.resize(static_cast<size_t>(header_.tokens));
  TALLY_RETURN_IF_ERROR(file_.ReadAt(sizeof header_ + header_.history_bytes,
                                     {reinterpret_cast<uint8_t*>(state_.tokens.data()), state_.tokens.size() * sizeof(int32_t)}));
  const int32_t vocab = engine.model().recipe().vocab;
  for (const int32_t token : state_.tokens) {
    if (token < 0 || token >= vocab) {
      return Refusal("a session with token " + std::to_string(token) + ": ids of this model are 0 to " +
                     std::to_string(vocab - 1));
    }
  }
  return {};
}

Result<int32_t> SessionFile::ImportCache(Sequences& sequences) const {
  uint64_t at = CacheOffset(header_);
  const uint64_t end = at + header_.cache_bytes;
  Result<int32_t> sequence = sequences.Import([&](std::span<uint8_t> bytes) {
    if (bytes.size() > end - at) return BadInput("a KV cache that is cut short");
    const uint64_t from = std::exchange(at, at + bytes.size());
    return file_.ReadAt(from, bytes);
  });
  if (!sequence.ok() && sequence.status().code() == StatusCode::kNoRoom) return sequence.status();
  if (!sequence.ok()) return Refusal(sequence.status().message());
  if (at == end && sequences.Length(*sequence) == static_cast<int64_t>(state_.tokens.size())) return sequence;
  sequences.Free(*sequence);
  return Refusal("a session whose KV cache is not that of its tokens");
}

}  // namespace tally
