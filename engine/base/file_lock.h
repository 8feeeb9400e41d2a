// SPDX-License-Identifier: Apache-2.0
// A lock between processes: flock on a file of its own. The kernel releases it when the process ends. It is not in machine because the hub
// may not include that.
#pragma once

#include <string>

namespace tally {

class FileLock {
 public:
  // What becomes of the file when the lock is released.
  enum class After { kKeep, kRemove };

  FileLock() = default;
  FileLock(FileLock&& o) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock() { Release(); }

  // Creates the file if it is missing, with `mode` less the umask, and takes the lock without waiting. Returns 0; EWOULDBLOCK: another
  // process, or another lock of this one, has it; else errno: the file cannot be opened, or its file system has no locks (NoFileLocks).
  int Take(const std::string& path, unsigned mode, After after);
  void Release();

 private:
  int fd_ = -1;
  std::string remove_;  // on release; empty: nothing
};

bool NoFileLocks(int error_number);

}  // namespace tally
