// SPDX-License-Identifier: Apache-2.0
// Sampling from logits: repeat penalty, top-k, temperature, top-p, min-p. Each filter is a selection in O(vocab) expected time; the
// vocabulary is not sorted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally {

// The filters are applied in this order. Each keeps the most probable tokens; of equal ones, the lower id.
struct SamplerConfig {
  double repeat_penalty = 1.0;  // 1: off. For tokens in the last `repeat_last_n`, divides positive logits and multiplies
                                // others (Keskar et al. 2019, "CTRL", section 4.1)
  int32_t repeat_last_n = 64;   // 0: none, -1: all
  int32_t top_k = 40;           // 0 or -1: off
  double temperature = 0.8;     // 0: greedy
  double top_p = 0.95;          // 1: off; the fewest tokens whose probabilities (among the top k) reach it
                                // (Holtzman et al. 2020, "nucleus sampling"), at least one
  double min_p = 0.05;          // 0: off; tokens at least this times as probable as the most probable one (Nguyen et al. 2024)
  uint64_t seed = 0;

  // kBadInput naming the option and its range.
  TALLY_API Status Validate() const;
};

// Random state and scratch of one sequence. Not to be used by two threads at once.
class Sampler {
 public:
  // `config` must be valid.
  TALLY_API explicit Sampler(const SamplerConfig& config);
  // The next token, from `logits` [vocab], not empty. `history`: the tokens so far, prompt included, for the repeat penalty.
  // Temperature 0 gives the argmax, ties to the lower id. NaN counts as minus infinity.
  // The same seed, logits and history give the same token on every machine: exp uses only operations that IEEE 754 rounds
  // correctly, and weights are integers in units of 2^-40 of the largest, so sums do not depend on order.
  TALLY_API int32_t Sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  struct Candidate {
    float logit;
    int32_t id;
    uint64_t weight;  // exp((logit - max) / temperature) in units of 2^-40
  };
  static bool Above(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }
  std::span<const float> Penalise(std::span<const float> logits, std::span<const int32_t> history);
  void KeepTopK(std::span<const float> logits, size_t k);
  void Weigh(float max);
  void KeepTopP();
  void KeepMinP();
  uint64_t Next();                 // xoshiro256**
  uint64_t NextBelow(uint64_t n);  // uniform in [0, n)

  SamplerConfig config_;
  uint64_t state_[4];
  std::vector<float> penalised_;
  std::vector<Candidate> candidates_;  // by ascending id
  std::vector<Candidate> selection_;   // scratch of the selections
};

// The argmax of `logits` [vocab], ties to the lower id. NaN counts as minus infinity. 0 if `logits` is empty.
TALLY_API int32_t Argmax(std::span<const float> logits);

}  // namespace tally
