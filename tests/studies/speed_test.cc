// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/speed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/session/fake_engine.h"

namespace tally {
namespace {

SpeedOptions Quick() {
  SpeedOptions options;
  options.prompts = {20};
  options.generate = {5};
  options.rounds = 2;
  options.roof_seconds = 0.01;
  options.roof_bytes = uint64_t{64} << 20;
  return options;
}

struct Measured {
  Result<SpeedReport> report;
  std::vector<std::shared_ptr<FakeEngine>> engines;
};

// On engines that `prepare` has been given.
Measured Measure(const SpeedOptions& options, const std::function<void(FakeEngine&)>& prepare = nullptr, int64_t context = 64) {
  std::vector<std::shared_ptr<FakeEngine>> engines;
  const SpeedEngineMaker maker = [&](const EngineOptions&) -> Result<std::shared_ptr<Engine>> {
    engines.push_back(std::make_shared<FakeEngine>(100, context));
    if (prepare) prepare(*engines.back());
    return std::shared_ptr<Engine>(engines.back());
  };
  Result<SpeedReport> report = MeasureSpeed(maker, {}, options);
  return {std::move(report), std::move(engines)};
}

TEST(MeasureSpeed, FiguresComeFromTheLedger) {
  const auto [report, engines] = Measure(Quick());
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->prefill.size(), 1u);
  ASSERT_EQ(report->decode.size(), 1u);
  const PrefillSpeed& prefill = report->prefill[0];
  const DecodeSpeed& decode = report->decode[0];
  EXPECT_EQ(prefill.flops, 20 * 1010);
  EXPECT_EQ(prefill.flops_by_type[static_cast<int>(Arith::kInt8)], 20 * 1000);
  EXPECT_EQ(prefill.flops_by_type[static_cast<int>(Arith::kF32)], 20 * 10);
  EXPECT_EQ(decode.bytes_per_token, 4096);
  EXPECT_GT(prefill.peaks.f32, 0);
  EXPECT_GT(prefill.ratio_of_peak, 0);
  EXPECT_GT(decode.bandwidth, 0);
  EXPECT_TRUE(std::isfinite(decode.ratio_of_bandwidth));
  EXPECT_GT(decode.sampled_seconds, 0);
  EXPECT_NE(report->verified.find("32 tokens in one piece and one by one"), std::string::npos);
  EXPECT_EQ(engines.at(0)->live_sequences(), 0u);
}

// 19 tokens are pieces of two and of three.
TEST(MeasureSpeed, TheDecodesRatioIsThatOfItsFigures) {
  SpeedOptions options = Quick();
  options.generate = {19};
  options.rounds = 1;
  const auto [report, engines] = Measure(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const DecodeSpeed& d = report->decode.at(0);
  EXPECT_NEAR(d.ratio_of_bandwidth * d.bandwidth / (d.bytes_per_token * d.rate.median), 1, 1e-9);
  EXPECT_EQ(d.rate.least, d.rate.most);
}

// Rounds go over the whole grid, forwards and backwards in turn, and each point begins at its depth.
TEST(MeasureSpeed, PointsAreInterleaved) {
  SpeedOptions options = Quick();
  options.depths = {0, 12};
  options.batches = {1, 3};
  std::vector<std::string> announced;
  options.progress = [&](const SpeedProgress& p) {
    EXPECT_LT(p.done, p.total);
    const bool round = p.next.starts_with("round");
    if (round) announced.push_back(p.next);
    EXPECT_EQ(p.seconds_left > 0, round) << "known once each point was run: " << p.next;
  };
  std::vector<int64_t> prefills;  // of 20 tokens and of those that fill the cache
  const auto [report, engines] = Measure(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->prefill.size(), 2u);
  ASSERT_EQ(report->decode.size(), 4u);
  const std::vector<std::string> expected = {"round 1 of 2: prefill 20, 1 thread, f16",
                                             "round 1 of 2: prefill 20, 1 thread, f16, depth 12",
                                             "round 1 of 2: decode 5, 1 thread, f16",
                                             "round 1 of 2: decode 5, 1 thread, f16, depth 12",
                                             "round 1 of 2: decode 5, 1 thread, f16, batch 3",
                                             "round 1 of 2: decode 5, 1 thread, f16, depth 12, batch 3",
                                             "round 2 of 2: decode 5, 1 thread, f16, depth 12, batch 3"};
  ASSERT_EQ(announced.size(), 12u);
  EXPECT_EQ(std::vector<std::string>(announced.begin(), announced.begin() + 7), expected);
  for (const DecodeSpeed& d : report->decode) EXPECT_EQ(d.bytes_per_token, 4096) << d.batch;  // the fake charges each row alike
  size_t rows_of_three = 0;
  for (const FakeEngine::Stepped& s : engines.at(0)->steps) {
    rows_of_three += s.phase == Phase::kDecode && s.tokens.size() == 3 ? 1 : 0;
  }
  EXPECT_EQ(rows_of_three, 1 + 5 * 2 * 3u) << "the check, two depths, a first run and two rounds";
  EXPECT_EQ(engines.at(0)->live_sequences(), 0u);
}

TEST(MeasureSpeed, RefusesWrongOutputs) {
  const auto refused = [](const std::function<void(FakeEngine&)>& prepare, int64_t batch = 1) {
    SpeedOptions options = Quick();
    options.batches = {batch};
    const Status status = Measure(options, prepare).report.status();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    return status.message();
  };
  // Same argmax, other bits.
  EXPECT_NE(
      refused([](FakeEngine& e) { e.noise = [](size_t rows) { return rows > 1 ? 0.25f : 0.0f; }; }).find("the logits differ"),
      std::string::npos);
  EXPECT_NE(refused([](FakeEngine& e) { e.noise = [](size_t rows) { return rows == 3 ? 0.25f : 0.0f; }; }, 3)
                .find("sequence 0 in one step with others and alone: the logits differ"),
            std::string::npos);
  EXPECT_NE(refused([](FakeEngine& e) {
              auto step = std::make_shared<int>(0);
              e.on_step = [step] { ++*step; };
              e.next = [step](int32_t token, int64_t) { return (token + *step) % 100; };
            }).find("greedy tokens"),
            std::string::npos);
  EXPECT_NE(refused([](FakeEngine& e) { e.noise = [](size_t) { return std::nanf(""); }; }).find("not finite"), std::string::npos);
}

TEST(MeasureSpeed, BadRequestsAndInterruptions) {
  EXPECT_NE(Measure(Quick(), nullptr, 19).report.status().message().find("20 tokens and does not fit the context of 19"),
            std::string::npos);
  const auto refused = [](const std::function<void(SpeedOptions&)>& spoil) {
    SpeedOptions options = Quick();
    spoil(options);
    int steps = 0;
    const Status status = Measure(options, [&](FakeEngine& e) { e.on_step = [&] { ++steps; }; }).report.status();
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_EQ(steps, 0) << "before anything has run";
    return status.message();
  };
  refused([](SpeedOptions& o) { o.generate = {0}; });
  refused([](SpeedOptions& o) { o.prompts = o.generate = {}; });
  refused([](SpeedOptions& o) { o.depths = {-1}; });
  refused([](SpeedOptions& o) { o.batches = {0}; });
  refused([](SpeedOptions& o) { o.threads = {}; });
  refused([](SpeedOptions& o) { o.rounds = 0; });
  for (const double seconds : {0.0, -1.0, 3601.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_NE(refused([&](SpeedOptions& o) { o.roof_seconds = seconds; }).find("a roof is measured for"), std::string::npos);
  }
  SpeedOptions options = Quick();
  options.roof_bytes = 4096;
  EXPECT_NE(Measure(options).report.status().message().find("too little memory to measure"), std::string::npos);
  options = Quick();
  options.interrupted = [] { return true; };
  EXPECT_EQ(Measure(options).report.status().code(), StatusCode::kInterrupted);
}

// The engine of the options has room for the grid and not much more.
TEST(SpeedLoadOptions, HaveRoomForTheGrid) {
  SpeedOptions options;
  options.prompts = {512, 2048};
  options.generate = {64};
  options.depths = {0, 4096, 16384};
  options.batches = {1, 8};
  options.threads = {3};
  const EngineOptions load = SpeedLoadOptions({}, options);
  EXPECT_EQ(load.context, 16384 + 2048);
  EXPECT_EQ(load.sequences, 8 + 2);
  EXPECT_EQ(load.max_logit_rows, 8);
  EXPECT_EQ(load.max_batch, 0);
  EXPECT_EQ(load.threads, 3);
  EXPECT_EQ(SpeedLoadOptions({}, {}).sequences, 1);
}

}  // namespace
}  // namespace tally
