// SPDX-License-Identifier: Apache-2.0
// The machine's arithmetic, as it was measured.
#pragma once

namespace tally {

// Operations per second, all threads together, of the best dot-product instruction of this machine for each type; a multiply
// and an add count 2.
struct ArithmeticPeaks {
  double f32 = 0;
  double bf16 = 0;  // 0: the machine has no bf16 dot product
  double int8 = 0;
  // int8 if one factor is so small (4-bit weights) that products may be summed in 16 bits before they are widened. Equal to int8 if the
  // machine has an int8 dot product.
  double int8_narrow = 0;
  // "vpdpbusd zmm", "vpmaddubsw ymm", ...: static strings; empty if there is none.
  const char* f32_instruction = "";
  const char* int8_instruction = "";
  const char* int8_narrow_instruction = "";
  const char* bf16_instruction = "";
};

}  // namespace tally
