// SPDX-License-Identifier: Apache-2.0
// How the AVX2 target multiplies u8 by i8. Highway has no target for AVX-VNNI.
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
// What the AVX2 target uses: the last SetByteDot, else kAvxVnni if available, else kNone.
ByteDot CurrentByteDot();
// `dot`: kNone or AvailableByteDot(). Not while kernels run.
void SetByteDot(ByteDot dot);

}  // namespace tally
