// SPDX-License-Identifier: Apache-2.0
// Prints the best of the portable build's targets that this processor has (cmake/targets.cmake).
#include <cstdint>
#include <cstdio>

#include "hwy/targets.h"

int main() {
  for (const int64_t target : {HWY_AVX3_ZEN4, HWY_AVX3_DL, HWY_AVX3, HWY_AVX2, HWY_SSE4}) {
    if ((hwy::SupportedTargets() & target) == 0) continue;
    std::fputs(hwy::TargetName(target), stdout);
    return 0;
  }
  std::fputs("it has not even SSE4. ", stdout);
  return 1;
}
