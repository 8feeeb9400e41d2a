// SPDX-License-Identifier: Apache-2.0
#include "engine/session/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tally {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30, kMib = uint64_t{1} << 20;

TEST(MemoryPlan, FitsUpToTheLastByte) {
  const KvBytesFn kv = [](int64_t n) { return static_cast<uint64_t>(n) * kMib; };
  EXPECT_TRUE(CheckMemoryPlan(2 * kGib, kv, kMib, 3 * kGib + kMib, 1024).ok());
  EXPECT_EQ(CheckMemoryPlan(2 * kGib, kv, kMib, 3 * kGib + kMib - 1, 1024).code(), StatusCode::kNoRoom);
}

TEST(MemoryPlan, SaysWhatIsNeededAndWhatWouldFit) {
  const KvBytesFn kv = [](int64_t n) { return static_cast<uint64_t>(n) * kMib; };
  const Status s = CheckMemoryPlan(12 * kGib + kGib / 2, kv, kGib / 4, 14 * kGib, 4096);
  EXPECT_EQ(s.message(),
            "not enough memory: weights 12.50 GiB + KV cache 4.00 GiB (context 4096) + scratch 0.25 GiB = "
            "16.75 GiB, but "
            "only 14.00 GiB is available; a context of 1280 would fit");
}

TEST(MemoryPlan, NeedAndRoomNeverReadAlike) {
  const Status s = CheckMemoryPlan(
      kGib + 1, [](int64_t) { return uint64_t{0}; }, 0, kGib, 10);
  EXPECT_NE(s.message().find("= 1.01 GiB, but only 1.00 GiB"), std::string::npos) << s.message();
  EXPECT_NE(s.message().find("no context would fit"), std::string::npos) << s.message();
}

TEST(MemoryPlan, WindowsMakeTheCacheGrowInBends) {
  // Two layers of windows stop growing at 128 positions, one of the whole past does not; blocks of 64
  // positions.
  const KvBytesFn kv = [](int64_t n) {
    const int64_t whole = (n + 63) / 64, window = std::min<int64_t>(whole, 3);
    return static_cast<uint64_t>(whole + 2 * window) * kMib;
  };
  EXPECT_EQ(LongestContext(0, kv, 0, 16 * kMib, 100000), 640);  // 10 + 6
  EXPECT_EQ(LongestContext(0, kv, 0, 15 * kMib + kMib - 1, 100000), 576);
  EXPECT_EQ(LongestContext(0, kv, 0, 16 * kMib, 100), 100);
  EXPECT_EQ(LongestContext(17 * kMib, kv, 0, 16 * kMib, 100), 0);
}

TEST(MemoryPlan, SumsThatOverflowAreRefused) {
  EXPECT_FALSE(CheckMemoryPlan(
                   UINT64_MAX - 5, [](int64_t) { return uint64_t{100}; }, 10, UINT64_MAX - 1, 1)
                   .ok());
}

}  // namespace
}  // namespace tally
