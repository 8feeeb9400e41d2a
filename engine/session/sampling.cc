// SPDX-License-Identifier: Apache-2.0
#include "engine/session/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include "engine/base/checked.h"
#include "engine/base/mix.h"
#include "engine/session/candidates.h"
#include "engine/session/token_weights.h"

namespace tally {
namespace {

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

std::vector<uint64_t> MaskWithout(size_t vocab, std::span<const int32_t> hidden) {
  std::vector<uint64_t> mask(DivCeil(vocab, 64), ~uint64_t{0});
  for (const int32_t id : hidden) {
    if (id >= 0 && static_cast<size_t>(id) < vocab) mask[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << id % 64);
  }
  return mask;
}

Sampler::Sampler(Sampler&& other) noexcept = default;
Sampler& Sampler::operator=(Sampler&& other) noexcept = default;
Sampler::~Sampler() = default;

Sampler::Sampler(const SamplerConfig& config)
    : config_(config),
      log2_min_p_(config.min_p > 0 ? ExactLog2(config.min_p) : -std::numeric_limits<double>::infinity()),
      candidates_(std::make_unique<Candidates>()) {
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

// The upper word of a draw times n: Lemire 2019, "Fast random integer generation in an interval". A small change of the weights, as
// between instruction sets, then changes few choices.
uint64_t Sampler::NextBelow(uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  const uint64_t skip = (0 - n) % n;  // 2^64 mod n draws are refused, so that every result is as likely
  Wide product = Wide{Next()} * n;
  while (static_cast<uint64_t>(product) < skip) product = Wide{Next()} * n;
  return static_cast<uint64_t>(product >> 64);
}

// The tokens of the repeat penalty, a bit each; nothing if it is off.
std::span<const uint64_t> Sampler::Penalised(size_t vocab, std::span<const int32_t> history) {
  if (config_.repeat_penalty == 1.0 || config_.repeat_last_n == 0) return {};
  if (config_.repeat_last_n > 0 && history.size() > static_cast<size_t>(config_.repeat_last_n)) {
    history = history.last(static_cast<size_t>(config_.repeat_last_n));
  }
  penalised_.assign(DivCeil(vocab, 64), 0);
  for (const int32_t id : history) {
    if (id >= 0 && static_cast<size_t>(id) < vocab) penalised_[static_cast<size_t>(id) / 64] |= uint64_t{1} << id % 64;
  }
  return penalised_;
}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> history, std::span<const uint64_t> mask) {
  Candidates& candidates = *candidates_;
  const std::optional<size_t> best =
      candidates.Begin(MaskedLogits(logits, mask, Penalised(logits.size(), history), config_.repeat_penalty));
  if (!best) return kNoToken;
  if (config_.temperature == 0 || !std::isfinite(candidates.max())) return static_cast<int32_t>(*best);
  candidates.KeepTopK(static_cast<size_t>(std::max(config_.top_k, 0)));
  candidates.SetTemperature(config_.temperature);
  candidates.KeepTopPAndMinP(config_.top_p, log2_min_p_);
  return static_cast<int32_t>(candidates.Find(NextBelow(candidates.Weigh())));
}

}  // namespace tally
