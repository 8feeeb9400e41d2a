// SPDX-License-Identifier: Apache-2.0
#include "engine/base/byte_dot.h"

#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tally {
namespace {

// Intel SDM volume 2, CPUID leaf 7; volume 1, chapters 13 to 15 for XGETBV.
ByteDot Detect() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return ByteDot::kNone;  // no XGETBV
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  const bool ymm = (low & 0x06) == 0x06, zmm = (low & 0xe6) == 0xe6;
  if (!ymm || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return ByteDot::kNone;
  const bool avx512 = zmm && (b >> 31 & 1) != 0 && (c >> 11 & 1) != 0;  // VL, VNNI
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0) return ByteDot::kAvxVnni;
  if (avx512) return ByteDot::kAvx512;
#endif
  return ByteDot::kNone;
}

std::atomic<ByteDot>& Current() {
  static std::atomic<ByteDot> current{AvailableByteDot() == ByteDot::kAvxVnni ? ByteDot::kAvxVnni : ByteDot::kNone};
  return current;
}

}  // namespace

ByteDot AvailableByteDot() {
  static const ByteDot available = Detect();
  return available;
}

ByteDot CurrentByteDot() { return Current().load(std::memory_order_relaxed); }
void SetByteDot(ByteDot dot) { Current().store(dot, std::memory_order_relaxed); }

}  // namespace tally
