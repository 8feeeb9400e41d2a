// SPDX-License-Identifier: Apache-2.0
#include "engine/base/amx.h"
#include "engine/base/byte_dot.h"
#include "engine/base/x86_features.h"
#include "engine/machine/roof_loops.h"

#if defined(__x86_64__)
#include "hwy/targets.h"
#endif

namespace tally {

#if defined(__x86_64__)
namespace {

// Each loop keeps 12 independent sums in registers 0 to 11 (two pipes times a latency of at most 6), its
// factors in 13 and 15, and has 12 and 14 to spare. All values are zero, so nothing is denormal and nothing
// saturates. The assembler is told what it cannot know: the registers that are overwritten.
#define TALLY_CLOBBERS                                                                                                      \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"
#define TALLY_TWELVE(OP) OP("0") OP("1") OP("2") OP("3") OP("4") OP("5") OP("6") OP("7") OP("8") OP("9") OP("10") OP("11")
#define TALLY_ZERO_AVX(N) "vpxor %%xmm" N ", %%xmm" N ", %%xmm" N "\n"
#define TALLY_ZERO_SSE(N) "pxor %%xmm" N ", %%xmm" N "\n"
// clang-format off
#define TALLY_LOOP(NAME, ZERO, OP, LEAVE)                                                           \
  void NAME(int64_t iterations) {                                                                   \
    if (iterations <= 0) return;                                                                    \
    asm volatile(TALLY_TWELVE(ZERO) ZERO("12") ZERO("13") ZERO("14") ZERO("15") ".p2align 5\n"      \
                 "1:\n" TALLY_TWELVE(OP) "dec %0\n"                                                 \
                 "jnz 1b\n" LEAVE                                                                   \
                 : "+r"(iterations)                                                                 \
                 :                                                                                  \
                 : TALLY_CLOBBERS);                                                                 \
  }
// clang-format on
#define TALLY_AVX_LOOP(NAME, OP) TALLY_LOOP(NAME, TALLY_ZERO_AVX, OP, "vzeroupper\n")

// f32: 16, 8 or 4 lanes.
#define TALLY_OP(N) "vfmadd231ps %%zmm13, %%zmm15, %%zmm" N "\n"
TALLY_AVX_LOOP(FmaZmm, TALLY_OP)
#undef TALLY_OP
#define TALLY_OP(N) "vfmadd231ps %%ymm13, %%ymm15, %%ymm" N "\n"
TALLY_AVX_LOOP(FmaYmm, TALLY_OP)
#undef TALLY_OP
#define TALLY_OP(N) "movaps %%xmm13, %%xmm12\nmulps %%xmm15, %%xmm12\naddps %%xmm12, %%xmm" N "\n"
TALLY_LOOP(MulAddXmm, TALLY_ZERO_SSE, TALLY_OP, "")
#undef TALLY_OP

// int8 through one instruction: four products a lane.
#define TALLY_OP(N) "vpdpbusd %%zmm13, %%zmm15, %%zmm" N "\n"
TALLY_AVX_LOOP(DotZmm, TALLY_OP)
#undef TALLY_OP
#define TALLY_OP(N) "%{vex%} vpdpbusd %%ymm13, %%ymm15, %%ymm" N "\n"
TALLY_AVX_LOOP(DotYmm, TALLY_OP)
#undef TALLY_OP
#define TALLY_OP(N) "%{evex%} vpdpbusd %%ymm13, %%ymm15, %%ymm" N "\n"
TALLY_AVX_LOOP(EvexDotYmm, TALLY_OP)
#undef TALLY_OP

// int8 through 16 bits: products of pairs, pairs of pairs, sum.
#define TALLY_OP(N)                        \
  "vpmaddubsw %%zmm13, %%zmm15, %%zmm12\n" \
  "vpmaddwd %%zmm12, %%zmm15, %%zmm12\n"   \
  "vpaddd %%zmm12, %%zmm" N ", %%zmm" N "\n"
TALLY_AVX_LOOP(MaddubsZmm, TALLY_OP)
#undef TALLY_OP
#define TALLY_OP(N)                        \
  "vpmaddubsw %%ymm13, %%ymm15, %%ymm12\n" \
  "vpmaddwd %%ymm12, %%ymm15, %%ymm12\n"   \
  "vpaddd %%ymm12, %%ymm" N ", %%ymm" N "\n"
TALLY_AVX_LOOP(MaddubsYmm, TALLY_OP)
#undef TALLY_OP

// Bytes widened beforehand: 16-bit products of pairs, sum.
#define TALLY_OP(N) "vpmaddwd %%zmm13, %%zmm15, %%zmm12\nvpaddd %%zmm12, %%zmm" N ", %%zmm" N "\n"
TALLY_AVX_LOOP(MaddwdZmm, TALLY_OP)
#undef TALLY_OP
#define TALLY_OP(N) "vpmaddwd %%ymm13, %%ymm15, %%ymm12\nvpaddd %%ymm12, %%ymm" N ", %%ymm" N "\n"
TALLY_AVX_LOOP(MaddwdYmm, TALLY_OP)
#undef TALLY_OP
#define TALLY_OP(N) "movdqa %%xmm13, %%xmm12\npmaddwd %%xmm15, %%xmm12\npaddd %%xmm12, %%xmm" N "\n"
TALLY_LOOP(MaddwdXmm, TALLY_ZERO_SSE, TALLY_OP, "")
#undef TALLY_OP

// Factors so small that their products may be summed in 16 bits (the 4-bit formats): the widening is left
// out.
#define TALLY_OP(N) "vpmaddubsw %%zmm13, %%zmm15, %%zmm12\nvpaddw %%zmm12, %%zmm" N ", %%zmm" N "\n"
TALLY_AVX_LOOP(NarrowZmm, TALLY_OP)
#undef TALLY_OP
#define TALLY_OP(N) "vpmaddubsw %%ymm13, %%ymm15, %%ymm12\nvpaddw %%ymm12, %%ymm" N ", %%ymm" N "\n"
TALLY_AVX_LOOP(NarrowYmm, TALLY_OP)
#undef TALLY_OP

// bf16: two products a lane. Its latency is the longest here, so 24 sums: registers 16 to 27 too.
// clang-format off
#define TALLY_TWELVE_MORE(OP) \
  OP("16") OP("17") OP("18") OP("19") OP("20") OP("21") OP("22") OP("23") OP("24") OP("25") OP("26") OP("27")
#define TALLY_ZERO_512(N) "vpxord %%zmm" N ", %%zmm" N ", %%zmm" N "\n"
#define TALLY_OP(N) "vdpbf16ps %%zmm13, %%zmm15, %%zmm" N "\n"
__attribute__((target("avx512f"))) void Bf16Zmm(int64_t iterations) {
  if (iterations <= 0) return;
  asm volatile(TALLY_TWELVE(TALLY_ZERO_512) TALLY_TWELVE_MORE(TALLY_ZERO_512)
               TALLY_ZERO_512("13") TALLY_ZERO_512("15") ".p2align 5\n"
               "1:\n" TALLY_TWELVE(TALLY_OP) TALLY_TWELVE_MORE(TALLY_OP) "dec %0\n"
               "jnz 1b\n"
               "vzeroupper\n"
               : "+r"(iterations)
               :
               : TALLY_CLOBBERS, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",
                 "xmm25", "xmm26", "xmm27");
}
#undef TALLY_OP
// clang-format on

// Tiles: 16 x 16 sums of four tiles in turn, as a product takes 16 cycles and its result some 52.
#define TALLY_TILE_LOOP(NAME, OP)                                                                                \
  void NAME(int64_t iterations) {                                                                                \
    if (iterations <= 0) return;                                                                                 \
    struct alignas(64) {                                                                                         \
      uint8_t palette = 1, reserved[15] = {};                                                                    \
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64};                                                             \
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16};                                                               \
    } const shapes;                                                                                              \
    asm volatile(                                                                                                \
        "ldtilecfg %1\n"                                                                                         \
        "tilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\ntilezero %%tmm4\ntilezero %%tmm5\n" \
        ".p2align 5\n"                                                                                           \
        "1:\n" OP " %%tmm5, %%tmm4, %%tmm0\n" OP " %%tmm5, %%tmm4, %%tmm1\n" OP " %%tmm5, %%tmm4, %%tmm2\n" OP   \
        " %%tmm5, %%tmm4, %%tmm3\n"                                                                              \
        "dec %0\n"                                                                                               \
        "jnz 1b\n"                                                                                               \
        "tilerelease\n"                                                                                          \
        : "+r"(iterations)                                                                                       \
        : "m"(shapes)                                                                                            \
        : "cc");                                                                                                 \
  }
TALLY_TILE_LOOP(TilesBf16, "tdpbf16ps")
TALLY_TILE_LOOP(TilesInt8, "tdpbssd")

// Drops the features that a restriction of Highway's targets excludes.
X86Features Limited(X86Features f) {
  const int64_t targets = hwy::SupportedTargets();
  const auto has = [targets](int64_t target) { return (targets & target) != 0; };
  f.avx512_bf16 = f.avx512_bf16 && has(HWY_AVX3_ZEN4 | HWY_AVX3_SPR);
  f.avx512_vnni = f.avx512_vnni && has(HWY_AVX3_DL);
  f.amx = f.amx && has(HWY_AVX3_DL) && AmxInUse();
  f.avx512bw = f.avx512bw && has(HWY_AVX3);
  f.avx2 = f.avx2 && has(HWY_AVX2);
  return f;
}

}  // namespace

std::vector<ArithmeticLoop> X86Loops() {
  const X86Features f = Limited(DetectX86Features());
  std::vector<ArithmeticLoop> loops;
  // ops per iteration: 12 sums x lanes x products a lane x 2.
  if (f.avx512bw) {
    loops.push_back({PeakKind::kF32, "vfmadd231ps zmm", 12 * 16 * 2, FmaZmm});
  } else if (f.fma && f.avx2) {
    loops.push_back({PeakKind::kF32, "vfmadd231ps ymm", 12 * 8 * 2, FmaYmm});
  } else {
    loops.push_back({PeakKind::kF32, "mulps+addps xmm", 12 * 4 * 2, MulAddXmm});
  }
  if (f.amx) {
    loops.push_back({PeakKind::kBF16, "tdpbf16ps", 4 * 16 * 16 * 32 * 2, TilesBf16});
    loops.push_back({PeakKind::kInt8, "tdpbssd", 4 * 16 * 16 * 64 * 2, TilesInt8});
  }
  if (f.avx512_bf16) loops.push_back({PeakKind::kBF16, "vdpbf16ps zmm", 24 * 16 * 2 * 2, Bf16Zmm});
  if (f.avx512_vnni) loops.push_back({PeakKind::kInt8, "vpdpbusd zmm", 12 * 16 * 4 * 2, DotZmm});
  if (const ByteDot dot = CurrentByteDot(); dot != ByteDot::kNone && f.avx2) {
    loops.push_back({PeakKind::kInt8, "vpdpbusd ymm", 12 * 8 * 4 * 2, dot == ByteDot::kAvxVnni ? DotYmm : EvexDotYmm});
  }
  if (f.avx512bw) {
    loops.push_back({PeakKind::kInt8, "vpmaddubsw+vpmaddwd+vpaddd zmm", 12 * 16 * 4 * 2, MaddubsZmm});
    loops.push_back({PeakKind::kInt8, "vpmaddwd+vpaddd zmm", 12 * 16 * 2 * 2, MaddwdZmm});
    loops.push_back({PeakKind::kInt8Narrow, "vpmaddubsw+vpaddw zmm", 12 * 32 * 2 * 2, NarrowZmm});
  } else if (f.avx2) {
    loops.push_back({PeakKind::kInt8, "vpmaddubsw+vpmaddwd+vpaddd ymm", 12 * 8 * 4 * 2, MaddubsYmm});
    loops.push_back({PeakKind::kInt8, "vpmaddwd+vpaddd ymm", 12 * 8 * 2 * 2, MaddwdYmm});
    loops.push_back({PeakKind::kInt8Narrow, "vpmaddubsw+vpaddw ymm", 12 * 16 * 2 * 2, NarrowYmm});
  } else {
    loops.push_back({PeakKind::kInt8, "pmaddwd+paddd xmm", 12 * 4 * 2 * 2, MaddwdXmm});
  }
  return loops;
}

#else

std::vector<ArithmeticLoop> X86Loops() { return {}; }

#endif

}  // namespace tally
