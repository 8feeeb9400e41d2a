// SPDX-License-Identifier: Apache-2.0
#include "engine/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tally {

FileLock::FileLock(FileLock&& o) noexcept : fd_(std::exchange(o.fd_, -1)), remove_(std::exchange(o.remove_, {})) {}

int FileLock::Take(const std::string& path, unsigned mode, After after) {
  Release();
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, mode);
    if (fd < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    int error = 0;
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      error = errno;
      break;
    }
    if (error != 0) {
      ::close(fd);
      return error;
    }
    // The former holder may have removed the file. A lock on a removed file excludes nobody.
    struct stat locked, named;
    if (::fstat(fd, &locked) == 0 && ::stat(path.c_str(), &named) == 0 && locked.st_ino == named.st_ino &&
        locked.st_dev == named.st_dev) {
      fd_ = fd;
      if (after == After::kRemove) remove_ = path;
      return 0;
    }
    ::close(fd);
  }
}

void FileLock::Release() {
  if (fd_ < 0) return;
  if (!remove_.empty()) ::unlink(remove_.c_str());  // before the lock is released, so that no other process's file is removed
  remove_.clear();
  ::close(std::exchange(fd_, -1));
}

bool NoFileLocks(int error_number) {
  return error_number == ENOSYS || error_number == ENOLCK || error_number == EOPNOTSUPP || error_number == EINVAL;
}

}  // namespace tally
