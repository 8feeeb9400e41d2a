// SPDX-License-Identifier: Apache-2.0
// The memory that a part of the address space takes.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace tally {

// The resident bytes of the mappings that overlap [begin, end), from /proc/self/smaps. Exact, and without what the process
// or a sanitizer touches elsewhere: VmRSS is a sum of counters that may be 64 pages off a core.
inline uint64_t ResidentIn(const void* begin, const void* end) {
  const auto first = reinterpret_cast<uintptr_t>(begin), last = reinterpret_cast<uintptr_t>(end);
  std::ifstream file("/proc/self/smaps");
  uint64_t sum = 0, kib = 0;
  uintptr_t from = 0, to = 0;
  bool overlaps = false;
  for (std::string line; std::getline(file, line);) {
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      overlaps = from < last && to > first;
    } else if (overlaps && std::sscanf(line.c_str(), "Rss: %" SCNu64 " kB", &kib) == 1) {
      sum += kib << 10;
    }
  }
  return sum;
}

}  // namespace tally
