// SPDX-License-Identifier: Apache-2.0
#include "engine/session/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/mix.h"
#include "engine/session/token_weights.h"

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

// mu[j] - c[j] * frequency - (c[j] > 0) * presence, of tokens that were drawn, not of the prompt's.
TEST(Sampler, PresenceAndFrequencyPenalties) {
  SamplerConfig c;
  c.temperature = 0;
  c.frequency_penalty = .5;
  c.presence_penalty = 1;
  const std::vector<float> logits = {4, 2.6f, 1};
  const auto next = [&](const std::vector<int32_t>& history, size_t drawn) {
    return Sampler(c).Sample(logits, history, {}, drawn);
  };
  EXPECT_EQ(next({0, 0, 0}, 0), 0);
  EXPECT_EQ(next({0}, 1), 1);              // 4 - 1 - .5 = 2.5
  EXPECT_EQ(next({0, 0, 0, 1}, 1), 0);     // the first three are the prompt's
  EXPECT_EQ(next({0, 1}, 2), 0);           // 2.5 against 1.1
  EXPECT_EQ(next({0, 0, 0, 0, 1}, 5), 1);  // 1 against 1.1
  EXPECT_EQ(next({0, 0, 0, 0, 1, 99, -1}, 7), 1) << "ids outside are ignored";
  c.presence_penalty = -2;
  c.frequency_penalty = 0;
  EXPECT_EQ(next({2, 2}, 2), 0);
  EXPECT_EQ(next({1}, 1), 1) << "4.6 against 4: negative ones encourage";
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
// equal tokens of weight 2^40 the token is draw * 1000 / 2^64. The same on every machine.
TEST(Sampler, TheGeneratorIsThePublishedOne) {
  const std::vector<float> logits(1000, 0.0f);
  auto first = [&](uint64_t seed) {
    Sampler sampler(Plain(seed));
    std::vector<int32_t> out;
    for (int i = 0; i < 5; ++i) out.push_back(sampler.Sample(logits, {}));
    return out;
  };
  EXPECT_EQ(first(0), (std::vector<int32_t>{601, 747, 103, 416, 732}));
  EXPECT_EQ(first(42), (std::vector<int32_t>{83, 378, 680, 924, 991}));
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

// The sampler as its header says it, with copies and a full sort.
class PlainSampler {
 public:
  explicit PlainSampler(const SamplerConfig& config) : config_(config) {
    for (uint64_t i = 0; i < 4; ++i) state_[i] = SplitMix64(config.seed + i * kSplitMix64Step);
  }
  int32_t Sample(std::vector<float> logits, const std::vector<int32_t>& history, size_t drawn = 0,
                 std::span<const std::pair<int32_t, float>> bias = {}) {
    for (const auto& [id, added] : bias) {
      if (id >= 0 && static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] += added;
    }
    for (float& x : logits) x = std::isnan(x) ? -std::numeric_limits<float>::infinity() : x;
    Penalise(logits, history);
    Subtract(logits, {history.end() - static_cast<ptrdiff_t>(drawn), history.end()});
    const std::vector<int32_t> order = Order(logits);
    const auto logit = [&](size_t place) { return logits[static_cast<size_t>(order[place])]; };
    if (config_.temperature == 0 || !std::isfinite(logit(0))) return order[0];
    size_t kept = config_.top_k > 0 ? std::min(logits.size(), static_cast<size_t>(config_.top_k)) : logits.size();
    const TokenWeights weights(logit(0), config_.temperature);
    const auto weight_of = [&](float x) { return x >= weights.LeastLogit() ? weights.Of(x) : 0; };
    const auto sum = [&](size_t n) {
      uint64_t all = 0;
      for (size_t i = 0; i < n; ++i) all += weight_of(logit(i));
      return all;
    };
    if (config_.top_p < 1) {
      const uint64_t target = static_cast<uint64_t>(std::max(1.0, std::ceil(config_.top_p * static_cast<double>(sum(kept)))));
      uint64_t before = 0;
      size_t n = 0;
      while (n < kept && before < target) before += weight_of(logit(n++));
      kept = n;
    }
    if (config_.min_p > 0) {
      while (logit(kept - 1) < weights.LogitAt(ExactLog2(config_.min_p))) --kept;
    }
    uint64_t draw = Below(sum(kept));
    std::vector<int32_t> ids(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept));
    std::sort(ids.begin(), ids.end());
    for (const int32_t id : ids) {
      const uint64_t weight = weight_of(logits[static_cast<size_t>(id)]);
      if (draw < weight) return id;
      draw -= weight;
    }
    return -2;
  }

 private:
  void Penalise(std::vector<float>& logits, const std::vector<int32_t>& history) const {
    if (config_.repeat_penalty == 1) return;
    const size_t n = history.size();
    const size_t last = config_.repeat_last_n < 0 ? n : std::min(n, static_cast<size_t>(config_.repeat_last_n));
    for (const int32_t id : std::set<int32_t>(history.end() - static_cast<ptrdiff_t>(last), history.end())) {
      if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
      float& logit = logits[static_cast<size_t>(id)];
      if (!std::isfinite(logit)) continue;
      const double penalised = logit > 0 ? logit / config_.repeat_penalty : logit * config_.repeat_penalty;
      constexpr double kMost = std::numeric_limits<float>::max();
      logit = static_cast<float>(std::clamp(penalised, -kMost, kMost));
    }
  }
  void Subtract(std::vector<float>& logits, const std::vector<int32_t>& drawn) const {
    std::map<int32_t, int> counts;
    for (const int32_t id : drawn) ++counts[id];
    for (const auto& [id, count] : counts) {
      if (id < 0 || static_cast<size_t>(id) >= logits.size() || !std::isfinite(logits[static_cast<size_t>(id)])) continue;
      logits[static_cast<size_t>(id)] =
          static_cast<float>(logits[static_cast<size_t>(id)] - (config_.presence_penalty + config_.frequency_penalty * count));
    }
  }
  uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9, shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  uint64_t Below(uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    for (;;) {
      const Wide product = Wide{Next()} * n;
      if (static_cast<uint64_t>(product) >= (0 - n) % n) return static_cast<uint64_t>(product >> 64);
    }
  }

  SamplerConfig config_;
  uint64_t state_[4];
};

// A vocabulary of any length with logits of any shape: spread, with many ties, all equal but few, NaN and infinities among them.
std::vector<float> AnyLogits(std::mt19937& rng) {
  const size_t vocab = rng() % 4 == 0 ? 1 + rng() % 20 : rng() % 8 == 0 ? 1 + rng() % 30000 : 1 + rng() % 3000;
  std::vector<float> logits(vocab);
  std::normal_distribution<float> normal(0, std::exp2(static_cast<float>(rng() % 8) - 2));
  const float step = rng() % 3 == 0 ? 0.5f : 0.0f, noise = rng() % 4 == 0 ? 0.0f : 1.0f;
  const float middle = static_cast<float>(static_cast<int>(rng() % 41) - 20);
  for (float& x : logits) {
    x = middle + noise * normal(rng);
    if (step > 0) x = std::round(x / step) * step;
  }
  const float odd[] = {0.0f, -0.0f, std::nanf(""), -std::numeric_limits<float>::infinity(), 30, middle};
  if (rng() % 2 == 0) {
    for (size_t i = 0; i < 1 + vocab / 50; ++i) logits[rng() % vocab] = odd[rng() % 6];
  }
  return logits;
}

SamplerConfig AnyConfig(std::mt19937& rng) {
  const auto one_of = [&](std::initializer_list<double> values) { return values.begin()[rng() % values.size()]; };
  SamplerConfig c;
  c.repeat_penalty = one_of({1, 1, 1.1, 0.8, 1e300});
  c.presence_penalty = one_of({0, 0, 1.5, -2});
  c.frequency_penalty = one_of({0, 0, .25, 2, -1});
  c.repeat_last_n = static_cast<int32_t>(one_of({-1, 0, 3, 64}));
  c.top_k = static_cast<int32_t>(one_of({-1, 0, 0, 1, 2, 40, 600, 2048, 2049, 10000}));
  c.temperature = one_of({0, 0.01, 0.8, 1, 1, 3, 1e30});
  c.top_p = one_of({0, 0.1, 0.5, 0.95, 0.95, 0.999999, 1, 1});
  c.min_p = one_of({0, 0, 0, 1e-6, 0.05, 0.05, 0.5, 1});
  c.seed = rng();
  return c;
}

std::vector<int32_t> AnyHistory(std::mt19937& rng, size_t vocab) {
  std::vector<int32_t> history(rng() % 100);
  for (int32_t& id : history) id = static_cast<int32_t>(rng() % (vocab + 2)) - 1;
  return history;
}

TEST(Sampler, DrawsWhatAPlainOneDraws) {
  std::mt19937 rng(20251126);
  for (int pass = 0; pass < 250; ++pass) {
    const SamplerConfig config = AnyConfig(rng);
    Sampler sampler(config);
    PlainSampler plain(config);
    for (int i = 0; i < 4; ++i) {
      const std::vector<float> logits = AnyLogits(rng);
      const std::vector<int32_t> history = AnyHistory(rng, logits.size());
      const size_t drawn = history.empty() ? 0 : rng() % history.size();
      std::vector<std::pair<int32_t, float>> bias(rng() % 4);
      for (auto& [id, added] : bias) {
        id = static_cast<int32_t>(rng() % (logits.size() + 2)) - 1;
        added = static_cast<float>(static_cast<int>(rng() % 21) - 10);
      }
      sampler.SetBias(bias);
      ASSERT_EQ(sampler.Sample(logits, history, {}, drawn), plain.Sample(logits, history, drawn, bias))
          << "pass " << pass << ", " << logits.size() << " logits, top-k " << config.top_k << ", top-p " << config.top_p
          << ", min-p " << config.min_p << ", temperature " << config.temperature << ", penalty " << config.repeat_penalty;
    }
  }
}

TEST(Sampler, AMaskIsLogitsOfMinusInfinity) {
  std::mt19937 rng(77);
  for (int pass = 0; pass < 250; ++pass) {
    const SamplerConfig config = AnyConfig(rng);
    Sampler masked(config), copied(config);
    for (int i = 0; i < 4; ++i) {
      std::vector<float> logits = AnyLogits(rng);
      const size_t vocab = logits.size();
      std::vector<uint64_t> mask((vocab + 63) / 64);
      const auto kind = rng() % 4;  // most, half, few, or whole words
      for (uint64_t& word : mask) {
        const auto half = [&] { return static_cast<uint64_t>(rng()) << 32 | rng(); };
        word = kind == 0   ? half() | half() | half()
               : kind == 1 ? half()
               : kind == 2 ? half() & half() & half() & half()
                           : rng() % 2 - 1;
      }
      std::vector<float> copy = logits;
      size_t first = vocab;
      for (size_t id = vocab; id-- > 0;) {
        if ((mask[id / 64] >> id % 64 & 1) == 0) {
          copy[id] = -std::numeric_limits<float>::infinity();
        } else {
          first = id;
        }
      }
      const std::vector<int32_t> history = AnyHistory(rng, vocab);
      const bool none =
          std::none_of(copy.begin(), copy.end(), [](float x) { return x > -std::numeric_limits<float>::infinity(); });
      const int32_t token = masked.Sample(logits, history, mask);
      if (!none) {
        ASSERT_EQ(token, copied.Sample(copy, history)) << "pass " << pass << ", " << vocab << " logits";
      } else {
        ASSERT_EQ(token, first == vocab ? Sampler::kNoToken : static_cast<int32_t>(first)) << "pass " << pass;
      }
    }
  }
}

TEST(Sampler, WhatAMaskForbidsIsNeverReturned) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const double temperature : {0.0, 1.0}) {
    SamplerConfig config = Plain(3);
    config.temperature = temperature;
    Sampler sampler(config), other(config);
    const std::vector<float> logits = {inf, 1, -inf, std::nanf("")};
    const auto with = [&](std::vector<uint64_t> mask) { return sampler.Sample(logits, {}, mask); };
    EXPECT_EQ(with({0}), Sampler::kNoToken);
    EXPECT_EQ(with({~uint64_t{15}}), Sampler::kNoToken);  // bits behind the vocabulary
    EXPECT_EQ(with({2}), 1);
    EXPECT_EQ(with({4}), 2);
    EXPECT_EQ(with({8}), 3);
    EXPECT_EQ(with({12}), 2);
    EXPECT_EQ(with({15}), 0);
    EXPECT_EQ(with({}), 0);
    const std::vector<float> many(130, 0.0f);  // missing words allow nothing
    for (int i = 0; i < 100; ++i) EXPECT_LT(sampler.Sample(many, {}, std::vector<uint64_t>{~uint64_t{0}}), 64);
    if (temperature == 0) continue;
    other.Sample(logits, {}, std::vector<uint64_t>{2});  // a draw of one token
    for (int i = 0; i < 100; ++i) other.Sample(many, {}, std::vector<uint64_t>{~uint64_t{0}});
    EXPECT_EQ(other.Sample(many, {}), sampler.Sample(many, {}));  // no random number was used for the others
  }
}

TEST(Sampler, MaskWithout) {
  EXPECT_EQ(MaskWithout(70, std::vector<int32_t>{0, 69, 65, 65, -1, 70, 1000}),
            (std::vector<uint64_t>{~uint64_t{1}, ~(uint64_t{1} << 5 | uint64_t{1} << 1)}));
}

TEST(TokenWeights, ArePowersOfTwo) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<double> log2_weight(-41, 0), any_temperature(0.05, 20);
  constexpr double kLog2E = 1.4426950408889634;
  for (int i = 0; i < 200000; ++i) {
    const double temperature = any_temperature(rng);
    const float max = static_cast<float>(log2_weight(rng) + 20),
                logit = static_cast<float>(max + log2_weight(rng) / kLog2E * temperature);
    const TokenWeights weights(max, temperature);
    const double y = (static_cast<double>(logit) - max) / temperature * kLog2E, exact = std::exp2(y + 40);
    ASSERT_NEAR(static_cast<double>(weights.Of(logit)), exact, 0.51 + exact * (1 - y) * 0x1p-22) << logit << " of " << max;
    ASSERT_GE(logit, weights.LeastLogit());
  }
  const TokenWeights weights(3, 0.7);
  EXPECT_EQ(weights.Of(3), kUnitWeight);
  EXPECT_EQ(weights.Of(weights.LeastLogit()), 0u);
  EXPECT_EQ(weights.LogitAt(0), 3.0f);
  // Temperatures and logits as large and small as they can be: equal to the best, or something in between, never an odd number.
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const double temperature : {5e-324, 1e-300, 1e-30, 1e30, 1e38, 1e40, 1.7e308}) {
    for (const float max : {-kMost, -1.0f, 0.0f, 1e-45f, 1.0f, kMost}) {
      const TokenWeights extreme(max, temperature);
      const float least = extreme.LeastLogit();
      ASSERT_TRUE(std::isfinite(least) && least <= max);
      EXPECT_EQ(extreme.Of(max), kUnitWeight);
      EXPECT_LE(extreme.Of(least), kUnitWeight);
    }
  }
}

TEST(TokenWeights, ExactLog2) {
  for (double x = 1e-320; x < 1e300; x *= 1.0037)
    ASSERT_NEAR(ExactLog2(x), std::log2(x), 1e-15 + std::abs(std::log2(x)) * 4e-16) << x;
  for (int k = -1070; k < 1000; ++k) ASSERT_EQ(ExactLog2(std::ldexp(1.0, k)), k);
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
