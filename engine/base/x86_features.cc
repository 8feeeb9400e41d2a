// SPDX-License-Identifier: Apache-2.0
#include "engine/base/x86_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tally {

X86Features DetectX86Features() {
  X86Features f;
#if defined(__x86_64__)
  const auto bit = [](unsigned word, int i) { return (word >> i & 1) != 0; };
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !bit(c, 27) || !bit(c, 28)) return f;  // XGETBV, AVX
  f.fma = bit(c, 12);
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  const bool ymm = (low & 0x06) == 0x06, zmm = (low & 0xe6) == 0xe6, tiles = (low & 0x60000) == 0x60000;
  if (!ymm) return {};
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return f;
  const unsigned subleaves = a;
  f.avx2 = bit(b, 5);
  f.avx512bw = zmm && bit(b, 16) && bit(b, 30);
  f.avx512vl = zmm && bit(b, 16) && bit(b, 31);
  f.avx512_vnni = f.avx512bw && bit(c, 11);
  const bool amx = tiles && bit(d, 22) && bit(d, 24) && bit(d, 25);
  if (subleaves < 1 || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return f;
  f.avx_vnni = bit(a, 4);
  f.avx512_bf16 = f.avx512bw && bit(a, 5);
  f.amx = amx && f.avx512_bf16;
#endif
  return f;
}

}  // namespace tally
