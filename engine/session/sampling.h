// SPDX-License-Identifier: Apache-2.0
// Sampling from logits: bias, penalties, top-k, temperature, top-p, min-p, under a mask. The vocabulary is neither sorted nor copied:
// each filter finds the last token that it keeps, in a few passes over the logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally {

class Candidates;
struct ChangedLogit;

// The filters are applied in this order. Each keeps the most probable tokens; of equal ones, the lower id.
struct SamplerConfig {
  double repeat_penalty = 1.0;  // 1: off. For tokens in the last `repeat_last_n`, divides positive logits and multiplies
                                // others (Keskar et al. 2019, "CTRL", section 4.1)
  int32_t repeat_last_n = 64;   // 0: none, -1: all
  // 0: off. Subtracted from the logits of tokens that were drawn before: once, and as often as they were
  // (https://platform.openai.com/docs/guides/text-generation, "Frequency and presence penalties"). From -2 to 2.
  double presence_penalty = 0, frequency_penalty = 0;
  int32_t top_k = 40;        // 0 or -1: off
  double temperature = 0.8;  // 0: greedy
  double top_p = 0.95;       // 1: off; the fewest tokens whose probabilities (among the top k) reach it
                             // (Holtzman et al. 2020, "nucleus sampling"), at least one
  double min_p = 0.05;       // 0: off; tokens at least this times as probable as the most probable one (Nguyen et al. 2024)
  uint64_t seed = 0;

  // kBadInput naming the option and its range.
  TALLY_API Status Validate() const;
};

// A mask of `vocab` tokens, as Sampler::Sample takes it, which allows all but `hidden`; ids outside the vocabulary are ignored.
TALLY_API std::vector<uint64_t> MaskWithout(size_t vocab, std::span<const int32_t> hidden);

// Random state and scratch of one sequence. Not to be used by two threads at once.
class Sampler {
 public:
  static constexpr int32_t kNoToken = -1;

  // `config` must be valid.
  TALLY_API explicit Sampler(const SamplerConfig& config);
  TALLY_API Sampler(Sampler&& other) noexcept;
  TALLY_API Sampler& operator=(Sampler&& other) noexcept;
  TALLY_API ~Sampler();
  // Added to the logits of these tokens before all else; of a token that comes several times, the sum. Ids outside the vocabulary are
  // ignored.
  TALLY_API void SetBias(std::span<const std::pair<int32_t, float>> bias);
  // The next token, from `logits` [vocab], not empty. `history`: the tokens so far, prompt included, for the repeat penalty; the last
  // `drawn` of them are those of presence and frequency penalties.
  // `mask` [(vocab + 63) / 64]: bit i % 64 of word i / 64 allows token i; words that are missing allow none, an empty mask allows all. A
  // mask gives the same token as logits of minus infinity in place of those that it forbids, and never a forbidden one. kNoToken if it
  // allows none; no random number is used then.
  // Temperature 0 gives the argmax, ties to the lower id. NaN counts as minus infinity. If all allowed logits are that, the first allowed
  // token is returned.
  // The same seed, logits, history and mask give the same token on every machine: weights are found by operations that IEEE 754 rounds
  // correctly, and are integers in units of 2^-40 of the largest, so that sums do not depend on order. If a token is 2^-n times as probable
  // as the best, its weight errs by less than (1 + n) 2^-22 of itself; for n > 41 the token is never drawn.
  TALLY_API int32_t Sample(std::span<const float> logits, std::span<const int32_t> history, std::span<const uint64_t> mask = {},
                           size_t drawn = 0);

 private:
  std::span<const ChangedLogit> Changed(std::span<const float> logits, std::span<const int32_t> history, size_t drawn);
  ChangedLogit* Find(int32_t token);
  uint64_t Next();                 // xoshiro256**
  uint64_t NextBelow(uint64_t n);  // uniform in [0, n)

  SamplerConfig config_;
  double log2_min_p_ = 0;
  uint64_t state_[4];
  std::vector<std::pair<int32_t, float>> bias_;
  std::vector<uint64_t> repeated_, marked_;  // a bit a token: of the repeat penalty; whose logit changes
  std::vector<ChangedLogit> changed_;
  std::vector<size_t> counts_;  // of each in changed_: how often it was drawn
  std::unique_ptr<Candidates> candidates_;
};

// The argmax of `logits` [vocab], ties to the lower id. NaN counts as minus infinity. 0 if `logits` is empty.
TALLY_API int32_t Argmax(std::span<const float> logits);

}  // namespace tally
