// SPDX-License-Identifier: Apache-2.0
// Session files: any bytes with right checksums are refused in one line, or read; what was read and is written again reads the same.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>

#include "engine/base/checksum.h"
#include "engine/graph/sequence_store.h"
#include "engine/session/session_file.h"
#include "engine/session/session_json.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"
#include "tests/session/fake_engine.h"

namespace tally::fuzz {
namespace {

constexpr int32_t kVocab = 100;
constexpr int64_t kContext = 300;

// With a cache of three small layers, one of them with a window, one recurrent.
class CacheEngine final : public FakeEngine {
 public:
  CacheEngine() : FakeEngine(kVocab, kContext) {
    constexpr KvLayout kLayout = {.type = KvType::kF16, .kv_heads = 1, .k_dim = 16};
    const std::array<StoreLayer, 3> layers = {KvStoreLayer(0, kLayout), KvStoreLayer(8, kLayout),
                                              StateStoreLayer({.recurrence = 16, .replay = 16, .taps = 3, .channels = 4})};
    auto store = SequenceStore::Create(layers, {.context = kContext, .sequences = 2, .max_batch = 8}, /*team=*/nullptr);
    Require(store.ok(), "no store");
    store_ = std::move(store).value();
  }
  int64_t Length(int32_t sequence) const override { return store_->Length(sequence); }
  void Free(int32_t sequence) override { store_->Free(sequence); }
  Status Export(int32_t sequence, const SequenceStore::Sink& write) const override { return store_->Export(sequence, write); }
  Result<uint64_t> ExportedBytes(int32_t sequence) const override {
    uint64_t bytes = 0;
    TALLY_RETURN_IF_ERROR(store_->Export(sequence, [&](std::span<const uint8_t> piece) {
      bytes += piece.size();
      return Status();
    }));
    return bytes;
  }
  Result<int32_t> Import(const SequenceStore::Source& read) override { return store_->Import(read); }

  // Of `length` positions.
  int32_t Made(size_t length) {
    const Result<int32_t> sequence = store_->NewSequence();
    Require(sequence.ok(), "no sequence");
    for (size_t i = 0; i < length; ++i) Require(store_->Extend(*sequence, 1).ok(), "no room");
    return *sequence;
  }

 private:
  std::unique_ptr<SequenceStore> store_;
};

CacheEngine& Engine() {
  static CacheEngine engine;
  return engine;
}

const Scratch& Folder() {
  static const Scratch folder;
  return folder;
}

template <class T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

uint64_t SumOf(std::string_view bytes) {
  Checksum sum;
  sum.Add(bytes);
  return sum.value();
}

// A cache that begins with these bytes and goes on with zeros, as long as the engine asks for more. None of none.
std::string WholeCache(std::string_view begin) {
  std::string cache;
  if (begin.empty()) return cache;
  const Result<int32_t> sequence = Engine().Import([&](std::span<uint8_t> out) {
    const std::string_view given = begin.substr(std::min(cache.size(), begin.size()), out.size());
    std::fill(std::copy(given.begin(), given.end(), out.begin()), out.end(), uint8_t{0});
    cache.append(out.begin(), out.end());
    return Status();
  });
  if (sequence.ok()) Engine().Free(*sequence);
  return cache + std::string(begin.substr(std::min(cache.size(), begin.size())));
}

// The file of an input, which is four parts: the header's beginning, the rest of which is made to fit; messages and settings; tokens;
// the cache's beginning. The checksums are right.
std::string FileOf(std::string_view input) {
  std::vector<std::string_view> parts = Files(input);
  parts.resize(4);
  const std::string cache = WholeCache(parts[3]);
  SessionHeader header;
  header.kv_type = static_cast<uint32_t>(Engine().kv_type());
  header.context = kContext;
  header.history_bytes = parts[1].size();
  header.tokens = parts[2].size() / sizeof(int32_t);
  header.cache_bytes = cache.size();
  std::memcpy(&header, parts[0].data(), std::min(parts[0].size(), offsetof(SessionHeader, checksum)));
  header.checksum = SumOf(BytesOf(header).substr(0, offsetof(SessionHeader, checksum)));
  std::string file(BytesOf(header));
  file.append(parts[1]).append(parts[2]).append(cache);
  const uint64_t sum = SumOf(file);
  return file.append(BytesOf(sum));
}

// The input of a file of whole tokens.
std::string InputOf(std::string_view file) {
  SessionHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  file.remove_prefix(sizeof header);
  file.remove_suffix(sizeof(uint64_t));
  std::string input(kNextFile);
  for (const uint64_t bytes : {header.history_bytes, header.tokens * sizeof(int32_t)}) {
    input.append(file.substr(0, bytes)).append(kNextFile);
    file.remove_prefix(bytes);
  }
  return input.append(file.substr(0, file.find_last_not_of('\0') + 1));
}

std::string Cache(int32_t sequence) {
  std::string cache;
  if (sequence < 0) return cache;
  const Status exported = Engine().Export(sequence, [&](std::span<const uint8_t> bytes) {
    cache.append(bytes.begin(), bytes.end());
    return Status();
  });
  Require(exported.ok(), "a cache that was read cannot be written");
  return cache;
}

struct Loaded {
  SessionState state;
  int32_t sequence = -1;  // where there are tokens
};

// Nothing where it is refused.
std::optional<Loaded> Load(const std::string& path) {
  const Result<SessionFile> file = SessionFile::Open(path, Engine());
  if (!file.ok()) return RequireOneLine(file.status()), std::nullopt;
  Loaded loaded = {.state = file->state()};
  for (const int32_t token : loaded.state.tokens) Require(token >= 0 && token < kVocab, "a token beyond the vocabulary");
  if (loaded.state.tokens.empty()) return loaded;
  const Result<int32_t> sequence = file->ImportCache(Engine());
  if (!sequence.ok()) return RequireOneLine(sequence.status()), std::nullopt;
  loaded.sequence = *sequence;
  return loaded;
}

std::string Text(const SessionState& state) { return SessionJson(state.messages, state.settings); }

// Writes a file, which must read as what was written, and frees the sequence.
std::string Written(const Loaded& session) {
  std::string path = Folder().path() + "/written.session";
  const Status written = WriteSession(path, session.state, Engine(), session.sequence);
  Require(written.ok(), "it cannot be written: " + written.message());
  const std::optional<Loaded> again = Load(path);
  Require(again.has_value(), "what was written is refused");
  Require(Text(again->state) == Text(session.state), "messages or settings are others");
  Require(again->state.tokens == session.state.tokens, "tokens are others");
  Require(Cache(again->sequence) == Cache(session.sequence), "the cache is another");
  for (const int32_t sequence : {session.sequence, again->sequence}) {
    if (sequence >= 0) Engine().Free(sequence);
  }
  return path;
}

void RunSession(std::string_view input) {
  const std::optional<Loaded> session = Load(Folder().Write("given.session", FileOf(input)));
  if (session) Written(*session);
}

std::vector<std::string> SessionSeeds() {
  SessionState full = {.messages = {{"system", "Be brief."}, {"user", "\u00fc\n\"?"}, {"assistant", "", "Hm.", {}, {}, {}}}};
  full.messages[2].tool_calls = {{"1", "f", R"({"a": [1, 2]})"}, {"2", "g", ""}};
  full.messages.push_back({"tool", "42", {}, {}, "1", "f"});
  full.settings.tools = {R"({"type": "function", "function": {"name": "f"}})"};
  full.settings.reasoning_effort = "low";
  full.settings.thinking = true;
  full.settings.now = 1764000000;
  full.settings.variables = {{"v", "[1]"}};
  std::vector<std::string> seeds;
  for (const size_t tokens : {0, 3, 280}) {  // the window's layer has freed a block of the last one
    full.tokens.resize(tokens, 7);
    std::ifstream in(Written({full, tokens > 0 ? Engine().Made(tokens) : -1}), std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), {}};
    seeds.push_back(InputOf(file));
    Require(FileOf(seeds.back()) == file, "an input is another file than that it was made of");
  }
  return seeds;
}

}  // namespace

const Target kSession = {"session", RunSession, SessionSeeds};

}  // namespace tally::fuzz
