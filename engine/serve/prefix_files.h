// SPDX-License-Identifier: Apache-2.0
// Keeps what conversations have run in a folder, so that they continue after a restart without running it again. The files are session
// files without messages (engine/session/session_file.h): tokens and their KV cache.
//
// A file is read when a request begins with its tokens, and written when there is time. It is used for requests of its prefix key only.
// Files of other models are left alone until their bytes are needed.
//
// Models with windows or recurrent layers know a sequence at its end alone: a file serves no request that leaves it earlier. So they have
// files for more than the ends of conversations (PrefixUse).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file_lock.h"
#include "engine/base/status.h"
#include "engine/session/engine.h"
#include "engine/session/session_file.h"

namespace tally {

// kConversation: from where the next turn goes on; it replaces files of earlier turns. kPrompt: for the same prompt again; written where
// there is room to spare. kBeginning: what many conversations begin with; no conversation replaces it. The last two are of models that need
// them; others do without.
enum class PrefixUse : uint8_t { kConversation, kPrompt, kBeginning };

// Not to be used by two threads at once.
class PrefixFiles {
 public:
  using Warn = std::function<void(const std::string& line)>;

  // Makes the folder, for its owner alone, if it is missing. `options` says what else the bits of a KV cache depend on, "int8 AVX2": files
  // are used if the model and this are the same. Reads the model's weights (Sequences::Fingerprint). `warn` gets a line for each useless file,
  // now and later; damaged ones are removed. The engine must outlive this. kBadInput: the folder cannot be made or read, or another process
  // uses it.
  static Result<std::unique_ptr<PrefixFiles>> Open(Engine& engine, const std::string& folder, uint64_t most_bytes,
                                                   const std::string& options, Warn warn);

  // A file that a request's tokens begin with.
  struct Found {
    std::string key, name;  // prefix key; name of the file
    SessionFile session;
  };
  // The file that knows beginnings of `tokens` which the engine does not remember; null: none, or there is no room for it.
  std::unique_ptr<Found> Find(std::string_view key, std::span<const int32_t> tokens);
  // Makes the engine remember what was found. `checked`: the result of Found::session.Check(), which reads the whole file and may be called
  // on any thread. False: the file is damaged and was removed, and another may be found.
  bool Import(const Found& found, const Status& checked);
  // Find, Check and Import.
  void Load(std::string_view key, std::span<const int32_t> tokens);
  // Marks tokens to be written: as many of them as the engine still remembers then, if they are worth a file. With `next`, the tokens that
  // it returns when they are written. Those marked last are written first.
  void Keep(std::string key, std::vector<int32_t> tokens, std::function<std::vector<int32_t>()> next = {},
            PrefixUse use = PrefixUse::kConversation);
  bool idle() const { return kept_.empty(); }  // nothing is to be written
  // Writes one of them. Removes files that it makes needless, and the oldest if all take more than `most_bytes`.
  void WriteOne();

  size_t files() const { return files_.size(); }  // that this model can use
  uint64_t bytes() const;                         // of all files

 private:
  struct File {
    std::string name, key;  // of the file; what stands for the key in its name
    std::vector<int32_t> tokens = {};
    uint64_t bytes = 0;
    int64_t used = 0;        // nanoseconds since 1970
    bool beginning = false;  // PrefixUse::kBeginning
  };
  struct Kept {
    std::string key;
    std::vector<int32_t> tokens;
    std::function<std::vector<int32_t>()> next;
    PrefixUse use;
  };

  PrefixFiles(Engine& engine, std::string folder, uint64_t most_bytes, const std::string& options, Warn warn);
  Status ReadFolder();
  std::string PathOf(const File& file) const { return folder_ + "/" + file.name; }
  int64_t Usable(const File& file, std::span<const int32_t> tokens) const;
  void Remove(std::vector<File>& files, size_t i);
  bool MakeRoom(uint64_t bytes);
  void Touch(File& file);

  Engine& engine_;
  const std::string folder_;
  const uint64_t most_bytes_;
  const std::string model_;  // what stands for the model and its options in names
  const Warn warn_;
  const bool whole_;  // a file serves only requests that begin with all of its tokens
  FileLock lock_;
  std::vector<File> files_, others_;  // of this model; of others
  std::deque<Kept> kept_;
};

}  // namespace tally
