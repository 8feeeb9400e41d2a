// SPDX-License-Identifier: Apache-2.0
// Half precision and bfloat16 against the definitions of the formats, for every bit pattern there is.
#include "engine/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tally {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// IEEE 754 binary16 by its definition: sign, 5 bits of exponent (bias 15), 10 of fraction.
double F16ByDefinition(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * kInf;
  return sign * std::ldexp(exponent == 0 ? fraction : fraction + 1024, (exponent == 0 ? 1 : exponent) - 25);
}

TEST(Float16, EveryHalfWidensExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float wide = F16ToF32(half);
    const double expected = F16ByDefinition(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(F16ToF32(F32ToF16(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(wide, expected) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(F32ToF16(wide), half);
  }
}

// Each pair of neighbours: their middle goes to the even one, its neighbours to the nearer one.
TEST(Float16, NarrowingRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const uint16_t low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const double above = high == 0x7c00 ? 65536.0 : F16ByDefinition(high);        // what infinity stands in the place of
    const float middle = static_cast<float>((F16ByDefinition(low) + above) / 2);  // exact
    ASSERT_EQ(F32ToF16(middle), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, kInf)), high) << bits;
    ASSERT_EQ(F32ToF16(-middle), F32ToF16(middle) | 0x8000) << bits;
  }
  EXPECT_EQ(F32ToF16(65519.99f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(F32ToF16(-kInf), 0xfc00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
}

TEST(BFloat16, EveryPatternWidensAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float wide = BF16ToF32(half);
    ASSERT_EQ(std::bit_cast<uint32_t>(wide), bits << 16);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(BF16ToF32(F32ToBF16(wide)))) << bits;
    } else {
      ASSERT_EQ(F32ToBF16(wide), half);
    }
  }
}

TEST(BFloat16, NarrowingRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const uint16_t low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const auto at = [&](uint32_t rest) { return std::bit_cast<float>(bits << 16 | rest); };
    ASSERT_EQ(F32ToBF16(at(0x7fff)), low) << bits;
    ASSERT_EQ(F32ToBF16(at(0x8000)), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(F32ToBF16(at(0x8001)), high) << bits;
    ASSERT_EQ(F32ToBF16(-at(0x8001)), high | 0x8000) << bits;
  }
  EXPECT_EQ(F32ToBF16(std::numeric_limits<float>::max()), 0x7f80);  // up to infinity
  EXPECT_EQ(F32ToBF16(kInf), 0x7f80);
  // A NaN whose payload is in the low half only must not become an infinity.
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(std::bit_cast<float>(0xff800001u)))));
}

}  // namespace
}  // namespace tally
