// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/disk_rate.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/base/mix.h"
#include "engine/base/system_error.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"

#ifndef O_DIRECT
#define O_DIRECT 0  // macOS has F_NOCACHE
#endif

namespace tally {
namespace {

constexpr uint64_t kFewestRequests = 16, kSector = 4096;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string At(const std::string& path, const char* what) { return "the disk's rate: " + Printable(path) + ": " + what; }

int OpenRetried(const char* path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = ::open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Whether reads go past the page cache from now on.
bool SetDirect(int fd, bool direct) {
  if (O_DIRECT == 0) return false;
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

void GiveUp(int fd) {
#ifdef POSIX_FADV_DONTNEED
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#else
  (void)fd;
#endif
}

// Without a name, so that nothing is left of it.
Result<Descriptor> NamelessFile(const std::string& directory) {
#ifdef O_TMPFILE
  if (const int fd = OpenRetried(directory.c_str(), O_TMPFILE | O_RDWR, 0600); fd >= 0) return Descriptor(fd);
#endif
  std::string name = directory + "/.tally-disk-XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd < 0) return SystemError(At(directory, "no file can be made here"), errno);
  ::unlink(name.c_str());
  return Descriptor(fd);
}

// Fills it with bytes that no disk can make smaller, as long as time and bytes last. The bytes that it has then.
Result<uint64_t> Fill(const Descriptor& file, const std::string& directory, const DiskProbe& probe, uint8_t* buffer) {
  auto* const words = reinterpret_cast<uint64_t*>(buffer);
  for (uint64_t i = 0; i < probe.request / sizeof(uint64_t); ++i) words[i] = SplitMix64(i * kSplitMix64Step);
  (void)SetDirect(file.get(), true);
  const double end = MonotonicSeconds() + probe.seconds;
  uint64_t size = 0;
  while (size + probe.request <= probe.bytes && (size < kFewestRequests * probe.request || MonotonicSeconds() < end)) {
    words[0] = size;  // no two requests are alike
    const ssize_t put = ::pwrite(file.get(), buffer, probe.request, static_cast<off_t>(size));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && SetDirect(file.get(), false)) {
      const ssize_t again = ::pwrite(file.get(), buffer, probe.request, static_cast<off_t>(size));
      if (again == static_cast<ssize_t>(probe.request)) {
        size += probe.request;
        continue;
      }
    }
    if (put != static_cast<ssize_t>(probe.request)) {
      if (size >= kFewestRequests * probe.request) break;  // what there is will do
      return SystemError(At(directory, "cannot be written"), put < 0 ? errno : ENOSPC);
    }
    size += probe.request;
  }
  if (size < kFewestRequests * probe.request) return InternalError("a disk's rate of less than 16 requests");
  ::fsync(file.get());
  return size;
}

// One read of a whole request. 0, or an error's number; EIO where the file ends before.
int ReadRequest(int fd, uint8_t* buffer, uint64_t bytes, uint64_t offset) {
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(fd, buffer + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EIO;
    done += static_cast<uint64_t>(got);
  }
  return 0;
}

Result<DiskRate> Measure(int fd, const std::string& path, uint64_t size, const DiskProbe& probe, uint8_t* buffers) {
  const uint64_t requests = size / probe.request;
  DiskRate rate;
  rate.direct = SetDirect(fd, true);
  if (const int error = ReadRequest(fd, buffers, probe.request, 0); rate.direct && error != 0) {
    rate.direct = false;
    (void)SetDirect(fd, false);
  }
  if (!rate.direct) GiveUp(fd);
  Team team(probe.readers);
  std::atomic<uint64_t> next{0}, read{0};
  std::atomic<int> failed{0};
  const uint64_t most = rate.direct ? probe.bytes / probe.request : std::min(probe.bytes / probe.request, requests);  // read once
  const double start = MonotonicSeconds(), end = start + probe.seconds;
  auto body = [&](int thread, int64_t, int64_t) {
    uint8_t* const buffer = buffers + static_cast<uint64_t>(thread) * probe.request;
    while (failed.load() == 0 && MonotonicSeconds() < end) {
      const uint64_t i = next.fetch_add(1);
      if (i >= most) return;
      if (const int error = ReadRequest(fd, buffer, probe.request, i % requests * probe.request); error != 0) {
        failed.store(error);
        return;
      }
      read.fetch_add(probe.request);
    }
  };
  team.RunEach(body);
  const double seconds = MonotonicSeconds() - start;
  if (const int error = failed.load(); error != 0) return SystemError(At(path, "cannot be read"), error);
  rate.bytes = read.load();
  rate.bytes_per_second = static_cast<double>(rate.bytes) / std::max(seconds, 1e-9);
  return rate;
}

}  // namespace

Result<DiskRate> MeasureDisk(const std::string& path, const DiskProbe& probe) {
  if (probe.request == 0 || probe.request % kSector != 0 || probe.readers < 1 || probe.readers > 64 ||
      probe.bytes / kFewestRequests < probe.request) {
    return InternalError("the disk's rate: a probe that cannot be made");
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return SystemError(At(path, "cannot be opened"), errno);
  const bool directory = S_ISDIR(info.st_mode);
  if (!directory && !S_ISREG(info.st_mode)) return BadInput(At(path, "neither a file nor a directory"));
  TALLY_ASSIGN_OR_RETURN(const AnonymousMemory memory,
                         AnonymousMemory::Allocate(static_cast<uint64_t>(probe.readers) * probe.request, /*huge=*/true));
  std::fill_n(memory.data(), memory.size(), uint8_t{0});
  if (directory) {
    TALLY_ASSIGN_OR_RETURN(const Descriptor file, NamelessFile(path));
    TALLY_ASSIGN_OR_RETURN(const uint64_t size, Fill(file, path, probe, memory.data()));
    TALLY_ASSIGN_OR_RETURN(DiskRate rate, Measure(file.get(), path, size, probe, memory.data()));
    rate.written = true;
    return rate;
  }
  const Descriptor file(OpenRetried(path.c_str(), O_RDONLY | O_NONBLOCK));
  if (file.get() < 0) return SystemError(At(path, "cannot be opened"), errno);
  const auto size = static_cast<uint64_t>(std::max<off_t>(info.st_size, 0));
  if (size < kFewestRequests * probe.request) return BadInput(At(path, "too small to measure a disk by"));
  return Measure(file.get(), path, size, probe, memory.data());
}

std::optional<uint64_t> FileSystemId(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ? std::optional(static_cast<uint64_t>(info.st_dev)) : std::nullopt;
}

}  // namespace tally
