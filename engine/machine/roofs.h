// SPDX-License-Identifier: Apache-2.0
// The machine's roofs, measured. No kernel exceeds them, except by the noise of the machine. Each function takes about `seconds` and
// returns a median of passes, made in the fastest of several ways.
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

// The same for many short measurements. Each takes `seconds`, or as long as 15 passes over a part each if that is longer.
class ReadRoof {
 public:
  // `memory` in whole blocks. It must outlive this.
  ReadRoof(Team& team, std::span<const uint8_t> memory) : team_(team), memory_(memory) {}

  // The best distance's median of 3 passes or more, each over another part of the memory: nothing is read again before all the rest was. 0
  // with fewer than kParts blocks.
  double Measure(double seconds);

  static constexpr size_t kBlock = 4096;
  static constexpr size_t kParts = 16;  // more than the passes of a shortest measurement

 private:
  Team& team_;
  std::span<const uint8_t> memory_;
  size_t next_ = 0;  // part
};

ArithmeticPeaks MeasurePeaks(Team& team, double seconds);

}  // namespace tally
