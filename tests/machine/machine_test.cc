// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tests/support/resident.h"

namespace tally {
namespace {

TEST(Machine, CoresFollowTheAffinityMask) {
  EXPECT_GE(AvailableCores(), 1);
  EXPECT_LE(AvailableCores(), sysconf(_SC_NPROCESSORS_CONF));
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AvailableCores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(Machine, MemoryFiguresAreSane) {
  const uint64_t total = TotalMemoryBytes(), available = AvailableMemoryBytes();
  EXPECT_GT(total, uint64_t{64} << 20);
  EXPECT_GT(available, 0u);
  EXPECT_LE(available, total);
  EXPECT_LT(total, uint64_t{1} << 50);
}

TEST(Machine, ResidentMemoryGrowsWhenPagesAreTouched) {
  constexpr size_t kBytes = size_t{64} << 20;
  Result<AnonymousMemory> memory = AnonymousMemory::Allocate(kBytes, /*huge=*/false);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  const uint64_t before = ResidentBytes();
  ASSERT_GT(before, 0u);
  std::memset(memory->data(), 1, kBytes);
  EXPECT_GE(ResidentBytes(), before + kBytes / 2);
  EXPECT_GE(PeakResidentBytes(), ResidentBytes() / 2);
}

TEST(Machine, ClockMovesForward) {
  const double a = MonotonicSeconds();
  usleep(2000);
  const double b = MonotonicSeconds();
  EXPECT_GE(b - a, 1e-3);
  EXPECT_LT(b - a, 10);
}

TEST(Machine, WidthFallsBackWhereThereIsNoTerminal) {
  if (IsTerminal(Stream::kError)) GTEST_SKIP() << "standard error is a terminal";
  EXPECT_EQ(TerminalWidth(Stream::kError, 77), 77);
}

TEST(AnonymousMemory, IsZeroedAlignedAndWritable) {
  for (bool huge : {false, true}) {
    for (size_t bytes : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, (size_t{5} << 20) + 3}) {
      Result<AnonymousMemory> memory = AnonymousMemory::Allocate(bytes, huge);
      ASSERT_TRUE(memory.ok()) << memory.status().message();
      EXPECT_EQ(memory->size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % (huge ? size_t{2} << 20 : 4096), 0u);
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(memory->data()[i], 0);
      std::memset(memory->data(), 0xff, bytes);
    }
  }
}

TEST(AnonymousMemory, ReservedAddressesTakeWhatIsWritten) {
  constexpr size_t kMib = size_t{1} << 20, kBytes = size_t{1} << 38;  // more than there is
  Result<AnonymousMemory> memory = AnonymousMemory::Reserve(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  const auto resident = [&] { return ResidentIn(memory->data(), memory->data() + kBytes); };
  memory->AllowHugePages(kBytes / 2, 64 * kMib);
  std::memset(memory->data() + kBytes / 2, 1, 64 * kMib);
  EXPECT_EQ(resident(), 64 * kMib);
  memory->Return(kBytes / 2 + 3 * kMib, 61 * kMib);
  EXPECT_EQ(resident(), 3 * kMib);
  EXPECT_EQ(memory->data()[kBytes / 2 + 3 * kMib - 1], 1);
  EXPECT_EQ(memory->data()[kBytes / 2 + 3 * kMib], 0);
}

TEST(AnonymousMemory, MovesAndGivesBack) {
  Result<AnonymousMemory> result = AnonymousMemory::Allocate(10000, false);
  ASSERT_TRUE(result.ok());
  AnonymousMemory a = std::move(result).value();
  uint8_t* const p = a.data();
  AnonymousMemory b = std::move(a);
  EXPECT_EQ(b.data(), p);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: what is left of a moved-from mapping is part of the contract
  EXPECT_EQ(a.size(), 0u);
  a = std::move(b);
  EXPECT_EQ(a.data(), p);
  EXPECT_EQ(a.size(), 10000u);

  // Mapping and dropping more than the machine has, a piece at a time, works only if pieces are given back.
  constexpr size_t kPiece = size_t{64} << 20;
  const uint64_t before = ResidentBytes();
  for (int i = 0; i < 20; ++i) {
    Result<AnonymousMemory> piece = AnonymousMemory::Allocate(kPiece, true);
    ASSERT_TRUE(piece.ok());
    for (size_t at = 0; at < kPiece; at += 4096) piece->data()[at] = 1;
  }
  EXPECT_LT(ResidentBytes(), before + 4 * kPiece);
}

TEST(AnonymousMemory, RefusalIsAnError) {
  for (size_t bytes : {SIZE_MAX, SIZE_MAX / 2, size_t{1} << 62}) {
    Result<AnonymousMemory> memory = AnonymousMemory::Allocate(bytes, true);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.status().code(), StatusCode::kNoRoom);
    EXPECT_NE(memory.status().message().find(std::to_string(bytes)), std::string::npos) << memory.status().message();
  }
  Result<AnonymousMemory> none = AnonymousMemory::Allocate(0, true);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->size(), 0u);
}

}  // namespace
}  // namespace tally
