// SPDX-License-Identifier: Apache-2.0
// fsync with retries. Some file systems report a full disk only here.
#pragma once

#include <unistd.h>

#include <cerrno>

namespace tally {

// Waits until the writes to `fd` are stored. Returns 0 or errno. Descriptors that do not support fsync (pipes, devices) give 0.
inline int SyncFile(int fd) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    return errno == EINVAL || errno == ENOTSUP || errno == EROFS ? 0 : errno;
  }
  return 0;
}

}  // namespace tally
