// SPDX-License-Identifier: Apache-2.0
// Loops that do nothing but one machine's multiply-adds, for MeasurePeaks; and the loop that does nothing but
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tally {

enum class PeakKind : uint8_t { kF32, kBF16, kInt8, kInt8Narrow };

struct ArithmeticLoop {
  PeakKind kind = PeakKind::kF32;
  const char* instruction = "";
  int64_t ops = 0;  // per iteration; a multiply and an add count 2
  void (*run)(int64_t iterations) = nullptr;
};

// The loops that this processor and operating system can run (cpuid and the enabled register state are
// asked). x86-64.
std::vector<ArithmeticLoop> X86Loops();
// Arm's products of bytes and of bf16 that are in use, besides PortableLoops.
std::vector<ArithmeticLoop> ArmLoops();
// The same through Highway, for every other architecture: fused multiply-add, and its dot products where they
// are native.
std::vector<ArithmeticLoop> PortableLoops();

// How many bytes ahead data is asked for, by cache. 0: not at all.
struct ReadAhead {
  size_t first_cache = 0, second_cache = 0;
};

// Reads [p, p + bytes), bytes a multiple of 256. Returns the exclusive or of all 8-byte words, so that no read can be left out.
uint64_t ReadAll(const uint8_t* p, size_t bytes, ReadAhead ahead);

}  // namespace tally
