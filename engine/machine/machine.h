// SPDX-License-Identifier: Apache-2.0
// Properties of the machine (cores, memory), and all calls of the operating system: POSIX stays in machine/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace tally {

int AvailableCores();             // by affinity mask, cgroup quota and LimitAvailableCores (cores.h); at least 1
int CoresOfControlGroup();        // by cgroup quota alone; INT_MAX: no quota
std::string ProcessorName();      // "AMD EPYC 9R14", as the system has it; "" where unknown
uint64_t TotalMemoryBytes();      // of the machine, or the cgroup's limit if lower
uint64_t AvailableMemoryBytes();  // that can be had now without swapping (MemAvailable and cgroup limits)
uint64_t CacheBytes();            // of all caches of data of all cores, shared ones once; 0: unknown
uint64_t PeakResidentBytes();     // of this process (VmHWM)
uint64_t ResidentBytes();         // of this process now
size_t SystemPageBytes();         // of a page of memory
double MonotonicSeconds();
void SleepFor(double seconds);  // or until a signal comes
std::string ModuleFile();       // the program or shared library that this function is part of, an absolute path; "" where unknown
enum class Stream : uint8_t { kOutput, kError };
bool IsTerminal(Stream stream);
int TerminalWidth(Stream stream, int fallback);  // columns; `fallback` if the stream is no terminal

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Anonymous, zero-filled, page-aligned memory. `huge` asks for transparent huge pages.
class AnonymousMemory {
 public:
  AnonymousMemory() = default;
  static Result<AnonymousMemory> Allocate(size_t bytes, bool huge);
  void RefuseHugePages();  // whatever the system does by itself; before the memory is used
  // Makes huge pages of small ones where the system could not give huge ones when they were first written: it moves what stands there, and
  // what stands in the way. From Linux 6.1 on; else nothing happens.
  void CollapseToHugePages();
  // Reserves addresses that are aligned for huge pages. A page takes memory when it is first written, and none is set aside before. Huge
  // pages are refused until AllowHugePages. The ranges of both functions are whole pages.
  static Result<AnonymousMemory> Reserve(size_t bytes);
  void AllowHugePages(size_t offset, size_t bytes);
  // Gives the memory of a range back to the system; it reads as zero, and huge pages are refused again.
  void Return(size_t offset, size_t bytes);
  AnonymousMemory(AnonymousMemory&& o) noexcept;
  AnonymousMemory& operator=(AnonymousMemory&& o) noexcept;
  ~AnonymousMemory();
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static Result<AnonymousMemory> Map(size_t bytes, size_t align, int flags);

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Zero-filled, page-aligned memory at two addresses: what is written at one is read at the other. Protecting pages of one view leaves
// those of the other open, so that they can be filled while the first is watched (page_watch.h).
class MirroredMemory {
 public:
  MirroredMemory() = default;
  static Result<MirroredMemory> Allocate(size_t bytes);  // kNoRoom: the system refuses
  MirroredMemory(MirroredMemory&& o) noexcept;
  MirroredMemory& operator=(MirroredMemory&& o) noexcept;
  ~MirroredMemory();
  uint8_t* data() const { return data_; }
  const uint8_t* mirror() const { return mirror_; }
  size_t size() const { return size_; }

 private:
  uint8_t *data_ = nullptr, *mirror_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tally
