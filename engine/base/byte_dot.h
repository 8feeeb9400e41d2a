// SPDX-License-Identifier: Apache-2.0
// Products that a processor has and no Highway target of ours: of bytes in the 256-bit vectors of its AVX2, of bytes and bf16 beside its
// NEON.
#pragma once

#include <cstdint>
#include <string_view>

namespace tally {

enum class ByteDot : uint8_t {
  kNone,     // pairs are summed in 16 bits
  kAvxVnni,  // vpdpbusd as AVX-VNNI encodes it
  kAvx512,   // the same as AVX-512 encodes it (VNNI and VL), for testing without AVX-VNNI: in builds with tests
  kSdot,     // NEON with SDOT
  kSmmla,    // NEON with SDOT, SMMLA, BFDOT and BFMMLA
};

// What processor, operating system and build have: the first of kAvxVnni, kAvx512, kNone; or of kSmmla, kSdot, kNone.
ByteDot AvailableByteDot();
// Whether kernels may use `dot`: kNone, AvailableByteDot(), and kSdot where kSmmla is available.
bool HasByteDot(ByteDot dot);
// What the targets AVX2 and NEON use: the last SetByteDot, else AVX-VNNI or the best of Arm's, if available.
ByteDot CurrentByteDot();
// `dot`: HasByteDot(dot). Not while kernels run.
void SetByteDot(ByteDot dot);

// Highway's one target for Arm, with `dot`. The second is that of Armv8.2 and later with SDOT, the third has all of Armv8.6's products.
constexpr std::string_view ArmTargetName(ByteDot dot) {
  return dot == ByteDot::kSmmla ? "NEON_I8MM" : dot == ByteDot::kSdot ? "NEON_DOT" : "NEON";
}

}  // namespace tally
