// SPDX-License-Identifier: Apache-2.0
#include "engine/base/byte_dot.h"
#include "engine/machine/roof_loops.h"

namespace tally {

#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
namespace {

// 24 independent sums in registers 0 to 23: four pipes times a latency of at most 6. Factors, zeros, in 24 and 25.
// clang-format off
#define TALLY_24(OP) OP("0") OP("1") OP("2") OP("3") OP("4") OP("5") OP("6") OP("7") OP("8") OP("9") OP("10") OP("11") \
  OP("12") OP("13") OP("14") OP("15") OP("16") OP("17") OP("18") OP("19") OP("20") OP("21") OP("22") OP("23")
#define TALLY_ZERO(N) "movi v" N ".16b, #0\n"
#define TALLY_LOOP(NAME, OP)                                                                                            \
  __attribute__((target("arch=armv8.2-a+dotprod+i8mm+bf16"))) void NAME(int64_t iterations) {                           \
    if (iterations <= 0) return;                                                                                        \
    asm volatile(TALLY_24(TALLY_ZERO) TALLY_ZERO("24") TALLY_ZERO("25") ".p2align 5\n"                                  \
                 "1:\n" TALLY_24(OP) "subs %0, %0, #1\n"                                                                \
                 "b.ne 1b\n"                                                                                            \
                 : "+r"(iterations)                                                                                     \
                 :                                                                                                      \
                 : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
                   "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25");                        \
  }
#define TALLY_SDOT(N) "sdot v" N ".4s, v24.16b, v25.16b\n"
#define TALLY_SMMLA(N) "smmla v" N ".4s, v24.16b, v25.16b\n"
#define TALLY_BFDOT(N) "bfdot v" N ".4s, v24.8h, v25.8h\n"
#define TALLY_BFMMLA(N) "bfmmla v" N ".4s, v24.8h, v25.8h\n"
// clang-format on
TALLY_LOOP(Sdot, TALLY_SDOT)
TALLY_LOOP(Smmla, TALLY_SMMLA)
TALLY_LOOP(Bfdot, TALLY_BFDOT)
TALLY_LOOP(Bfmmla, TALLY_BFMMLA)

}  // namespace

std::vector<ArithmeticLoop> ArmLoops() {
  std::vector<ArithmeticLoop> loops;
  const ByteDot dot = CurrentByteDot();
  if (dot == ByteDot::kNone) return loops;
  loops.push_back({PeakKind::kInt8, "sdot", 24 * 16 * 2, Sdot});
  if (dot != ByteDot::kSmmla) return loops;
  loops.push_back({PeakKind::kInt8, "smmla", 24 * 32 * 2, Smmla});
  loops.push_back({PeakKind::kBF16, "bfdot", 24 * 8 * 2, Bfdot});
  loops.push_back({PeakKind::kBF16, "bfmmla", 24 * 16 * 2, Bfmmla});
  return loops;
}

#else

std::vector<ArithmeticLoop> ArmLoops() { return {}; }

#endif

}  // namespace tally
