// SPDX-License-Identifier: Apache-2.0
#include "engine/base/arm_features.h"

#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace tally {

ArmFeatures DetectArmFeatures() {
  ArmFeatures f;
#if defined(__linux__) && defined(__aarch64__)
  // Names that older headers lack: HWCAP_ASIMDDP, HWCAP2_I8MM, HWCAP2_BF16.
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  f.dot = (first >> 20 & 1) != 0;
  f.i8mm = (second >> 13 & 1) != 0;
  f.bf16 = (second >> 14 & 1) != 0;
#endif
  return f;
}

}  // namespace tally
