#include "engine/studies/speed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/session/fake_engine.h"

namespace tally {
namespace {

SpeedOptions Quick() {
  SpeedOptions options;
  options.prompt = 20;
  options.generate = 5;
  options.repetitions = 2;
  options.roof_seconds = 0.01;
  options.roof_bytes = uint64_t{64} << 20;
  return options;
}

TEST(MeasureSpeed, FiguresComeFromTheLedger) {
  FakeEngine engine(100);
  const auto report = MeasureSpeed(engine, Quick());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->prefill_flops, 20 * 1010);
  EXPECT_EQ(report->prefill_flops_by_type[static_cast<int>(Arith::kInt8)], 20 * 1000);
  EXPECT_EQ(report->prefill_flops_by_type[static_cast<int>(Arith::kF32)], 20 * 10);
  EXPECT_EQ(report->decode_bytes, 4096);
  EXPECT_GT(report->bandwidth, 0);
  EXPECT_GT(report->peaks.f32, 0);
  EXPECT_GT(report->prefill_ratio, 0);
  EXPECT_GT(report->decode_ratio, 0);
  EXPECT_TRUE(std::isfinite(report->decode_ratio));
  EXPECT_NE(report->verified.find("20 tokens in one piece and one by one"), std::string::npos);
  EXPECT_EQ(engine.live_sequences(), 0u);
}

// 19 tokens are pieces of two and of three.
TEST(MeasureSpeed, TheDecodesRatioIsThatOfItsFigures) {
  FakeEngine engine(100);
  SpeedOptions options = Quick();
  options.generate = 19;
  options.repetitions = 1;
  const auto report = MeasureSpeed(engine, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->decode_bytes, 4096);
  EXPECT_NEAR(report->decode_ratio * report->bandwidth / (report->decode_bytes * report->decode_tokens_per_second), 1, 1e-9);
}

TEST(MeasureSpeed, RefusesWrongOutputs) {
  FakeEngine engine(100);
  engine.noise = [](size_t rows) { return rows > 1 ? 0.25f : 0.0f; };  // same argmax, other bits
  auto report = MeasureSpeed(engine, Quick());
  EXPECT_EQ(report.status().code(), StatusCode::kInternal);
  EXPECT_NE(report.status().message().find("the logits differ"), std::string::npos);
  engine.noise = nullptr;
  int step = 0;
  engine.on_step = [&] { ++step; };
  engine.next = [&](int32_t token, int64_t) { return (token + step) % 100; };
  EXPECT_NE(MeasureSpeed(engine, Quick()).status().message().find("greedy tokens"), std::string::npos);
  engine.next = [](int32_t token, int64_t) { return token; };
  engine.noise = [](size_t) { return std::nanf(""); };
  EXPECT_NE(MeasureSpeed(engine, Quick()).status().message().find("not finite"), std::string::npos);
}

TEST(MeasureSpeed, BadRequestsAndInterruptions) {
  FakeEngine engine(100, 24);
  EXPECT_NE(MeasureSpeed(engine, Quick()).status().message().find("do not fit the context of 24"), std::string::npos);
  SpeedOptions options = Quick();
  options.generate = 0;
  EXPECT_EQ(MeasureSpeed(engine, options).status().code(), StatusCode::kBadInput);
  FakeEngine larger(100);
  options = Quick();
  options.roof_bytes = 4096;
  EXPECT_NE(MeasureSpeed(larger, options).status().message().find("too little memory to measure"), std::string::npos);
  int steps = 0;
  larger.on_step = [&] { ++steps; };
  for (const double seconds : {0.0, -1.0, 3601.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    options = Quick();
    options.roof_seconds = seconds;
    const Status refused = MeasureSpeed(larger, options).status();
    EXPECT_EQ(refused.code(), StatusCode::kBadInput) << seconds;
    EXPECT_NE(refused.message().find("a roof is measured for"), std::string::npos) << refused.message();
  }
  EXPECT_EQ(steps, 0) << "before anything has run";
  options = Quick();
  options.interrupted = [] { return true; };
  EXPECT_EQ(MeasureSpeed(larger, options).status().code(), StatusCode::kInterrupted);
}

}  // namespace
}  // namespace tally
