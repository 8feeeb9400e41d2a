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
  if (!(std::fabs(presence_penalty) <= 2)) return bad("presence-penalty", "from -2 to 2 (0: off)", presence_penalty);
  if (!(std::fabs(frequency_penalty) <= 2)) return bad("frequency-penalty", "from -2 to 2 (0: off)", frequency_penalty);
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

void Sampler::SetBias(std::span<const std::pair<int32_t, float>> bias) { bias_.assign(bias.begin(), bias.end()); }

// Of a token of changed_.
ChangedLogit* Sampler::Find(int32_t token) {
  const auto before = [](const ChangedLogit& c, size_t t) { return c.token < t; };
  return &*std::lower_bound(changed_.begin(), changed_.end(), static_cast<size_t>(token), before);
}

// The logits that bias and penalties change.
std::span<const ChangedLogit> Sampler::Changed(std::span<const float> logits, std::span<const int32_t> history, size_t drawn) {
  std::span<const int32_t> recent = history, own = history.last(std::min(drawn, history.size()));
  if (config_.repeat_penalty == 1.0) recent = {};
  if (config_.repeat_last_n >= 0) recent = recent.last(std::min(recent.size(), static_cast<size_t>(config_.repeat_last_n)));
  if (config_.presence_penalty == 0 && config_.frequency_penalty == 0) own = {};
  if (recent.empty() && own.empty() && bias_.empty()) return {};
  const size_t vocab = logits.size();
  const auto is_token = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < vocab; };
  const auto mark = [&](std::vector<uint64_t>& bits, int32_t id) {
    if (is_token(id)) bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << id % 64;
  };
  repeated_.assign(DivCeil(vocab, 64), 0);
  for (const int32_t id : recent) mark(repeated_, id);
  marked_ = repeated_;
  for (const int32_t id : own) mark(marked_, id);
  for (const auto& [id, bias] : bias_) mark(marked_, id);
  changed_.clear();
  for (size_t word = 0; word < marked_.size(); ++word) {
    for (uint64_t rest = marked_[word]; rest != 0; rest &= rest - 1) {
      const size_t token = word * 64 + static_cast<size_t>(std::countr_zero(rest));
      changed_.push_back({token, logits[token]});
    }
  }
  for (const auto& [id, bias] : bias_) {
    if (is_token(id)) Find(id)->logit += bias;
  }
  counts_.assign(changed_.size(), 0);
  for (const int32_t id : own) {
    if (is_token(id)) ++counts_[static_cast<size_t>(Find(id) - changed_.data())];
  }
  for (size_t i = 0; i < changed_.size(); ++i) {
    float& logit = changed_[i].logit;
    if (!std::isfinite(logit)) continue;
    const auto round = [](double x) {
      constexpr double kMost = std::numeric_limits<float>::max();
      return static_cast<float>(std::clamp(x, -kMost, kMost));
    };
    if ((repeated_[changed_[i].token / 64] >> (changed_[i].token % 64) & 1) != 0) {
      logit = round(logit > 0 ? logit / config_.repeat_penalty : logit * config_.repeat_penalty);
    }
    if (counts_[i] > 0) {
      logit = round(logit - (config_.presence_penalty + config_.frequency_penalty * static_cast<double>(counts_[i])));
    }
  }
  return changed_;
}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> history, std::span<const uint64_t> mask,
                        size_t drawn) {
  Candidates& candidates = *candidates_;
  const std::optional<size_t> best = candidates.Begin(MaskedLogits(logits, mask, Changed(logits, history, drawn)));
  if (!best) return kNoToken;
  if (config_.temperature == 0 || !std::isfinite(candidates.max())) return static_cast<int32_t>(*best);
  candidates.KeepTopK(static_cast<size_t>(std::max(config_.top_k, 0)));
  candidates.SetTemperature(config_.temperature);
  candidates.KeepTopPAndMinP(config_.top_p, log2_min_p_);
  return static_cast<int32_t>(candidates.Find(NextBelow(candidates.Weigh())));
}

}  // namespace tally
