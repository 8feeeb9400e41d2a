// The machine's roofs, measured: what no kernel can exceed. Each takes about `seconds` and returns a median.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/machine/parallel.h"
#include "engine/machine/peaks.h"

namespace tally {

// Bytes per second that the team reads from `memory` (make it larger than the last-level cache; anonymous,
// resident). The best of reading with no prefetch and with several prefetch distances. At least one pass of
// each is made.
double ReadBandwidth(Team& team, std::span<const uint8_t> memory, double seconds);

// The same, measured many times for moments: how far ahead to prefetch is found out once.
class ReadRoof {
 public:
  // `memory` in whole pages of kBlock bytes; `seconds` are given to the prefetch distances. It must outlive this.
  ReadRoof(Team& team, std::span<const uint8_t> memory, double seconds);

  // Median of some passes, each over another quarter of the memory: nothing is read again before all the rest was. 0 where there are
  // not 4 blocks.
  double Measure(double seconds);

  static constexpr size_t kBlock = 4096;

 private:
  static constexpr size_t kParts = 4;
  Team& team_;
  std::span<const uint8_t> memory_;
  size_t prefetch_ = 0;  // bytes ahead
  size_t next_ = 0;      // part
};

ArithmeticPeaks MeasurePeaks(Team& team, double seconds);

}  // namespace tally
