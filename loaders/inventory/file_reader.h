// SPDX-License-Identifier: Apache-2.0
// Reading weight files piece by piece. Part of the inventory node: code that knows where a tensor's bytes are may read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/status.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// Reads bytes [offset, offset + out.size()) of a weight file; a file that has become shorter is an error.
class FileReader {
 public:
  static Result<FileReader> Open(const std::string& path);
  FileReader(FileReader&& o) noexcept;
  FileReader& operator=(FileReader&& o) noexcept;
  ~FileReader();
  Status ReadAt(uint64_t offset, std::span<uint8_t> out) const;  // thread-safe
  // The system need not keep its copy of these bytes: they will not be read again soon, and memory is scarce.
  void Forget(uint64_t offset, uint64_t size) const;
  uint64_t size() const { return size_; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened
  // kBadInput if the file does not have, or no longer has, that size and stamp.
  Status CheckUnchanged(const InventoryFile& file) const;
  const std::string& path() const { return path_; }

 private:
  FileReader() = default;
  int fd_ = -1;
  uint64_t size_ = 0;
  FileStamp stamp_;
  std::string path_;
};

// The whole of a file of at most max_bytes.
Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes);

}  // namespace tally
