// Sampling from logits: repeat penalty, top-k, temperature, top-p, min-p. Never sorts the whole vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tally {

struct SamplerConfig {
  double temperature = 0.8;
  int32_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double repeat_penalty = 1.0;
  int32_t repeat_last_n = 64;
  uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplerConfig& config);
  // The next token; `history` is the tokens so far (prompt included) for the repeat penalty. Temperature 0: the argmax,
  // ties to the lower id. The same seed, logits and history give the same token on every machine.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  SamplerConfig config_;
  uint64_t state_[4];
  std::vector<float> penalised_;
  struct Candidate {
    float logit;
    int32_t id;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace tally
