// SPDX-License-Identifier: Apache-2.0
// What the kernel says of an Arm processor beyond NEON, which every AArch64 processor has.
#pragma once

namespace tally {

// All false on other architectures and systems. Linux, Documentation/arch/arm64/elf_hwcaps.rst.
struct ArmFeatures {
  bool dot = false;   // SDOT, UDOT (FEAT_DotProd)
  bool i8mm = false;  // SMMLA (FEAT_I8MM)
  bool bf16 = false;  // BFDOT, BFMMLA (FEAT_BF16)
};

ArmFeatures DetectArmFeatures();

}  // namespace tally
