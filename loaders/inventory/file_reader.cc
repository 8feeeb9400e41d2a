// SPDX-License-Identifier: Apache-2.0
// FileReader: all reading of files goes through here (POSIX open, fstat, pread; Linux: O_DIRECT, statx, mincore, preadv2).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

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

constexpr uint64_t kPiece = uint64_t{1} << 20;

struct FreeMemory {
  void operator()(uint8_t* p) const { std::free(p); }
};

int OpenFile(const char* path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

#ifdef O_DIRECT
// What offsets, sizes and addresses of direct reads are multiples of; 0: the file has none.
uint64_t DirectAlignment([[maybe_unused]] int fd) {
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0) {
    const uint64_t align = std::max<uint64_t>(info.stx_dio_offset_align, info.stx_dio_mem_align);
    if (info.stx_dio_offset_align == 0 || (align & (align - 1)) != 0 || align > kPiece) return 0;
    return std::max<uint64_t>(align, 4096);
  }
#endif
  return 4096;
}
#endif

#ifdef __linux__
// Reads a byte here and there that the page cache has: the share of those that it had; 1 if it cannot be asked. The system fetches a page
// that it does not have, so that the places differ from call to call.
double SampleOfCache([[maybe_unused]] int fd, [[maybe_unused]] uint64_t begin, [[maybe_unused]] uint64_t end) {
#ifdef RWF_NOWAIT
  constexpr uint64_t kPlaces = 4;
  int held = 0;
  for (uint64_t i = 0; i < kPlaces; ++i) {
    const auto now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    const uint64_t part = (end - begin) / kPlaces,
                   place = begin + part * i + (part == 0 ? 0 : (now * 0x9e3779b97f4a7c15u >> 20) % part);
    uint8_t byte;
    struct iovec to = {&byte, 1};
    const ssize_t got = ::preadv2(fd, &to, 1, static_cast<off_t>(place), RWF_NOWAIT);
    if (got < 0 && errno != EAGAIN) return 1;
    held += got > 0 ? 1 : 0;
  }
  return static_cast<double>(held) / kPlaces;
#else
  return 1;
#endif
}
#endif

}  // namespace

// A second descriptor of the file, for reads past the page cache.
struct FileReader::Direct {
  ~Direct() {
    if (fd >= 0) ::close(fd);
  }
  std::once_flag opened, looked;
  int fd = -1;
  uint64_t alignment = 4096;
  std::atomic<bool> refused{false};
  std::vector<bool> held;  // refused: pieces of which the page cache held something at the first read
};

FileReader::FileReader() : direct_(std::make_unique<Direct>()) {}

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
  reader.fd_ = OpenFile(path.c_str(), 0);
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
    : fd_(std::exchange(o.fd_, -1)),
      direct_(std::move(o.direct_)),
      size_(std::exchange(o.size_, 0)),
      stamp_(o.stamp_),
      path_(std::move(o.path_)) {}

FileReader& FileReader::operator=(FileReader&& o) noexcept {
  std::swap(fd_, o.fd_);
  std::swap(direct_, o.direct_);
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

Status FileReader::CheckRange(uint64_t offset, uint64_t size) const {
  if (fd_ < 0) return InternalError("reading by a FileReader without a file");
  if (offset <= size_ && size <= size_ - offset) return {};
  return BadInput(Printable(path_) + ": bytes " + std::to_string(offset) + " to " + std::to_string(offset) + "+" +
                  std::to_string(size) + " were asked for, the file has " + std::to_string(size_));
}

Status FileReader::ReadError(uint64_t offset, int error) const {
  return SystemError(Printable(path_) + ": cannot be read at byte " + std::to_string(offset), error);
}

Status FileReader::HasShrunk(uint64_t end) const {
  // Of several readers, the first that says so may have met the end or a place behind it.
  struct stat info;
  if (::fstat(fd_, &info) == 0) end = std::min(end, static_cast<uint64_t>(info.st_size));
  return BadInput(Printable(path_) + ": the file has become shorter: it had " + std::to_string(size_) +
                  " bytes when it was opened and ends before byte " + std::to_string(end + 1) + " now");
}

Status FileReader::ReadAt(uint64_t offset, std::span<uint8_t> out) const {
  TALLY_RETURN_IF_ERROR(CheckRange(offset, out.size()));
  size_t done = 0;
  while (done < out.size()) {
    // Linux moves at most 2^31 - 4096 bytes a call; macOS refuses more than 2^31 - 1.
    const size_t want = std::min<size_t>(out.size() - done, size_t{1} << 30);
    const ssize_t got = ::pread(fd_, out.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return ReadError(offset + done, errno);
    }
    if (got == 0) return HasShrunk(offset + done);
    done += static_cast<size_t>(got);
  }
  return {};
}

const FileReader::Direct& FileReader::OpenDirect() const {
  Direct& direct = *direct_;
  std::call_once(direct.opened, [&] {
    const auto open = [&](const std::string& path) {
#ifdef O_DIRECT
      const int fd = OpenFile(path.c_str(), O_DIRECT);
#else
      const int fd = OpenFile(path.c_str(), 0);
#endif
      struct stat info;
      if (fd < 0 || (::fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_dev) == stamp_.device &&
                     static_cast<uint64_t>(info.st_ino) == stamp_.inode)) {
        return fd;
      }
      ::close(fd);
      return -1;
    };
    direct.fd = open("/proc/self/fd/" + std::to_string(fd_));  // also of a file that was renamed or deleted meanwhile
    if (direct.fd < 0) direct.fd = open(path_);
#if defined(O_DIRECT)
    const uint64_t alignment = direct.fd >= 0 ? DirectAlignment(direct.fd) : 0;
    if (alignment > 0) direct.alignment = alignment;
    direct.refused = alignment == 0;
#elif defined(F_NOCACHE)
    direct.refused = direct.fd < 0 || ::fcntl(direct.fd, F_NOCACHE, 1) != 0;
#else
    direct.refused = true;
#endif
  });
  return direct;
}

uint64_t FileReader::direct_alignment() const { return fd_ >= 0 ? OpenDirect().alignment : 4096; }

bool FileReader::direct() const { return fd_ >= 0 && !OpenDirect().refused.load(std::memory_order_relaxed); }

void FileReader::RefuseDirect() const {
  (void)OpenDirect();
  direct_->refused = true;
}

// Reads at least the first `bytes`. Offset, address and room are whole pages; the file may end within the last one. Success if the file
// system refuses: it is noted.
Status FileReader::ReadPages(uint64_t offset, std::span<uint8_t> out, uint64_t bytes) const {
  const uint64_t align = direct_->alignment;
  uint64_t done = 0;
  while (done < bytes) {
    const size_t want = std::min<size_t>(out.size() - done, size_t{1} << 30);
    const ssize_t got = ::pread(direct_->fd, out.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno != EINVAL) return ReadError(offset + done, errno);
      direct_->refused = true;
      return {};
    }
    if (done + static_cast<uint64_t>(got) >= bytes) return {};
    const uint64_t whole = static_cast<uint64_t>(got) / align * align;
    if (whole == 0) return HasShrunk(offset + done + static_cast<uint64_t>(got));
    done += whole;
  }
  return {};
}

// For file systems that refuse.
Status FileReader::ReadAndDrop(uint64_t offset, std::span<uint8_t> out) const {
  std::call_once(direct_->looked, [&] {
    for (uint64_t at = 0; at < size_; at += kPiece) direct_->held.push_back(CachedBytes(at, std::min(kPiece, size_ - at)) > 0);
  });
  TALLY_RETURN_IF_ERROR(ReadAt(offset, out));
  for (uint64_t at = offset; at < offset + out.size();) {
    const uint64_t end = std::min(at / kPiece * kPiece + kPiece, offset + out.size());
    if (!direct_->held[at / kPiece]) Forget(at, end - at);
    at = end;
  }
  return {};
}

Status FileReader::ReadDirect(uint64_t offset, std::span<uint8_t> out) const {
  TALLY_RETURN_IF_ERROR(CheckRange(offset, out.size()));
  const Direct& direct = OpenDirect();
  const uint64_t align = direct.alignment;
  std::unique_ptr<uint8_t, FreeMemory> buffer;
  uint64_t room = 0;
  for (uint64_t done = 0; done < out.size();) {
    const uint64_t at = offset + done, left = out.size() - done;
    if (direct.refused.load(std::memory_order_relaxed)) return ReadAndDrop(at, out.subspan(done));
    const bool in_place = at % align == 0 && left >= align && reinterpret_cast<uintptr_t>(out.data() + done) % align == 0;
    const uint64_t before = at % align;
    if (!in_place && buffer == nullptr) {
      room = std::min(kPiece, (before + left + align - 1) / align * align);
      buffer.reset(static_cast<uint8_t*>(std::aligned_alloc(align, room)));
      if (buffer == nullptr) return ReadAndDrop(at, out.subspan(done));
    }
    // Up to the first page that is read in place, if there is one.
    uint64_t n = in_place ? left / align * align : std::min(room - before, left);
    if (!in_place && before != 0 && reinterpret_cast<uintptr_t>(out.data() + done) % align == before)
      n = std::min(n, align - before);
    const std::span<uint8_t> pages{buffer.get(), in_place ? 0 : (before + n + align - 1) / align * align};
    TALLY_RETURN_IF_ERROR(in_place ? ReadPages(at, out.subspan(done, n), n) : ReadPages(at - before, pages, before + n));
    if (direct.refused.load(std::memory_order_relaxed)) continue;
    if (!in_place) std::memcpy(out.data() + done, buffer.get() + before, n);
    done += n;
  }
  return {};
}

void FileReader::Forget(uint64_t offset, uint64_t size) const {
#ifdef POSIX_FADV_DONTNEED
  if (fd_ >= 0) (void)::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_DONTNEED);  // a wish
#endif
}

uint64_t FileReader::CachedBytes(uint64_t offset, uint64_t size) const {
  if (fd_ < 0 || offset >= size_ || size == 0) return 0;
#ifdef __linux__
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)), begin = offset / page * page;
  const uint64_t end = offset + std::min(size, size_ - offset);
  // Only who owns the file or may write to it is told; others hear that all of it is held.
  struct stat info;
  const bool own =
      ::fstat(fd_, &info) == 0 && (info.st_uid == ::geteuid() || ::faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) == 0);
  if (!own) return static_cast<uint64_t>(SampleOfCache(fd_, offset, end) * static_cast<double>(end - offset));
  // The mapping is never touched, so that a file that shrinks cannot end the process.
  void* const map = ::mmap(nullptr, end - begin, PROT_NONE, MAP_SHARED, fd_, static_cast<off_t>(begin));
  if (map == MAP_FAILED) return 0;
  std::vector<unsigned char> pages((end - begin + page - 1) / page);
  const bool known = ::mincore(map, end - begin, pages.data()) == 0;
  ::munmap(map, end - begin);
  if (!known) return 0;
  uint64_t held = 0;
  for (const unsigned char p : pages) held += p & 1;
  return std::min(end - offset, held * page);
#else
  return 0;
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
