// SPDX-License-Identifier: Apache-2.0
// Files into the cache, and beginnings of files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/hub/cache.h"
#include "engine/hub/client.h"

namespace tally::hub {

// What the files of one call add up to, for their progress.
class Meter {
 public:
  Meter(const ProgressCallback& callback, uint64_t total) : callback_(callback), total_(total) {}
  bool Show(std::string_view file, uint64_t of_file, bool waiting = false) {
    return callback_ == nullptr || callback_({file, before_ + of_file, total_, fetched_, waiting});
  }
  void Fetched(uint64_t bytes) { fetched_ += bytes; }
  void Finish(uint64_t of_file) { before_ += of_file; }

 private:
  const ProgressCallback& callback_;
  uint64_t total_, before_ = 0, fetched_ = 0;
};

// The file as a blob of the cache and under its name in the snapshot.
Status FetchFile(Client& client, const Cache& cache, const Name& name, const std::string& commit, const File& file, Meter& meter);

// Extends `beginning`, which has a file's first bytes, to `bytes`, or to the whole file if that is shorter.
Status FetchBeginning(Client& client, const Name& name, const std::string& commit, const File& file, uint64_t bytes,
                      std::vector<uint8_t>& beginning, Meter& meter);

}  // namespace tally::hub
