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
ArithmeticPeaks MeasurePeaks(Team& team, double seconds);

}  // namespace tally
