// What a file system may say only after a write: that it had no room for it after all.
#pragma once

#include <unistd.h>

#include <cerrno>

namespace tally {

// Waits until what was written to `fd` is stored. 0, or the errno; 0 of pipes, devices and file systems that cannot.
inline int SyncFile(int fd) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    return errno == EINVAL || errno == ENOTSUP || errno == EROFS ? 0 : errno;
  }
  return 0;
}

}  // namespace tally
