// SPDX-License-Identifier: Apache-2.0
// The choice of a token from the logits of one row, on one thread, by vocabulary, filters and the shape of the logits. Before a case is
// timed, 2,000 draws are compared with probabilities found by a full sort and the library's exp: none falls outside of what the filters
// keep, and three groups of tokens come as often as they should.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/session/sampling.h"

namespace tally {
namespace {

int failures = 0;

enum class Shape { kModel, kWide, kFlat };

struct Case {
  const char* name;
  Shape shape;
  int32_t top_k;
  double top_p, min_p;
  double penalty = 1;
  int allowed_percent = 100;
};

constexpr double kTemperature = 0.8;

// kModel: most tokens some 15 nats below the best, as language models have it; kWide: a normal distribution without a best one; kFlat:
// all but equal.
std::vector<float> Logits(Shape shape, size_t vocab) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0, shape == Shape::kModel ? 2.0f : shape == Shape::kWide ? 3.0f : 1e-3f);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = normal(rng);
  if (shape != Shape::kModel) return logits;
  for (int i = 0; i < 200; ++i) logits[rng() % vocab] = 14.0f - 2.0f * std::log2(1.0f + static_cast<float>(i));
  return logits;
}

std::vector<uint64_t> Mask(size_t vocab, int allowed_percent) {
  if (allowed_percent == 100) return {};
  std::mt19937 rng(8);
  std::vector<uint64_t> mask((vocab + 63) / 64);
  for (size_t i = 0; i < vocab; ++i) mask[i / 64] |= uint64_t{static_cast<int>(rng() % 100) < allowed_percent} << i % 64;
  return mask;
}

// The probability of each token; 0 for those that the filters drop. `slack` moves the bounds of the filters.
std::vector<double> Probabilities(const Case& c, const SamplerConfig& config, std::vector<float> logits,
                                  const std::vector<uint64_t>& mask, const std::vector<int32_t>& history, double slack) {
  for (const int32_t id : history) {
    if (c.penalty != 1) logits[id] = static_cast<float>(logits[id] > 0 ? logits[id] / c.penalty : logits[id] * c.penalty);
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (mask.empty() || (mask[i / 64] >> i % 64 & 1) != 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (config.top_k > 0 && order.size() > static_cast<size_t>(config.top_k)) order.resize(config.top_k);
  std::vector<double> p(logits.size());
  double sum = 0;
  for (const size_t i : order) sum += p[i] = std::exp((static_cast<double>(logits[i]) - logits[order[0]]) / kTemperature);
  double kept = 0, before = 0;
  for (const size_t i : order) {
    if (before >= (config.top_p + slack) * sum || p[i] < config.min_p * (1 - slack)) {
      p[i] = 0;
    } else {
      before += p[i];
      kept += p[i];
    }
  }
  for (double& x : p) x /= kept;
  return p;
}

std::string Wrong(const Case& c, const SamplerConfig& config, const std::vector<float>& logits, const std::vector<uint64_t>& mask,
                  const std::vector<int32_t>& history) {
  constexpr int kDraws = 2000;
  const std::vector<double> most = Probabilities(c, config, logits, mask, history, 1e-6);
  Sampler sampler(config);
  const size_t best = static_cast<size_t>(std::max_element(most.begin(), most.end()) - most.begin());
  // The best token, tokens of even ids, tokens of the lower half.
  const auto in_group = [&](int group, size_t id) {
    return group == 0 ? id == best : group == 1 ? id % 2 == 0 : id < logits.size() / 2;
  };
  int drawn[3] = {};
  for (int i = 0; i < kDraws; ++i) {
    const size_t id = static_cast<size_t>(sampler.Sample(logits, history, mask));
    if (id >= most.size() || most[id] == 0) return "draws a token that the filters drop";
    for (int group = 0; group < 3; ++group) drawn[group] += in_group(group, id) ? 1 : 0;
  }
  for (int group = 0; group < 3; ++group) {
    double p = 0;
    for (size_t id = 0; id < most.size(); ++id) p += in_group(group, id) ? most[id] : 0;
    if (std::fabs(drawn[group] - kDraws * p) > 5 * std::sqrt(kDraws * p * (1 - p)) + 1) return "draws with other probabilities";
  }
  return "";
}

void Sampling(benchmark::State& state, const Case& c) {
  const size_t vocab = static_cast<size_t>(state.range(0));
  const std::vector<float> logits = Logits(c.shape, vocab);
  const std::vector<uint64_t> mask = Mask(vocab, c.allowed_percent);
  std::vector<int32_t> history;
  for (size_t i = 0; i < 64; ++i) history.push_back(static_cast<int32_t>(i * 7919 % vocab));
  SamplerConfig config;
  config.top_k = c.top_k, config.top_p = c.top_p, config.min_p = c.min_p;
  config.temperature = kTemperature;
  config.repeat_penalty = c.penalty;
  if (const std::string wrong = Wrong(c, config, logits, mask, history); !wrong.empty()) {
    ++failures;
    return state.SkipWithError(wrong.c_str());
  }
  Sampler sampler(config);
  for (auto _ : state) benchmark::DoNotOptimize(sampler.Sample(logits, history, mask));
  state.counters["ns/logit"] = benchmark::Counter(static_cast<double>(vocab) * 1e-9,
                                                  benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

constexpr Case kCases[] = {
    {"model/defaults", Shape::kModel, 40, .95, .05},
    {"model/defaults_penalty", Shape::kModel, 40, .95, .05, 1.1},
    {"model/defaults_mask_99%", Shape::kModel, 40, .95, .05, 1, 99},
    {"model/defaults_mask_1%", Shape::kModel, 40, .95, .05, 1, 1},
    {"model/top-k_10000", Shape::kModel, 10000, .95, .05},
    {"model/no_top-k", Shape::kModel, 0, .95, .05},
    {"model/no_top-k_mask_99%", Shape::kModel, 0, .95, .05, 1, 99},
    {"model/top-p_only", Shape::kModel, 0, .95, 0},
    {"model/no_filter", Shape::kModel, 0, 1, 0},
    {"wide/defaults", Shape::kWide, 40, .95, .05},
    {"wide/no_top-k", Shape::kWide, 0, .95, .05},
    {"wide/top-p_only", Shape::kWide, 0, .95, 0},
    {"wide/no_filter", Shape::kWide, 0, 1, 0},
    {"flat/defaults", Shape::kFlat, 40, .95, .05},
    {"flat/top-p_only", Shape::kFlat, 0, .95, 0},
    {"flat/no_filter", Shape::kFlat, 0, 1, 0},
};

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const tally::Case& c : tally::kCases) {
    benchmark::RegisterBenchmark(c.name, [&c](benchmark::State& state) { tally::Sampling(state, c); })
        ->ArgName("vocab")
        ->Arg(32000)
        ->Arg(200000)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return tally::failures == 0 ? 0 : 1;  // the library's own answer to an error is 0
}
