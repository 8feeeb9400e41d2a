// SPDX-License-Identifier: Apache-2.0
#include "loaders/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/base/sync_file.h"
#include "engine/base/system_error.h"
#include "loaders/inventory/message.h"

namespace tally::internal {
namespace {

// The file that `path` stands for: links are followed, so that writing through one does not replace it.
Result<std::string> Target(const std::string& path) {
  if (path.empty()) return BadInput("the name of the file to write is empty");
  if (path.find('\0') != std::string::npos) return BadInput(Printable(path) + ": the file name holds a zero byte");
  std::string target = path;
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    std::error_code error;
    target = std::filesystem::canonical(path, error).string();
    if (error) return BadInput(Printable(path) + ": the symbolic link leads nowhere: " + error.message());
  }
  if (::stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return BadInput(Printable(path) + ": exists and is not a regular file; nothing was written");
  }
  return target;
}

// Checks before a byte is written. A file system that does not tell its size counts as having room.
Status CheckRoom(const std::string& target, uint64_t total) {
  const std::filesystem::path folder = std::filesystem::path(target).parent_path();
  struct statvfs info;
  if (::statvfs(folder.empty() ? "." : folder.c_str(), &info) != 0 || info.f_blocks == 0) return {};
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  if (total <= free) return {};
  return NoRoom(Printable(target) + ": needs " + BytesText(total) + ", and its file system has room for " + BytesText(free) +
                "; nothing was written");
}

constexpr std::string_view kPartial = ".partial-";

// Removes partial files of `target` whose writers have ended. A writer of CreateSized holds a lock on its file.
void RemoveLeftOver(const std::string& target) {
  namespace fs = std::filesystem;
  const fs::path path(target);
  const std::string prefix = path.filename().string() + std::string(kPartial);
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator at(path.has_parent_path() ? path.parent_path() : fs::path("."), error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) found.push_back(at->path().string());
  }
  for (const std::string& partial : found) {
    const int fd = ::open(partial.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) (void)::unlink(partial.c_str());
    ::close(fd);
  }
}

// Sets the room of a file aside. Returns 0 or errno.
int SetAside(int fd, uint64_t total) {
#ifdef __linux__
  int error = 0;
  do {
    error = ::fallocate(fd, 0, 0, static_cast<off_t>(total)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != EOPNOTSUPP && error != ENOSYS && error != EINVAL) return error;
#endif
  return ::ftruncate(fd, static_cast<off_t>(total)) == 0 ? 0 : errno;
}

constexpr uint64_t kDirectPage = 4096;

}  // namespace

Result<OutputFile> OutputFile::CreateSized(const std::string& path, uint64_t total) {
  TALLY_ASSIGN_OR_RETURN(const std::string target, Target(path));
  RemoveLeftOver(target);
  for (int n = 0; n < 100; ++n) {
    TALLY_ASSIGN_OR_RETURN(OutputFile file, Create(path, total));
    struct stat own, named;
    // Another process that looks for left files may have taken it before the lock was.
    const bool locked = ::flock(file.fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (!locked || ::fstat(file.fd_, &own) != 0 || ::stat(file.partial_.c_str(), &named) != 0 || own.st_ino != named.st_ino)
      continue;
    if (const int error = SetAside(file.fd_, total); error != 0) return file.Failed("cannot be given its room", error);
#ifdef O_DIRECT
    file.direct_ = ::open(file.partial_.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT);  // -1: the file system refuses
#endif
    return file;
  }
  return BadInput(Printable(path) + ": cannot be created: other processes remove its partial file");
}

Status OutputFile::WriteAt(uint64_t offset, std::span<const uint8_t> bytes) const {
  const auto aligned = [](uint64_t n) { return n % kDirectPage == 0; };
  bool direct = direct_ >= 0 && aligned(offset) && aligned(bytes.size()) && aligned(reinterpret_cast<uintptr_t>(bytes.data()));
  for (size_t done = 0; done < bytes.size();) {
    // Linux moves at most 2^31 - 4096 bytes a call.
    const size_t want = std::min<size_t>(bytes.size() - done, size_t{1} << 30);
    const ssize_t n = ::pwrite(direct ? direct_ : fd_, bytes.data() + done, want, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && direct) {
      direct = false;
      continue;
    }
    if (n <= 0) {
      const int error = n < 0 ? errno : ENOSPC;
      return {SystemErrorCode(error), Printable(path_) + ": cannot be written at byte " + std::to_string(offset + done) + " of " +
                                          std::to_string(total_) + ": " + SystemErrorText(error) +
                                          "; the partial file was removed"};
    }
    done += static_cast<size_t>(n);
    direct = direct && aligned(done);
  }
  return {};
}

Result<OutputFile> OutputFile::Create(const std::string& path, uint64_t total, unsigned mode) {
  OutputFile file;
  TALLY_ASSIGN_OR_RETURN(file.path_, Target(path));
  file.total_ = total;
  TALLY_RETURN_IF_ERROR(CheckRoom(file.path_, total));
  file.buffer_ = std::make_unique_for_overwrite<uint8_t[]>(kBufferBytes);
  // Another writer, or one that was killed, may have left some of these names.
  for (int n = 0; n < 100; ++n) {
    std::string partial = file.path_ + std::string(kPartial) + std::to_string(::getpid()) + "-" + std::to_string(n);
    do {
      file.fd_ = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    } while (file.fd_ < 0 && errno == EINTR);
    if (file.fd_ >= 0) {
      file.partial_ = std::move(partial);
      struct stat info;
      if (::stat(file.path_.c_str(), &info) == 0)
        (void)::fchmod(file.fd_, info.st_mode & 0777);  // not every file system has them
      return file;
    }
    if (errno != EEXIST) return SystemError(Printable(path) + ": cannot be created", errno);
  }
  return BadInput(Printable(path) + ": cannot be created: too many partial files stand beside it");
}

OutputFile::OutputFile(OutputFile&& o) noexcept
    : fd_(std::exchange(o.fd_, -1)),
      direct_(std::exchange(o.direct_, -1)),
      path_(std::move(o.path_)),
      partial_(std::exchange(o.partial_, {})),
      buffer_(std::move(o.buffer_)),
      used_(std::exchange(o.used_, 0)),
      written_(std::exchange(o.written_, 0)),
      total_(o.total_) {}

OutputFile::~OutputFile() { Abandon(); }

void OutputFile::Abandon() {
  if (direct_ >= 0) ::close(std::exchange(direct_, -1));
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!partial_.empty()) ::unlink(partial_.c_str());
  partial_.clear();
}

Status OutputFile::Failed(std::string_view what, int error_number) const {
  return {SystemErrorCode(error_number), Printable(path_) + ": " + std::string(what) + " at byte " + std::to_string(written_) +
                                             " of " + std::to_string(total_) + ": " + SystemErrorText(error_number) +
                                             "; the partial file was removed"};
}

Status OutputFile::Flush() {
  size_t done = 0;
  while (done < used_) {
    const ssize_t n = ::write(fd_, buffer_.get() + done, used_ - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("cannot be written", n < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(n);
    written_ += static_cast<uint64_t>(n);
  }
  used_ = 0;
  return {};
}

Result<std::span<uint8_t>> OutputFile::Reserve(size_t n) {
  if (n > kBufferBytes) return InternalError("OutputFile::Reserve of more than the buffer");
  if (n > kBufferBytes - used_) TALLY_RETURN_IF_ERROR(Flush());
  const std::span<uint8_t> piece(buffer_.get() + used_, n);
  used_ += n;
  return piece;
}

Status OutputFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kBufferBytes);
    TALLY_ASSIGN_OR_RETURN(const std::span<uint8_t> piece, Reserve(n));
    std::memcpy(piece.data(), bytes.data(), n);
    bytes.remove_prefix(n);
  }
  return {};
}

Status OutputFile::Extend(uint64_t total) {
  TALLY_RETURN_IF_ERROR(Flush());
  return ::ftruncate(fd_, static_cast<off_t>(total)) == 0 ? Status() : Failed("cannot be made longer", errno);
}

Status OutputFile::Commit(bool durable) {
  TALLY_RETURN_IF_ERROR(Flush());
  // Some file systems report a full disk only now, or when the file is closed.
  if (const int error = durable ? SyncFile(fd_) : 0; error != 0) return Failed("cannot be written", error);
  if (direct_ >= 0) ::close(std::exchange(direct_, -1));
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) return Failed("cannot be closed", errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) return Failed("cannot be given its name", errno);
  partial_.clear();
  return {};
}

}  // namespace tally::internal
