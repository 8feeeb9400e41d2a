// SPDX-License-Identifier: Apache-2.0
// Reading weight files piece by piece. Part of the inventory node: code that knows where a tensor's bytes are may read them.
#pragma once

#include <cstdint>
#include <memory>
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
  // ReadAt at the disk's own speed: past the page cache, of which no more is held afterwards than before. The pages of `out` that lie as
  // pages of the file do (offset and address are multiples of direct_alignment()) are read in place; the rest goes through a small buffer.
  // Megabytes at a time, several threads and huge pages are fast. Where the file system refuses, reads through the page cache and drops
  // what was not there before. Any thread.
  Status ReadDirect(uint64_t offset, std::span<uint8_t> out) const;
  // A power of two, at least 4096.
  uint64_t direct_alignment() const;
  // False where the file system has refused reads past the page cache, or would.
  bool direct() const;
  void RefuseDirect() const;  // as if the file system had: for tests
  // How much of the range the page cache holds, in whole pages. Of a file that is another user's and read-only: a guess from some places.
  // 0 where the system does not say at all.
  uint64_t CachedBytes(uint64_t offset, uint64_t size) const;
  // The system need not keep its copy of these bytes: they will not be read again soon, and memory is scarce.
  void Forget(uint64_t offset, uint64_t size) const;
  uint64_t size() const { return size_; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened
  // kBadInput if the file does not have, or no longer has, that size and stamp.
  Status CheckUnchanged(const InventoryFile& file) const;
  const std::string& path() const { return path_; }

 private:
  struct Direct;
  FileReader();
  const Direct& OpenDirect() const;
  Status CheckRange(uint64_t offset, uint64_t size) const;
  Status ReadError(uint64_t offset, int error) const;
  Status HasShrunk(uint64_t end) const;
  Status ReadPages(uint64_t offset, std::span<uint8_t> out, uint64_t bytes) const;
  Status ReadAndDrop(uint64_t offset, std::span<uint8_t> out) const;
  int fd_ = -1;
  std::unique_ptr<Direct> direct_;  // the second descriptor
  uint64_t size_ = 0;
  FileStamp stamp_;
  std::string path_;
};

// The whole of a file of at most max_bytes.
Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes);

}  // namespace tally
