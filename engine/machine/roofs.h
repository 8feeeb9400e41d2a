// The machine's roofs, measured: what no kernel can exceed. Each takes about `seconds` and returns a median.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/machine/parallel.h"

namespace tally {

// Bytes per second that the team reads from `memory` (make it larger than the last-level cache; anonymous,
// resident). The best of reading with no prefetch and with several prefetch distances. At least one pass of
// each is made.
double ReadBandwidth(Team& team, std::span<const uint8_t> memory, double seconds);
// Operations per second, all threads together, of the best dot-product instruction of this machine for the
// type (a multiply and an add count 2).
struct ArithmeticPeaks {
  double f32 = 0, bf16 = 0, int8 = 0;  // bf16: 0 where the machine has no bf16 dot product
  // int8 where one factor is so small (4-bit weights) that products may be summed in 16 bits before they are
  // widened; equal to int8 where the machine has an int8 dot product.
  double int8_narrow = 0;
  const char* f32_instruction = "";
  const char* int8_instruction = "";  // "vpdpbusd zmm", "vpmaddubsw ymm", ...
  const char* int8_narrow_instruction = "";
  const char* bf16_instruction = "";
};
ArithmeticPeaks MeasurePeaks(Team& team, double seconds);

}  // namespace tally
