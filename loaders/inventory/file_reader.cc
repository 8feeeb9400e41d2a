// SPDX-License-Identifier: Apache-2.0
// FileReader: all reading of files goes through here (POSIX open, fstat, pread).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/base/system_error.h"
#include "loaders/inventory/file_reader.h"
#include "loaders/inventory/message.h"

namespace tally {
namespace {

// Empty for a regular file, else what it is.
std::string_view NotAFile(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

Status CheckRegular(const std::string& path, const struct stat& info) {
  const std::string_view kind = NotAFile(info.st_mode);
  if (kind.empty()) return {};
  return BadInput(Printable(path) + ": expected a regular file, found " + std::string(kind));
}

// Git LFS's specification: a pointer is a text of less than 1024 bytes that begins with this line, and has another of the size.
Status CheckNoLfsPointer(const FileReader& file) {
  constexpr std::string_view kFirstLine = "version https://git-lfs.github.com/spec/", kSize = "\nsize ";
  if (file.size() < kFirstLine.size() || file.size() >= 1024) return {};
  std::string text(file.size(), '\0');
  TALLY_RETURN_IF_ERROR(file.ReadAt(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  if (!text.starts_with(kFirstLine)) return {};
  const size_t at = text.find(kSize), begin = at == text.npos ? text.size() : at + kSize.size();
  const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
  const std::string size = end > begin ? " of " + text.substr(begin, end - begin) + " bytes" : "";
  return BadInput(Printable(file.path()) + ": a Git LFS pointer to a file" + size +
                  ", not the file itself: `git lfs pull` in its repository fetches it");
}

FileStamp StampOf(const struct stat& info) {
#ifdef __APPLE__
  const struct timespec modified = info.st_mtimespec;
#else
  const struct timespec modified = info.st_mtim;
#endif
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino), static_cast<int64_t>(modified.tv_sec),
          static_cast<int64_t>(modified.tv_nsec)};
}

}  // namespace

Result<FileReader> FileReader::Open(const std::string& path) {
  if (path.empty()) return BadInput("the file name is empty");
  if (path.find('\0') != std::string::npos) return BadInput(Printable(path) + ": the file name holds a zero byte");
  // Checks the file before opening it, since opening a device may do something. O_NONBLOCK: opening a pipe that was put there meanwhile
  // must not block.
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return SystemError(Printable(path) + ": cannot be opened", errno);
  TALLY_RETURN_IF_ERROR(CheckRegular(path, info));
  FileReader reader;
  reader.path_ = path;
  do {
    reader.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (reader.fd_ < 0 && errno == EINTR);
  if (reader.fd_ < 0) return SystemError(Printable(path) + ": cannot be opened", errno);
  if (::fstat(reader.fd_, &info) != 0) return SystemError(Printable(path) + ": cannot be examined", errno);
  TALLY_RETURN_IF_ERROR(CheckRegular(path, info));
  if (info.st_size <= 0) return BadInput(Printable(path) + ": the file is empty");
  reader.size_ = static_cast<uint64_t>(info.st_size);
  reader.stamp_ = StampOf(info);
  TALLY_RETURN_IF_ERROR(CheckNoLfsPointer(reader));
  return reader;
}

FileReader::FileReader(FileReader&& o) noexcept
    : fd_(std::exchange(o.fd_, -1)), size_(std::exchange(o.size_, 0)), stamp_(o.stamp_), path_(std::move(o.path_)) {}

FileReader& FileReader::operator=(FileReader&& o) noexcept {
  std::swap(fd_, o.fd_);
  std::swap(size_, o.size_);
  std::swap(stamp_, o.stamp_);
  std::swap(path_, o.path_);
  return *this;
}

Status FileReader::CheckUnchanged(const InventoryFile& file) const {
  if (fd_ < 0) return InternalError("FileReader::CheckUnchanged on a reader without a file");
  struct stat info;
  if (::fstat(fd_, &info) != 0) return SystemError(Printable(path_) + ": cannot be examined", errno);
  if (!file.stamp || (static_cast<uint64_t>(info.st_size) == file.size && StampOf(info) == *file.stamp)) return {};
  return BadInput(Printable(path_) + ": has changed since its header was read");
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

Status FileReader::ReadAt(uint64_t offset, std::span<uint8_t> out) const {
  if (fd_ < 0) return InternalError("FileReader::ReadAt on a reader without a file");
  if (offset > size_ || out.size() > size_ - offset) {
    return BadInput(Printable(path_) + ": bytes " + std::to_string(offset) + " to " + std::to_string(offset) + "+" +
                    std::to_string(out.size()) + " were asked for, the file has " + std::to_string(size_));
  }
  size_t done = 0;
  while (done < out.size()) {
    // Linux moves at most 2^31 - 4096 bytes a call; macOS refuses more than 2^31 - 1.
    const size_t want = std::min<size_t>(out.size() - done, size_t{1} << 30);
    const ssize_t got = ::pread(fd_, out.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemError(Printable(path_) + ": cannot be read at byte " + std::to_string(offset + done), errno);
    }
    if (got == 0) {
      return BadInput(Printable(path_) + ": the file has become shorter: it had " + std::to_string(size_) +
                      " bytes when it was opened and ends before byte " + std::to_string(offset + done + 1) + " now");
    }
    done += static_cast<size_t>(got);
  }
  return {};
}

void FileReader::Forget(uint64_t offset, uint64_t size) const {
#ifdef POSIX_FADV_DONTNEED
  if (fd_ >= 0) (void)::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_DONTNEED);  // a wish
#endif
}

Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes) {
  TALLY_ASSIGN_OR_RETURN(const FileReader file, FileReader::Open(path));
  if (file.size() > max_bytes) {
    return BadInput(Printable(path) + ": " + std::to_string(file.size()) + " bytes; the limit for this file is " +
                    std::to_string(max_bytes));
  }
  std::string text(file.size(), '\0');
  TALLY_RETURN_IF_ERROR(file.ReadAt(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

}  // namespace tally
