// SPDX-License-Identifier: Apache-2.0
// A file that appears under its name only when it is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace tally::internal {

// Writes "NAME.partial-PID-N" beside the target through one buffer; Commit renames it.
// Destroyed without a successful Commit, it removes the partial file.
class OutputFile {
 public:
  static constexpr size_t kBufferBytes = size_t{8} << 20;

  // `total`: bytes that the file will have; an error if its file system has no room for them. A target that exists must be a regular file;
  // a symbolic link is followed. It keeps its permissions; a new file has `mode`, less the umask.
  static Result<OutputFile> Create(const std::string& path, uint64_t total, unsigned mode = 0666);
  // The same for a file that is written in any order, by WriteAt alone: its room is set aside at once, so that a full disk is known
  // before a byte is written. Partial files that killed writers of the same name left are removed first; those of living ones are kept.
  static Result<OutputFile> CreateSized(const std::string& path, uint64_t total);
  OutputFile(OutputFile&& o) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // The next n <= kBufferBytes bytes of the file, for the caller to fill before the next call.
  Result<std::span<uint8_t>> Reserve(size_t n);
  Status Append(std::string_view bytes);
  // Bytes from `offset` on. Past the page cache where offset, size and address are multiples of 4096 and the file system allows it. Any
  // thread; ranges must not overlap.
  Status WriteAt(uint64_t offset, std::span<const uint8_t> bytes) const;
  // Makes the file longer by a hole, which takes no room.
  Status Extend(uint64_t total);
  // `durable`: it is on the disk when this returns; else a crash of the system may leave it cut short.
  Status Commit(bool durable = true);
  uint64_t position() const { return written_ + used_; }

 private:
  OutputFile() = default;
  Status Flush();
  Status Failed(std::string_view what, int error_number) const;
  void Abandon();

  int fd_ = -1, direct_ = -1;  // direct_: the same file, for writes past the page cache; -1: there are none
  std::string path_, partial_;
  std::unique_ptr<uint8_t[]> buffer_;
  size_t used_ = 0;       // of the buffer
  uint64_t written_ = 0;  // of the file
  uint64_t total_ = 0;
};

}  // namespace tally::internal
