// SPDX-License-Identifier: Apache-2.0
// Which cores this process may use, and shares of them for processes that run side by side.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/status.h"

namespace tally {

// A bit a core, by the system's numbers.
class CoreSet {
 public:
  static constexpr int kMax = 8192;  // the most that a Linux kernel is built for
  bool has(int core) const { return (words_[static_cast<size_t>(core / 64)] >> (core % 64) & 1) != 0; }
  void Add(int core) { words_[static_cast<size_t>(core / 64)] |= uint64_t{1} << (core % 64); }
  int count() const;
  std::vector<int> cores() const;  // ascending
  bool operator==(const CoreSet&) const = default;

 private:
  std::array<uint64_t, kMax / 64> words_{};
};

CoreSet OwnCores();  // the affinity mask of the calling thread; empty if unknown
// What the processes that started this one may use, up to the launcher's daemon (`daemons` are its names): a launcher binds what it starts,
// not itself. Without such a process: all that the control group allows.
CoreSet CoresOfLauncher(std::span<const char* const> daemons);

// Hardware threads of one physical core together; cores of one NUMA node beside each other.
using PhysicalCores = std::vector<std::vector<int>>;
PhysicalCores PhysicalCoresOf(const CoreSet& set);
// Share k of n, contiguous. With at least as many physical cores as shares, whole cores; else single hardware threads. With more shares
// than hardware threads, each share has one, and shares overlap.
CoreSet ShareOfCores(const PhysicalCores& cores, int k, int n);

// Moves every thread of this process to these cores. Errors of the system.
Status UseCores(const CoreSet& set);
// AvailableCores() is at most this from now on: a share of a control group's quota, which no mask shows. 0: no limit.
void LimitAvailableCores(int cores);
int CoreLimit();

}  // namespace tally
