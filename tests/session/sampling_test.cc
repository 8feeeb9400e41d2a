// SPDX-License-Identifier: Apache-2.0
#include "engine/session/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace tally {
namespace {

SamplerConfig Plain(uint64_t seed = 1) {  // temperature 1 and no filter
  SamplerConfig c;
  c.temperature = 1;
  c.top_k = 0;
  c.top_p = 1;
  c.min_p = 0;
  c.seed = seed;
  return c;
}

std::vector<float> LogitsOf(std::vector<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<int> Counts(const SamplerConfig& config, const std::vector<float>& logits, int draws,
                        const std::vector<int32_t>& history = {}) {
  Sampler sampler(config);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(sampler.Sample(logits, history))];
  return counts;
}

std::set<int32_t> Drawn(const SamplerConfig& config, const std::vector<float>& logits, const std::vector<int32_t>& history = {}) {
  std::set<int32_t> seen;
  const std::vector<int> counts = Counts(config, logits, 4000, history);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) seen.insert(static_cast<int32_t>(i));
  }
  return seen;
}

using Set = std::set<int32_t>;

// The most probable tokens in order (ties: lower id), by a full sort: the reference that the selections are compared with.
std::vector<int32_t> Order(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  return ids;
}

double ChiSquare(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  const double n = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = n * probabilities[i];
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<double> p = {0.4, 0.05, 0.25, 0.1, 0.2};
  // 4 degrees of freedom: 18.47 is exceeded with probability 0.001. Fixed seeds, so a pass stays a pass.
  for (const uint64_t seed : {1u, 2u, 3u}) EXPECT_LT(ChiSquare(Counts(Plain(seed), LogitsOf(p), 20000), p), 18.47) << seed;
  // The same statistic must be able to fail.
  EXPECT_GT(ChiSquare(Counts(Plain(1), LogitsOf({0.37, 0.05, 0.25, 0.1, 0.23}), 20000), p), 18.47);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<double> p = {0.5, 0.3, 0.2};
  for (const double t : {0.5, 2.0}) {
    SamplerConfig c = Plain(7);
    c.temperature = t;
    std::vector<double> q;
    for (const double x : p) q.push_back(std::pow(x, 1 / t));
    const double sum = std::accumulate(q.begin(), q.end(), 0.0);
    for (double& x : q) x /= sum;
    EXPECT_LT(ChiSquare(Counts(c, LogitsOf(p), 20000), q), 13.82) << t;  // 2 degrees, 0.001
  }
}

TEST(Sampler, FilteredProbabilitiesAreRenormalised) {
  SamplerConfig c = Plain(11);
  c.top_k = 2;
  const std::vector<int> counts = Counts(c, LogitsOf({0.2, 0.5, 0.3}), 20000);
  EXPECT_EQ(counts[0], 0);
  EXPECT_LT(ChiSquare({counts[1], counts[2]}, {0.5 / 0.8, 0.3 / 0.8}), 10.83);  // 1 degree, 0.001
}

TEST(Sampler, GreedyIsTheArgmaxWithTiesToTheLowerId) {
  SamplerConfig c;
  c.temperature = 0;
  Sampler sampler(c);
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 3, 3, 2}, {}), 1);
  EXPECT_EQ(sampler.Sample(std::vector<float>{-5, -5}, {}), 0);
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sampler.Sample(std::vector<float>{nan, -inf, -7, nan}, {}), 2);
  EXPECT_EQ(sampler.Sample(std::vector<float>{-inf, -inf}, {}), 0);
}

// Of any length, with ties within and across blocks, zeros of both signs, infinities and NaN: the first of the greatest.
TEST(Argmax, IsTheFirstOfTheGreatest) {
  EXPECT_EQ(Argmax({}), 0);
  std::mt19937 rng(5);
  const float odd[] = {0.0f, -0.0f, std::nanf(""), -std::numeric_limits<float>::infinity(), 1, 2, -3};
  for (int pass = 0; pass < 2000; ++pass) {
    std::vector<float> logits(rng() % 1700);
    const bool few_values = pass % 2 == 0;
    for (float& x : logits) x = few_values ? odd[rng() % 7] : static_cast<float>(static_cast<int32_t>(rng())) * 1e-6f;
    if (pass % 5 == 0 && !logits.empty()) logits[rng() % logits.size()] = std::numeric_limits<float>::infinity();
    size_t first = 0;
    float greatest = -std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > greatest) first = i, greatest = logits[i];
    }
    ASSERT_EQ(Argmax(logits), static_cast<int32_t>(first)) << logits.size() << " logits, pass " << pass;
  }
}

TEST(Sampler, OddLogitsNeverBreakTheDraw) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Drawn(Plain(), {nan, 1, -inf, 1}), (Set{1, 3}));
  EXPECT_EQ(Drawn(Plain(), {-inf, nan}), (Set{0}));
  EXPECT_EQ(Drawn(Plain(), {0, inf, 0}), (Set{1}));
  EXPECT_EQ(Drawn(Plain(), {42}), (Set{0}));
  SamplerConfig cold = Plain();
  cold.temperature = 1e-300;
  EXPECT_EQ(Drawn(cold, {1, 1.0001f, 0}), (Set{1}));
}

// sampling.h's order: temperature 2 makes of 0.5, 0.3, 0.2 the probabilities 0.416, 0.322, 0.263, so the nucleus of 0.75 holds
// all three (before it, two: 0.5 + 0.3), and the last is 0.63 times as probable as the first (before it, 0.4 times).
TEST(Sampler, TemperatureComesBeforeTopPAndMinP) {
  const std::vector<float> logits = LogitsOf({0.5, 0.3, 0.2});
  SamplerConfig top_p = Plain(), min_p = Plain();
  top_p.top_p = 0.75;
  min_p.min_p = 0.5;
  for (SamplerConfig c : {top_p, min_p}) {
    EXPECT_EQ(Drawn(c, logits), (Set{0, 1}));
    c.temperature = 2;
    EXPECT_EQ(Drawn(c, logits), (Set{0, 1, 2}));
  }
  // And top-k before either: of the two that stay the nucleus of 0.6 is the first alone (0.625; of all three, 0.5, it is two).
  SamplerConfig both = Plain();
  both.top_p = 0.6;
  EXPECT_EQ(Drawn(both, logits), (Set{0, 1}));
  both.top_k = 2;
  EXPECT_EQ(Drawn(both, logits), (Set{0}));
}

TEST(Sampler, TopK) {
  const std::vector<float> logits = LogitsOf({0.1, 0.3, 0.2, 0.2, 0.2});
  SamplerConfig c = Plain();
  c.top_k = 1;
  EXPECT_EQ(Drawn(c, logits), (Set{1}));
  c.top_k = 2;  // of equal tokens the lower id stays
  EXPECT_EQ(Drawn(c, logits), (Set{1, 2}));
  c.top_k = 4;
  EXPECT_EQ(Drawn(c, logits), (Set{1, 2, 3, 4}));
  for (const int k : {0, -1, 5, 6, 1000}) {
    c.top_k = k;
    EXPECT_EQ(Drawn(c, logits), (Set{0, 1, 2, 3, 4})) << k;
  }
}

TEST(Sampler, TopP) {
  const std::vector<float> logits = LogitsOf({0.125, 0.5, 0.25, 0.125});
  SamplerConfig c = Plain();
  c.top_p = 0.0;  // never empty
  EXPECT_EQ(Drawn(c, logits), (Set{1}));
  c.top_p = 0.49;
  EXPECT_EQ(Drawn(c, logits), (Set{1}));
  c.top_p = 0.51;
  EXPECT_EQ(Drawn(c, logits), (Set{1, 2}));
  c.top_p = 0.76;  // one of the two equal ones is enough: the lower id
  EXPECT_EQ(Drawn(c, logits), (Set{0, 1, 2}));
  c.top_p = 0.88;
  EXPECT_EQ(Drawn(c, logits), (Set{0, 1, 2, 3}));
}

TEST(Sampler, TopPCountsProbabilitiesAmongTheTopK) {
  const std::vector<float> logits = LogitsOf({0.4, 0.3, 0.2, 0.1});
  SamplerConfig c = Plain();
  c.top_k = 2;     // 4/7 and 3/7
  c.top_p = 0.55;  // of all four the first alone would not reach it
  EXPECT_EQ(Drawn(c, logits), (Set{0}));
}

TEST(Sampler, MinP) {
  const std::vector<float> logits = LogitsOf({0.06, 0.6, 0.3, 0.04});
  SamplerConfig c = Plain();
  c.min_p = 0.09;
  EXPECT_EQ(Drawn(c, logits), (Set{0, 1, 2}));
  c.min_p = 0.11;
  EXPECT_EQ(Drawn(c, logits), (Set{1, 2}));
  c.min_p = 1;
  EXPECT_EQ(Drawn(c, logits), (Set{1}));
}

TEST(Sampler, RepeatPenalty) {
  SamplerConfig c;
  c.temperature = 0;
  c.repeat_penalty = 2;
  c.repeat_last_n = 3;
  const std::vector<float> logits = {4, 3, -1, -1.5f};
  auto next = [&](std::vector<int32_t> history) { return Sampler(c).Sample(logits, history); };
  EXPECT_EQ(next({}), 0);
  EXPECT_EQ(next({0}), 1);                // 4 -> 2
  EXPECT_EQ(next({0, 1}), 0);             // 2 against 1.5
  EXPECT_EQ(next({0, 2, 2, 2}), 0);       // out of the last three
  EXPECT_EQ(next({0, 0, 0, -1, 99}), 1);  // once however often; ids outside are ignored
  c.repeat_last_n = -1;
  EXPECT_EQ(next({0, 2, 2, 2}), 1);
  c.repeat_last_n = 0;
  EXPECT_EQ(next({0, 0}), 0);
  const std::vector<float> negative = {-1, -1.5f};  // -1 -> -2
  c.repeat_last_n = 3;
  EXPECT_EQ(Sampler(c).Sample(negative, std::vector<int32_t>{0}), 1);
}

// What is finite stays finite, be it as large as a logit can be; what is not stays what it is.
TEST(Sampler, ExtremeRepeatPenalties) {
  const float inf = std::numeric_limits<float>::infinity();
  SamplerConfig c = Plain();
  c.repeat_penalty = 1e-300;
  EXPECT_EQ(Drawn(c, {1, 2, 3}, {0, 1}), (Set{0, 1}));  // both the greatest: as infinities the first alone would be drawn
  EXPECT_EQ(Drawn(c, {-inf, 1, 3}, {0, 1}), (Set{1}));
  EXPECT_EQ(Drawn(c, {-inf, -1, -2}, {0, 1, 2}), (Set{1, 2}));  // both 0
  c.repeat_penalty = 1e300;
  EXPECT_EQ(Drawn(c, {-inf, -3, -4}, {0, 1, 2}), (Set{1, 2}));  // both the least, and still more than none
  EXPECT_EQ(Drawn(c, {3, inf, 3}, {1}), (Set{1}));
  c.temperature = 0;
  EXPECT_EQ(Sampler(c).Sample(std::vector<float>{-inf, -3, -4}, std::vector<int32_t>{0, 1, 2}), 1);
}

TEST(Sampler, TheSeedDecides) {
  std::vector<float> logits(500);
  std::mt19937 rng(5);
  for (float& x : logits) x = std::normal_distribution<float>(0, 2)(rng);
  auto run = [&](uint64_t seed) {
    SamplerConfig c;
    c.seed = seed;
    Sampler sampler(c);
    std::vector<int32_t> out;
    for (int i = 0; i < 64; ++i) out.push_back(sampler.Sample(logits, out));
    return out;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

// The first draws of the generator, from the definitions of splitmix64 and xoshiro256** evaluated by hand in Python: with 1,000
// equal tokens of weight 2^40 the token is (draw mod 1000 * 2^40) / 2^40. The same on every machine.
TEST(Sampler, TheGeneratorIsThePublishedOne) {
  const std::vector<float> logits(1000, 0.0f);
  auto first = [&](uint64_t seed) {
    Sampler sampler(Plain(seed));
    std::vector<int32_t> out;
    for (int i = 0; i < 5; ++i) out.push_back(sampler.Sample(logits, {}));
    return out;
  };
  EXPECT_EQ(first(0), (std::vector<int32_t>{519, 567, 388, 204, 645}));
  EXPECT_EQ(first(42), (std::vector<int32_t>{987, 233, 235, 773, 708}));
}

// Selections against a full sort, for every way through them (heap, selection over all, none), with many ties.
TEST(Sampler, LargeVocabularyAgainstAFullSort) {
  constexpr uint32_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937 rng(kSeed);
  std::vector<float> logits(200000);
  for (float& x : logits) x = std::round(std::normal_distribution<float>(0, 3)(rng) * 64) / 64;
  const std::vector<int32_t> order = Order(logits);
  for (const int k : {1, 40, 2048, 2049, 150000, 0}) {
    for (const double top_p : {0.3, 0.95, 1.0}) {
      const size_t kept = k == 0 ? logits.size() : static_cast<size_t>(k);
      double total = 0, sum = 0;
      for (size_t i = 0; i < kept; ++i)
        total += std::exp(logits[static_cast<size_t>(order[i])] - logits[static_cast<size_t>(order[0])]);
      size_t nucleus = 0;
      while (nucleus < kept && sum < top_p * total * (1 - 1e-9)) {
        sum += std::exp(logits[static_cast<size_t>(order[nucleus++])] - logits[static_cast<size_t>(order[0])]);
      }
      std::set<int32_t> allowed(order.begin(), order.begin() + static_cast<ptrdiff_t>(nucleus));
      SamplerConfig c = Plain(9);
      c.top_k = k;
      c.top_p = top_p;
      Sampler sampler(c);
      std::set<int32_t> seen;
      for (int i = 0; i < 12; ++i) {
        const int32_t id = sampler.Sample(logits, {});
        EXPECT_TRUE(allowed.contains(id)) << "k " << k << " top_p " << top_p << " id " << id;
        seen.insert(id);
      }
      if (nucleus >= 40) {
        EXPECT_GT(seen.size(), 5u) << "k " << k << " top_p " << top_p;
      }
    }
  }
}

TEST(SamplerConfig, Validation) {
  auto with = [](auto set) {
    SamplerConfig c;
    set(c);
    return c.Validate();
  };
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(SamplerConfig().Validate().ok());
  EXPECT_TRUE(with([](SamplerConfig& c) { c.temperature = 0; }).ok());
  for (const double t : {nan, inf, -0.1}) {
    EXPECT_EQ(with([&](SamplerConfig& c) { c.temperature = t; }).message().substr(0, 11), "temperature");
  }
  for (const double p : {nan, -0.1, 1.1}) {
    EXPECT_EQ(with([&](SamplerConfig& c) { c.top_p = p; }).code(), StatusCode::kBadInput);
    EXPECT_EQ(with([&](SamplerConfig& c) { c.min_p = p; }).code(), StatusCode::kBadInput);
  }
  for (const double p : {nan, 0.0, -1.0, inf}) {
    EXPECT_EQ(with([&](SamplerConfig& c) { c.repeat_penalty = p; }).code(), StatusCode::kBadInput);
  }
  EXPECT_TRUE(with([](SamplerConfig& c) { c.top_k = -1; }).ok());
  EXPECT_EQ(with([](SamplerConfig& c) { c.top_k = -2; }).message(), "top-k must be 0 (off; -1 too) or more, not -2");
  EXPECT_FALSE(with([](SamplerConfig& c) { c.repeat_last_n = -2; }).ok());
}

}  // namespace
}  // namespace tally
