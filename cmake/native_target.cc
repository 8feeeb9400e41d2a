// SPDX-License-Identifier: Apache-2.0
// Prints the best of the portable build's targets that this processor has, and ";VNNI" if that is AVX2 with a dot product of bytes
// (cmake/targets.cmake).
#include <cstdint>
#include <cstdio>

#include "hwy/targets.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace {

bool HasAvxVnni() {
#if HWY_ARCH_X86
  unsigned a = 0, b = 0, c = 0, d = 0;  // leaf 7, subleaf 1: EAX bit 4
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
#else
  return false;
#endif
}

}  // namespace

int main() {
  for (const int64_t target : {HWY_AVX3_ZEN4, HWY_AVX3_DL, HWY_AVX3, HWY_AVX2, HWY_SSE4}) {
    if ((hwy::SupportedTargets() & target) == 0) continue;
    std::fputs(hwy::TargetName(target), stdout);
    if (target == HWY_AVX2 && HasAvxVnni()) std::fputs(";VNNI", stdout);
    return 0;
  }
  std::fputs("it has not even SSE4. ", stdout);
  return 1;
}
