// SPDX-License-Identifier: Apache-2.0
#include "engine/base/mix.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

// The first numbers drawn from seed 0, as published with the generator (prng.di.unimi.it; Java's SplittableRandom).
TEST(SplitMix64, Published) {
  uint64_t state = 0;
  for (const uint64_t expected : {0xe220a8397b1dcdafu, 0x6e789e6aa1b965f4u, 0x06c45d188009454fu, 0xf88bb8a8724c81ecu}) {
    EXPECT_EQ(SplitMix64(state), expected);
    state += kSplitMix64Step;
  }
  static_assert(SplitMix64(0) != SplitMix64(1));
}

}  // namespace
}  // namespace tally
