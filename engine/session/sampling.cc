// SPDX-License-Identifier: Apache-2.0
#include "engine/session/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "engine/base/mix.h"

namespace tally {
namespace {

constexpr uint64_t kUnit = uint64_t{1} << 40;  // weight of the most probable token; 2^23 of them still fit a sum
constexpr size_t kHeapLimit = 2048;            // top-k up to this uses a heap of k, else a selection over all
constexpr float kLowest = -std::numeric_limits<float>::infinity();

float Ordered(float x) { return std::isnan(x) ? kLowest : x; }

// exp(x) for x <= 0 from additions, multiplications and divisions, which IEEE 754 rounds correctly, and from floor and ldexp,
// which are exact here, so that every machine gets the same bits (libm's exp differs between versions).
// x = n ln2 + r, |r| <= ln2 / 2; the Taylor polynomial of degree 13 errs by less than 1e-17.
double ExpOfNonPositive(double x) {
  if (!(x > -700.0)) return 0.0;
  constexpr double kLog2E = 0x1.71547652b82fep+0, kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const double n = std::floor(x * kLog2E + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1.0;
  for (int i = 13; i >= 1; --i) sum = 1.0 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(n));
}

std::string Shown(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

}  // namespace

Status SamplerConfig::Validate() const {
  auto bad = [](const std::string& what, const std::string& range, double got) {
    return BadInput(what + " must be " + range + ", not " + Shown(got));
  };
  if (!std::isfinite(temperature) || temperature < 0) return bad("temperature", "0 (greedy) or more", temperature);
  if (top_k < -1) return bad("top-k", "0 (off; -1 too) or more", top_k);
  if (!(top_p >= 0 && top_p <= 1)) return bad("top-p", "between 0 and 1 (off)", top_p);
  if (!(min_p >= 0 && min_p <= 1)) return bad("min-p", "between 0 (off) and 1", min_p);
  if (!std::isfinite(repeat_penalty) || repeat_penalty <= 0) {
    return bad("repeat-penalty", "above 0 (1: off)", repeat_penalty);
  }
  if (repeat_last_n < -1) return bad("repeat-last-n", "-1 (all) or more", repeat_last_n);
  return {};
}

int32_t Argmax(std::span<const float> logits) {
  // Finds each block's maximum first, in lanes that the compiler vectorises; searches its index only if it beats the best so far.
  constexpr size_t kLanes = 16, kBlock = 32 * kLanes;
  size_t best = 0;
  float best_logit = kLowest;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::span<const float> block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    float greatest[kLanes];
    std::fill_n(greatest, kLanes, best_logit);
    size_t i = 0;
    for (; i + kLanes <= block.size(); i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) greatest[j] = block[i + j] > greatest[j] ? block[i + j] : greatest[j];  // false for NaN
    }
    for (; i < block.size(); ++i) greatest[0] = block[i] > greatest[0] ? block[i] : greatest[0];
    const float of_block = *std::max_element(greatest, greatest + kLanes);
    if (!(of_block > best_logit)) continue;
    best_logit = of_block;
    best = begin + static_cast<size_t>(std::find(block.begin(), block.end(), of_block) - block.begin());
  }
  return static_cast<int32_t>(best);
}

Sampler::Sampler(const SamplerConfig& config) : config_(config) {
  // splitmix64 fills the state from the seed, as the generator's authors advise.
  uint64_t x = config.seed;
  for (uint64_t& word : state_) {
    word = SplitMix64(x);
    x += kSplitMix64Step;
  }
}

// xoshiro256**: Blackman and Vigna 2021, "Scrambled linear pseudorandom number generators".
uint64_t Sampler::Next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

uint64_t Sampler::NextBelow(uint64_t n) {
  const uint64_t skip = (0 - n) % n;  // 2^64 mod n draws are refused, so that every remainder is as likely
  uint64_t draw = Next();
  while (draw < skip) draw = Next();
  return draw % n;
}

std::span<const float> Sampler::Penalise(std::span<const float> logits, std::span<const int32_t> history) {
  if (config_.repeat_penalty == 1.0 || config_.repeat_last_n == 0) return logits;
  if (config_.repeat_last_n > 0 && history.size() > static_cast<size_t>(config_.repeat_last_n)) {
    history = history.last(static_cast<size_t>(config_.repeat_last_n));
  }
  penalised_.assign(logits.begin(), logits.end());
  for (const int32_t id : history) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    // Uses the original logit, so that a token that occurs twice is penalised once.
    const double logit = logits[id], p = config_.repeat_penalty;
    if (!std::isfinite(logit)) continue;
    constexpr double kMost = std::numeric_limits<float>::max();
    penalised_[id] = static_cast<float>(std::clamp(logit > 0 ? logit / p : logit * p, -kMost, kMost));
  }
  return penalised_;
}

void Sampler::KeepTopK(std::span<const float> logits, size_t k) {
  candidates_.clear();
  if (k == 0 || k >= logits.size()) {
    for (size_t i = 0; i < logits.size(); ++i) candidates_.push_back({Ordered(logits[i]), static_cast<int32_t>(i), 0});
    return;
  }
  if (k <= kHeapLimit) {
    // A heap of the best k so far, the worst on top. A later token enters only with a greater logit, since ties go to the lower id;
    // a block without one is skipped.
    for (size_t i = 0; i < k; ++i) candidates_.push_back({Ordered(logits[i]), static_cast<int32_t>(i), 0});
    std::make_heap(candidates_.begin(), candidates_.end(), Above);
    constexpr size_t kBlock = 64;
    for (size_t begin = k; begin < logits.size(); begin += kBlock) {
      const size_t end = std::min(begin + kBlock, logits.size());
      const float least = candidates_.front().logit;
      bool any = false;
      for (size_t i = begin; i < end; ++i) any |= logits[i] > least;  // false for NaN
      if (!any) continue;
      for (size_t i = begin; i < end; ++i) {
        if (!(logits[i] > candidates_.front().logit)) continue;
        std::pop_heap(candidates_.begin(), candidates_.end(), Above);
        candidates_.back() = {logits[i], static_cast<int32_t>(i), 0};
        std::push_heap(candidates_.begin(), candidates_.end(), Above);
      }
    }
  } else {
    for (size_t i = 0; i < logits.size(); ++i) candidates_.push_back({Ordered(logits[i]), static_cast<int32_t>(i), 0});
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k - 1), candidates_.end(), Above);
    candidates_.resize(k);
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

// A token less than 2^-40 as probable as the best gets weight 0 and is never drawn.
void Sampler::Weigh(float max) {
  for (Candidate& c : candidates_) {
    const double x = (static_cast<double>(c.logit) - max) / config_.temperature;
    c.weight = static_cast<uint64_t>(std::llround(ExpOfNonPositive(x) * static_cast<double>(kUnit)));
  }
  std::erase_if(candidates_, [](const Candidate& c) { return c.weight == 0; });
}

// Finds the last token of the nucleus by weighted selection: halves the candidates and keeps the half in which the sum reaches
// the target.
void Sampler::KeepTopP() {
  if (config_.top_p >= 1.0) return;
  uint64_t total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  const uint64_t target = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(config_.top_p * static_cast<double>(total))));
  selection_ = candidates_;
  auto begin = selection_.begin(), end = selection_.end();
  uint64_t before = 0;  // weight of the tokens above `begin`
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, Above);
    uint64_t upper = 0;
    for (auto it = begin; it != middle; ++it) upper += it->weight;
    if (before + upper >= target) {
      end = middle;
    } else {
      before += upper;
      begin = middle;
    }
  }
  const Candidate last = *begin;
  std::erase_if(candidates_, [&](const Candidate& c) { return Above(last, c); });
}

void Sampler::KeepMinP() {
  if (config_.min_p <= 0) return;
  const double least = config_.min_p * static_cast<double>(kUnit);
  std::erase_if(candidates_, [&](const Candidate& c) { return static_cast<double>(c.weight) < least; });
}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> history) {
  logits = Penalise(logits, history);
  const int32_t best = Argmax(logits);
  if (config_.temperature == 0) return best;
  const float max = logits[static_cast<size_t>(best)];
  if (!std::isfinite(max)) return best;  // nothing to weigh
  KeepTopK(logits, static_cast<size_t>(std::max(config_.top_k, 0)));
  Weigh(max);
  KeepTopP();
  KeepMinP();
  uint64_t total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  uint64_t draw = NextBelow(total);
  for (const Candidate& c : candidates_) {
    if (draw < c.weight) return c.id;
    draw -= c.weight;
  }
  return best;  // not reached: draw < total
}

}  // namespace tally
