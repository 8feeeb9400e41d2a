// SPDX-License-Identifier: Apache-2.0
// Roofs of a number of threads, measured between the pieces of a run; internal to the studies.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "counters/cost/cost.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"
#include "engine/machine/roofs.h"
#include "engine/studies/speed.h"

namespace tally {

double Median(std::vector<double> x);  // 0 of nothing

// Memory to measure the bandwidth on, resident.
struct RoofMemory {
  AnonymousMemory own;
  std::span<const uint8_t> bytes;
};
// `wanted` bytes of `weights`, if there are so many: on the pages that kernels read, which may not be huge where a model fills the machine.
// Else memory of its own: at most `wanted` bytes and a quarter of what is free. kBadInput: less than 64 MiB.
Result<RoofMemory> MemoryForRoof(uint64_t wanted, std::span<const uint8_t> weights = {});

// A shared machine's bandwidth changes by half within seconds, so each is measured for a moment, many times.
class MomentaryRoofs {
 public:
  // `memory` must outlive this.
  MomentaryRoofs(int threads, std::span<const uint8_t> memory, double seconds)
      : team_(threads), read_(team_, memory), seconds_(seconds) {}

  const Status& status() const { return team_.status(); }
  ArithmeticPeaks Peaks();
  double Bandwidth();
  MeasuredRoofs Median() const;  // of all that was measured
  MeasuredRoofs Best() const;
  static constexpr int64_t kPieces = 8;  // of a decode, at most

 private:
  Team team_;
  ReadRoof read_;
  double seconds_;
  std::vector<double> bandwidths_;
  std::vector<ArithmeticPeaks> peaks_;
};

ArithmeticPeaks Mean(const ArithmeticPeaks& a, const ArithmeticPeaks& b);
// The median of each field; the names of instructions are those of the last element.
ArithmeticPeaks Median(std::span<const ArithmeticPeaks> peaks);

// Raises each peak of `best` that is lower than that of `moment`; names stay.
void RaisePeaks(const ArithmeticPeaks& moment, ArithmeticPeaks& best);

// Seconds that the FLOPs of each type take at their peaks. `narrow`: int8 products are summed in 16 bits where the machine has no
// int8 dot product. A type without a peak takes none.
double SecondsAtPeak(const std::array<double, kAriths>& flops, const ArithmeticPeaks& peaks, bool narrow);

}  // namespace tally
