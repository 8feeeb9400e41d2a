// SPDX-License-Identifier: Apache-2.0
// Keeps what conversations have run in a folder, so that they continue after a restart without running it again. The files are session
// files without messages (engine/session/session_file.h): tokens and their KV cache.
//
// A file is read when a request begins with its tokens, and written when there is time. It is used for requests of its prefix key only.
// Files of other models are left alone until their bytes are needed.
//
// A file of a model with windows or recurrent layers can be continued from its end only: it is of no use to a request that begins with
// fewer of its tokens. So such models also keep files of prompts and of common beginnings (PrefixUse).
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

// What a file is for. kConversation: it ends where the conversation's next turn continues, and replaces files of earlier turns.
// kPrompt: it serves the same prompt again, and is written only if there is room to spare. kBeginning: it holds what many conversations
// begin with, and no conversation replaces it. The last two help models with windows or recurrent layers; for others a longer file
// serves as well.
enum class PrefixUse : uint8_t { kConversation, kPrompt, kBeginning };

// Not to be used by two threads at once.
class PrefixFiles {
 public:
  using Warn = std::function<void(const std::string& line)>;

  // Makes the folder, for its owner alone, if it is missing. `options` says what else the bits of a KV cache depend on, "int8 AVX2": files
  // are used if the model and this are the same. Reads the model's weights (Sequences::Fingerprint). `warn` gets a line for each useless
  // file, now and later; damaged ones are removed. The engine must outlive this. kBadInput: the folder cannot be made or read, or another
  // process uses it.
  static Result<std::unique_ptr<PrefixFiles>> Open(Engine& engine, const std::string& folder, uint64_t most_bytes,
                                                   const std::string& options, Warn warn);

  // A file that a request's tokens begin with.
  struct Found {
    std::string key, name;  // prefix key; name of the file
    SessionFile session;
  };
  // The file that holds the most of the first `tokens`, and clearly more than the engine remembers. Null: no file does, or the KV cache
  // has no room for it.
  std::unique_ptr<Found> Find(std::string_view key, std::span<const int32_t> tokens);
  // Makes the engine remember what was found. `checked`: the result of Found::session.Check(), which reads the whole file and may be called
  // on any thread. False: the file is damaged and was removed, and another may be found.
  bool Import(const Found& found, const Status& checked);
  // Find, Check and Import.
  void Load(std::string_view key, std::span<const int32_t> tokens);
  // Marks tokens for WriteOne, which writes as many of the first ones as the engine then still remembers, if they are worth a file. If
  // `next` is given, WriteOne calls it and writes the tokens that it returns instead. Tokens marked last are written first.
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
