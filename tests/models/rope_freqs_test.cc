// SPDX-License-Identifier: Apache-2.0
// Expected values: the formulas of the published code, computed independently in Python doubles and rounded
// to f32.
#include "engine/recipe/rope_freqs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tally {
namespace {

Rope MakeRope(int32_t dim, double theta) {
  Rope rope;
  rope.style = RopeStyle::kRotateHalf;
  rope.dim = dim;
  rope.theta = theta;
  return rope;
}

Rope Yarn(int32_t dim, double theta, double factor, double context, double fast, bool truncate) {
  Rope rope = MakeRope(dim, theta);
  rope.scaling = {.kind = RopeScalingKind::kYarn,
                  .factor = factor,
                  .original_context = context,
                  .beta_fast = fast,
                  .beta_slow = 1,
                  .truncate = truncate,
                  .attention_factor = 0.1 * std::log(factor) + 1};
  return rope;
}

void ExpectFrequencies(const Rope& rope, const std::vector<float>& expected, size_t first = 0,
                       std::span<const float> factors = {}) {
  const Result<RopeFrequencies> got = MakeRopeFrequencies(rope, {factors, {}, {}});
  ASSERT_TRUE(got.ok()) << got.status().message();
  ASSERT_EQ(got->inv_freq.size(), static_cast<size_t>(rope.dim / 2));
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got->inv_freq[first + i] / expected[i], 1, 1e-7) << "frequency " << first + i;
}

TEST(RopeFreqs, Plain) {  // golden llama-a
  ExpectFrequencies(MakeRope(8, 10000), {1.f, 0.1f, 0.01f, 0.001f});
  EXPECT_EQ(MakeRopeFrequencies(MakeRope(8, 10000))->magnitude, 1.f);
}

TEST(RopeFreqs, Linear) {
  Rope rope = MakeRope(8, 10000);
  rope.scaling.kind = RopeScalingKind::kLinear;
  rope.scaling.factor = 4;
  ExpectFrequencies(rope, {0.25f, 0.025f, 0.0025f, 0.00025f});
}

TEST(RopeFreqs, Llama3) {
  Rope rope = MakeRope(16, 500000);  // golden llama-b
  rope.scaling = {
      .kind = RopeScalingKind::kLlama3, .factor = 8, .original_context = 64, .low_freq_factor = 1, .high_freq_factor = 4};
  ExpectFrequencies(rope, {1.f, 0.0794030055f, 0.00470075384f, 0.000911583076f, 0.000176776695f, 3.42810235e-05f, 6.64786967e-06f,
                           1.28917316e-06f});
  rope.dim = 128;  // Llama 3.1 8B, across the mixed range
  rope.scaling.original_context = 8192;
  ExpectFrequencies(rope,
                    {0.00729266461f, 0.00594073022f, 0.00483942125f, 0.00394227589f, 0.00321144611f, 0.00216657086f,
                     0.00137189357f, 0.000856751401f, 0.000524846138f, 0.000312693737f, 0.000178507806f, 9.55621217e-05f,
                     7.78465546e-05f, 6.34151438e-05f, 5.16590699e-05f, 4.20823671e-05f},
                    24);
}

TEST(RopeFreqs, Yarn) {
  ExpectFrequencies(
      Yarn(16, 150000, 32, 4096, 32, false),  // golden gptoss-a
      {1.f, 0.225418001f, 0.0508132763f, 0.00679495931f, 0.000456483918f, 1.8188337e-05f, 4.09997847e-06f, 9.24208962e-07f});
  ExpectFrequencies(
      Yarn(16, 150000, 32, 4096, 32, true),  // the same with rounded bounds
      {1.f, 0.225418001f, 0.0508132763f, 0.00775546627f, 0.000914454402f, 1.8188337e-05f, 4.09997847e-06f, 9.24208962e-07f});
  ExpectFrequencies(Yarn(32, 10000, 4, 128, 8, false),  // golden gptoss-b
                    {1.f, 0.562341332f, 0.291525632f, 0.127016172f, 0.0506643951f, 0.0168153234f, 0.00790569372f, 0.00444569858f,
                     0.00249999994f, 0.00140585331f, 0.000790569407f, 0.000444569858f, 0.000250000012f, 0.000140585325f,
                     7.90569393e-05f, 4.44569851e-05f});
  ExpectFrequencies(Yarn(64, 150000, 32, 4096, 32, false),  // gpt-oss-20b, across the ramp
                    {0.107024424f, 0.0737445652f, 0.0508132763f, 0.0317056961f, 0.0193350017f, 0.0115920492f, 0.00679495931f,
                     0.00386035931f, 0.00209379243f, 0.00105260208f, 0.000456483918f, 0.000129318694f, 3.83088118e-05f,
                     2.63964685e-05f, 1.8188337e-05f, 1.25325696e-05f},
                    6);
  EXPECT_FLOAT_EQ(MakeRopeFrequencies(Yarn(64, 150000, 32, 4096, 32, false))->magnitude, 1.34657359f);
  EXPECT_FLOAT_EQ(MakeRopeFrequencies(Yarn(32, 10000, 4, 128, 8, false))->magnitude, 1.13862944f);
}

TEST(RopeFreqs, StoredDivisors) {
  Rope rope = MakeRope(8, 10000);
  rope.freq_factors = true;
  const float factors[] = {1, 2, 4, 8};
  ExpectFrequencies(rope, {1.f, 0.05f, 0.0025f, 0.000125f}, 0, factors);
  rope.scaling.kind = RopeScalingKind::kLinear;
  rope.scaling.factor = 2;
  ExpectFrequencies(rope, {0.5f, 0.025f, 0.00125f, 0.0000625f}, 0, factors);
}

TEST(RopeFreqs, NoRopeNoFrequencies) {
  const Result<RopeFrequencies> got = MakeRopeFrequencies(Rope{});
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(got->inv_freq.empty());
}

TEST(RopeFreqs, TheContextChoosesLongRopesFactors) {
  Rope rope = MakeRope(8, 10000);
  rope.scaling = {.kind = RopeScalingKind::kLongRope, .factor = 4, .original_context = 100, .attention_factor = 1.19};
  rope.scaling.short_factors = {1, 1, 2, 2};
  rope.scaling.long_factors = {1, 2, 4, 8};
  for (const auto& [context, divisors] : {std::pair{100, rope.scaling.short_factors}, {101, rope.scaling.long_factors}}) {
    const Result<RopeFrequencies> got = MakeRopeFrequencies(rope, {}, context);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_FLOAT_EQ(got->magnitude, 1.19f);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_FLOAT_EQ(got->inv_freq[i], static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / 4) / divisors[i]));
    }
  }
  const std::vector<float> of_short = {3, 3, 3, 3}, of_long = {5, 5, 5, 5};
  rope.stored_long_factors = true;
  EXPECT_FLOAT_EQ(MakeRopeFrequencies(rope, {{}, of_short, of_long}, 100)->inv_freq[0], 1 / 3.0f);
  EXPECT_FLOAT_EQ(MakeRopeFrequencies(rope, {{}, of_short, of_long}, 1000)->inv_freq[0], 1 / 5.0f);
  EXPECT_FALSE(MakeRopeFrequencies(rope, {}, 1000).ok());
}

TEST(RopeFreqs, DynamicScalingBeginsBeyondTheOriginalContext) {
  Rope rope = MakeRope(8, 10000);
  rope.scaling = {.kind = RopeScalingKind::kDynamic, .factor = 2, .original_context = 100};
  EXPECT_FLOAT_EQ(MakeRopeFrequencies(rope, {}, 100)->inv_freq[2], 0.01f);
  const double theta = 10000 * std::pow(2 * 300 / 100.0 - 1, 8 / 6.0);
  EXPECT_FLOAT_EQ(MakeRopeFrequencies(rope, {}, 300)->inv_freq[2], static_cast<float>(std::pow(theta, -0.5)));
}

TEST(RopeFreqs, BadInput) {
  auto expect_error = [](const Rope& rope, std::string_view says, std::span<const float> factors = {}) {
    const Result<RopeFrequencies> got = MakeRopeFrequencies(rope, {factors, {}, {}});
    ASSERT_FALSE(got.ok()) << says;
    EXPECT_EQ(got.status().code(), StatusCode::kBadInput);
    EXPECT_NE(got.status().message().find(says), std::string::npos) << got.status().message();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error(MakeRope(7, 10000), "even");
  expect_error(MakeRope(0, 10000), "even");
  expect_error(MakeRope(8, 0), "theta");
  expect_error(MakeRope(8, nan), "theta");
  Rope rope = MakeRope(8, 10000);
  rope.freq_factors = true;
  expect_error(rope, "missing");
  const float three[] = {1, 1, 1}, zero[] = {1, 1, 0, 1};
  expect_error(rope, "need 4", three);
  expect_error(rope, "factor 2", zero);
  expect_error(Yarn(8, 10000, 4, 0, 32, true), "original context");
  expect_error(Yarn(8, 1, 4, 128, 32, true), "theta > 1");
  expect_error(Yarn(8, 10000, 4, 128, 0, true), "betas");
  expect_error(Yarn(8, 10000, -1, 128, 32, true), "factor");
  Rope llama = MakeRope(8, 10000);
  llama.scaling = {
      .kind = RopeScalingKind::kLlama3, .factor = 8, .original_context = 64, .low_freq_factor = 5, .high_freq_factor = 4};
  expect_error(llama, "low_freq_factor");
}

}  // namespace
}  // namespace tally
