// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/machine.h"

#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/system_error.h"
#include "engine/machine/cores.h"

// Linux. What is asked of /proc and /sys is documented in proc(5), cgroups(7) and the kernel's cgroup-v2.rst.

namespace tally {
namespace {

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return n;
}

// A file that holds one number; nothing if it is absent or says "max".
std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadText(path);
  return text ? ParseNumber(*text) : std::nullopt;
}

// The number after `key` at the start of a line, as /proc/meminfo, /proc/self/status and memory.stat are
// written.
std::optional<uint64_t> Field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (std::string_view(line).substr(0, key.size()) == key) return ParseNumber(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

std::optional<uint64_t> KibField(const char* path, std::string_view key) {
  const std::optional<std::string> text = ReadText(path);
  const std::optional<uint64_t> kib = text ? Field(*text, key) : std::nullopt;
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

// Without /proc (a bare chroot), system calls tell less: memory that only caches hold counts as used (sysinfo(2)), and of this process's
// memory only the peak is known (getrusage(2)).
struct MachineMemory {
  uint64_t total = 0, free = 0;
};
MachineMemory SystemMemory() {
  struct sysinfo info = {};
  if (::sysinfo(&info) != 0) return {};
  const uint64_t unit = info.mem_unit;
  return {info.totalram * unit, (info.freeram + info.bufferram) * unit};
}
uint64_t PeakResident() {
  struct rusage usage = {};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

// The directories of this process's control group for `controller` and its ancestors, innermost first; every
// one of them can carry a limit. In a container the listed path may not exist below the mount: then its root
// is the container's own.
std::vector<std::string> CgroupDirs(std::string_view controller) {
  std::vector<std::string> dirs;
  const std::optional<std::string> text = ReadText("/proc/self/cgroup");
  if (!text) return dirs;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {  // "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1)
    const size_t a = line.find(':');
    const size_t b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos) continue;
    const std::string names = "," + line.substr(a + 1, b - a - 1) + ",";
    const bool v2 = names == ",,";
    if (!v2 && names.find("," + std::string(controller) + ",") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + std::string(controller);
    for (std::string path = line.substr(b + 1);; path.erase(path.rfind('/'))) {
      dirs.push_back(path == "/" ? root : root + path);
      if (path.find('/') == std::string::npos || path == "/") break;
    }
  }
  return dirs;
}

// CPUs that the control groups let us use at once, rounded down: a team that is throttled while it spins
// stalls.
int CgroupCores(int cores) {
  for (const std::string& dir : CgroupDirs("cpu")) {
    std::optional<uint64_t> quota, period;
    if (const std::optional<std::string> max = ReadText(dir + "/cpu.max")) {  // "150000 100000" or "max 100000"
      const size_t space = max->find(' ');
      quota = ParseNumber(*max);
      if (space != std::string::npos) period = ParseNumber(std::string_view(*max).substr(space));
    } else {
      quota = ReadNumber(dir + "/cpu.cfs_quota_us");  // -1, which does not parse: no limit
      period = ReadNumber(dir + "/cpu.cfs_period_us");
    }
    if (quota && period && *period > 0) {
      cores = static_cast<int>(std::min<uint64_t>(cores, std::max<uint64_t>(1, *quota / *period)));
    }
  }
  return cores;
}

struct CgroupMemory {
  uint64_t limit = UINT64_MAX;  // the lowest of all ancestors
  uint64_t free = UINT64_MAX;   // the least room under any of those limits; clean file pages can be dropped, so they count
};

CgroupMemory ReadCgroupMemory() {
  CgroupMemory memory;
  for (const std::string& dir : CgroupDirs("memory")) {
    std::optional<uint64_t> limit = ReadNumber(dir + "/memory.max");
    std::optional<uint64_t> used = ReadNumber(dir + "/memory.current");
    if (!used) {
      limit = ReadNumber(dir + "/memory.limit_in_bytes");  // v1; no limit is a number near 2^63
      used = ReadNumber(dir + "/memory.usage_in_bytes");
    }
    if (!limit) continue;
    memory.limit = std::min(memory.limit, *limit);
    if (!used) continue;
    const std::string stat = ReadText(dir + "/memory.stat").value_or("");
    const uint64_t file = Field(stat, "inactive_file ").value_or(0) + Field(stat, "active_file ").value_or(0);
    const uint64_t held = *used > file ? *used - file : 0;
    memory.free = std::min(memory.free, *limit > held ? *limit - held : 0);
  }
  return memory;
}

}  // namespace

int CoresOfControlGroup() { return CgroupCores(INT_MAX); }

int AvailableCores() {
  int cores = 0;
  for (size_t cpus = 1024; cores == 0 && cpus <= 65536; cpus *= 2) {  // the kernel's mask may be wider than the default
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, bytes, set) == 0) cores = CPU_COUNT_S(bytes, set);
    const bool too_small = cores == 0 && errno == EINVAL;
    CPU_FREE(set);
    if (!too_small) break;
  }
  if (cores == 0) cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  cores = CgroupCores(cores);
  return CoreLimit() > 0 ? std::min(cores, CoreLimit()) : cores;
}

uint64_t TotalMemoryBytes() {
  return std::min(KibField("/proc/meminfo", "MemTotal:").value_or(SystemMemory().total), ReadCgroupMemory().limit);
}

uint64_t AvailableMemoryBytes() {
  return std::min(KibField("/proc/meminfo", "MemAvailable:").value_or(SystemMemory().free), ReadCgroupMemory().free);
}

uint64_t CacheBytes() {  // Documentation/ABI/testing/sysfs-devices-system-cpu: cpuN/cache/indexM
  namespace fs = std::filesystem;
  uint64_t bytes = 0;
  std::set<std::string> seen;  // level, type and cores of a cache
  std::error_code error;
  for (auto cpu = fs::directory_iterator("/sys/devices/system/cpu", error); !error && cpu != fs::directory_iterator();
       cpu.increment(error)) {
    std::error_code none;  // an entry that is no core has no caches
    for (auto at = fs::directory_iterator(cpu->path() / "cache", none); !none && at != fs::directory_iterator();
         at.increment(none)) {
      const auto text = [&](const char* name) { return ReadText((at->path() / name).string()).value_or(""); };
      const std::string type = text("type");
      if (type.empty() || type.starts_with("Instruction")) continue;
      if (!seen.insert(text("level") + type + text("shared_cpu_list")).second) continue;
      bytes += ReadNumber((at->path() / "size").string()).value_or(0) * 1024;  // "48K"
    }
  }
  return bytes;
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  std::string implementer;
  std::vector<std::string> parts;                      // Arm's: of big and of little cores
  for (std::string line; std::getline(info, line);) {  // "model name\t: AMD EPYC 9R14"
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) implementer = value;
    if (line.starts_with("CPU part") && std::find(parts.begin(), parts.end(), value) == parts.end()) parts.push_back(value);
  }
  if (parts.empty()) return "";
  std::string name = "Arm, implementer " + implementer + ", part ";
  for (size_t i = 0; i < parts.size(); ++i) name += (i == 0 ? "" : " and ") + parts[i];
  return name;
}

uint64_t PeakResidentBytes() { return KibField("/proc/self/status", "VmHWM:").value_or(PeakResident()); }

uint64_t ResidentBytes() { return KibField("/proc/self/status", "VmRSS:").value_or(PeakResident()); }

size_t SystemPageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

std::string ModuleFile() {
  // "start-end permissions offset device inode   path" (proc(5)).
  const auto here = reinterpret_cast<uintptr_t>(&ModuleFile);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t start = 0, end = 0;
    const char* const last = line.data() + line.size();
    const auto [dash, bad_start] = std::from_chars(line.data(), last, start, 16);
    if (bad_start != std::errc() || dash == last) continue;
    if (std::from_chars(dash + 1, last, end, 16).ec != std::errc() || here < start || here >= end) continue;
    const size_t path = line.find('/');
    return path != line.npos ? line.substr(path) : "";
  }
  return "";
}

double MonotonicSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void SleepFor(double seconds) {
  const auto nanoseconds = static_cast<int64_t>(seconds * 1e9);
  const timespec time = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  ::nanosleep(&time, nullptr);
}

namespace {
int Descriptor(Stream stream) { return stream == Stream::kOutput ? STDOUT_FILENO : STDERR_FILENO; }
}  // namespace

bool IsTerminal(Stream stream) { return isatty(Descriptor(stream)) == 1; }

int TerminalWidth(Stream stream, int fallback) {
  winsize size = {};
  if (ioctl(Descriptor(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return fallback;
  return size.ws_col;
}

// `flags`: of mmap, besides those of all anonymous memory.
Result<AnonymousMemory> AnonymousMemory::Map(size_t bytes, size_t align, int flags) {
  AnonymousMemory memory;
  if (bytes == 0) return memory;
  const auto no_memory = [&] {
    return NoRoom("not enough memory: the system refused " + std::to_string(bytes) + " bytes (" + SystemErrorText(errno) + ")");
  };
  const size_t page = SystemPageBytes();
  if (bytes > SIZE_MAX / 2) {
    errno = ENOMEM;
    return no_memory();
  }
  // Map more than needed and give the ends back.
  const size_t length = (bytes + page - 1) / page * page;
  const size_t mapped = length + (align - page);
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (p == MAP_FAILED) return no_memory();
  uint8_t* const begin = static_cast<uint8_t*>(p);
  const size_t head = (align - reinterpret_cast<uintptr_t>(begin) % align) % align;
  const size_t tail = mapped - head - length;
  if (head > 0) munmap(begin, head);
  if (tail > 0) munmap(begin + head + length, tail);
  memory.data_ = begin + head;
  memory.size_ = bytes;
  return memory;
}

Result<AnonymousMemory> AnonymousMemory::Allocate(size_t bytes, bool huge) {
  // Only whole aligned ranges can become huge pages.
  TALLY_ASSIGN_OR_RETURN(AnonymousMemory memory,
                         Map(bytes, huge ? std::max(kHugePageBytes, SystemPageBytes()) : SystemPageBytes(), 0));
  if (huge) memory.AllowHugePages(0, bytes);
  return memory;
}

Result<AnonymousMemory> AnonymousMemory::Reserve(size_t bytes) {
  TALLY_ASSIGN_OR_RETURN(AnonymousMemory memory, Map(bytes, std::max(kHugePageBytes, SystemPageBytes()), MAP_NORESERVE));
  memory.RefuseHugePages();
  return memory;
}

// Huge pages are a wish: kernels without them refuse it, and need not be told.
void AnonymousMemory::AllowHugePages(size_t offset, size_t bytes) {
  if (bytes > 0) (void)madvise(data_ + offset, bytes, MADV_HUGEPAGE);
}

void AnonymousMemory::Return(size_t offset, size_t bytes) {
  if (madvise(data_ + offset, bytes, MADV_DONTNEED) != 0) std::memset(data_ + offset, 0, bytes);  // locked memory stays
  (void)madvise(data_ + offset, bytes, MADV_NOHUGEPAGE);
}

void AnonymousMemory::RefuseHugePages() {
  if (data_ != nullptr) (void)madvise(data_, size_, MADV_NOHUGEPAGE);  // kernels without huge pages refuse, and need not be told
}

void AnonymousMemory::CollapseToHugePages() {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack: madvise(2)
  const size_t whole = size_ / kHugePageBytes * kHugePageBytes;
  if (whole > 0) (void)madvise(data_, whole, kCollapse);
}

AnonymousMemory::AnonymousMemory(AnonymousMemory&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

AnonymousMemory& AnonymousMemory::operator=(AnonymousMemory&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

AnonymousMemory::~AnonymousMemory() {
  if (data_ != nullptr) munmap(data_, size_);  // the kernel rounds the length up to whole pages, as the mapping was
}

Result<MirroredMemory> MirroredMemory::Allocate(size_t bytes) {
  MirroredMemory memory;
  if (bytes == 0) return memory;
  const auto refused = [&] {
    return NoRoom("not enough memory: the system refused " + std::to_string(bytes) + " bytes (" + SystemErrorText(errno) + ")");
  };
  const int file = memfd_create("tally", MFD_CLOEXEC);  // in memory, without a name that others see
  if (file < 0) return refused();
  const auto map = [&] {
    void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? nullptr : static_cast<uint8_t*>(p);
  };
  memory.size_ = bytes;
  const bool mapped = bytes <= SIZE_MAX / 2 && ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
                      (memory.data_ = map()) != nullptr && (memory.mirror_ = map()) != nullptr;
  const Status status = mapped ? Status() : refused();
  close(file);
  if (!status.ok()) return status;
  return memory;
}

MirroredMemory::MirroredMemory(MirroredMemory&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), mirror_(std::exchange(o.mirror_, nullptr)), size_(std::exchange(o.size_, 0)) {}

MirroredMemory& MirroredMemory::operator=(MirroredMemory&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(mirror_, o.mirror_);
  std::swap(size_, o.size_);
  return *this;
}

MirroredMemory::~MirroredMemory() {
  for (uint8_t* const view : {data_, mirror_}) {
    if (view != nullptr) munmap(view, size_);
  }
}

}  // namespace tally
