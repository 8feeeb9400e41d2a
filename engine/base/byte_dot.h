// SPDX-License-Identifier: Apache-2.0
// Dot products of u8 and i8 in 256-bit vectors, which Highway has no target for: what its AVX2 target multiplies bytes by.
#pragma once

#include <cstdint>

namespace tally {

enum class ByteDot : uint8_t {
  kNone,     // pairs are summed in 16 bits
  kAvxVnni,  // vpdpbusd as AVX-VNNI encodes it
  kAvx512,   // the same as AVX-512 encodes it (VNNI and VL), for measuring and testing without AVX-VNNI
};

// What processor and operating system have: the first of kAvxVnni, kAvx512, kNone.
ByteDot AvailableByteDot();
// What the AVX2 target uses: AVX-VNNI where there is such, or what was set last.
ByteDot CurrentByteDot();
// `dot`: kNone or AvailableByteDot(). Not while kernels run.
void SetByteDot(ByteDot dot);

}  // namespace tally
