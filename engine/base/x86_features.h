// SPDX-License-Identifier: Apache-2.0
// Features of an x86 processor that Highway's targets do not report.
#pragma once

namespace tally {

// What cpuid says the processor has and XGETBV says the operating system keeps. Nothing on other architectures.
// Intel SDM volume 2, CPUID leaves 1 and 7; volume 1, chapters 13 to 15 and 18.
struct X86Features {
  bool fma = false, avx2 = false, avx_vnni = false;  // 256-bit vectors
  bool avx512bw = false, avx512vl = false;           // AVX-512 F with BW, and with VL
  bool avx512_vnni = false, avx512_bf16 = false;     // besides avx512bw
  bool amx = false;  // tiles, with products of int8 and of bf16, and avx512_bf16; amx.h asks for them
};

X86Features DetectX86Features();

}  // namespace tally
