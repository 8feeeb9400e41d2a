// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/roofs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "engine/machine/machine.h"
#include "engine/machine/roof_loops.h"

namespace tally {
namespace {

TEST(Roofs, EveryLoopOfThisMachineRuns) {
  std::vector<ArithmeticLoop> loops = X86Loops();
  for (const ArithmeticLoop& loop : PortableLoops()) loops.push_back(loop);
  ASSERT_FALSE(loops.empty());
  for (const ArithmeticLoop& loop : loops) {
    SCOPED_TRACE(loop.instruction);
    EXPECT_GT(loop.ops, 0);
    loop.run(0);
    loop.run(1);
    const double start = MonotonicSeconds();
    loop.run(1000000);
    const double rate = static_cast<double>(loop.ops) * 1e6 / (MonotonicSeconds() - start);
    // One thread of anything since 2006 does 100 million operations a second; nothing does 100 tera.
    EXPECT_GT(rate, 1e8);
    EXPECT_LT(rate, 1e14);
    RecordProperty(loop.instruction, std::to_string(rate / 1e9) + " Gop/s");
  }
}

TEST(Roofs, PeaksAreNamedAndOrdered) {
  Team team(0);
  const ArithmeticPeaks peaks = MeasurePeaks(team, 0.05);
  EXPECT_GT(peaks.f32, 1e8);
  EXPECT_GT(peaks.int8, 1e8);
  EXPECT_GE(peaks.int8_narrow, peaks.int8);
  EXPECT_NE(std::string(peaks.f32_instruction), "");
  EXPECT_NE(std::string(peaks.int8_instruction), "");
  EXPECT_EQ(peaks.bf16 > 0, std::string(peaks.bf16_instruction) != "");
}

TEST(Roofs, BandwidthIsThatOfMemory) {
  Team team(0);
  Result<AnonymousMemory> memory = AnonymousMemory::Allocate(size_t{64} << 20, true);
  ASSERT_TRUE(memory.ok());
  std::memset(memory->data(), 3, memory->size());
  const double rate = ReadBandwidth(team, {memory->data(), memory->size()}, 0.1);
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 1e13);
  EXPECT_EQ(ReadBandwidth(team, {memory->data(), 100}, 0.1), 0);
  ReadRoof roof(team, {memory->data(), memory->size()});
  EXPECT_GT(roof.Measure(0), 1e8);
  EXPECT_LT(roof.Measure(0.05), 1e13);
  EXPECT_EQ(ReadRoof(team, {memory->data(), (ReadRoof::kParts - 1) * ReadRoof::kBlock}).Measure(0), 0);
}

// ReadAll must read every byte: its result is the exclusive or of all words, whatever the prefetch distance.
TEST(Roofs, ReadAllLeavesNothingOut) {
  Result<AnonymousMemory> memory = AnonymousMemory::Allocate(size_t{8192}, false);
  ASSERT_TRUE(memory.ok());
  for (const ReadAhead ahead : {ReadAhead{}, ReadAhead{1024, 4096}}) {
    for (size_t word = 0; word < 8192 / 8; ++word) {
      const uint64_t value = 0x0123456789abcdefu + word;
      std::memcpy(memory->data() + word * 8, &value, 8);
      ASSERT_EQ(ReadAll(memory->data(), 8192, ahead), value) << "word " << word;
      std::memset(memory->data() + word * 8, 0, 8);
    }
  }
}

}  // namespace
}  // namespace tally
