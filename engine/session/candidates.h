// SPDX-License-Identifier: Apache-2.0
// The tokens that may be drawn, and the filters that leave fewer of them; internal to the session. Tokens are looked at in blocks, of
// which the greatest logit and the sum of weights are kept. Nothing is as large as the vocabulary, unless a top-k of that size is
// asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "engine/session/masked_logits.h"
#include "engine/session/token_weights.h"

namespace tally {

// Calls in this order: Begin, KeepTopK, SetTemperature, KeepTopPAndMinP, Weigh, Find.
class Candidates {
 public:
  // All tokens that the mask allows. Returns the first with the greatest logit; the first of all if no logit is above minus infinity;
  // nothing if there are none. What `logits` refers to must outlive the last call.
  std::optional<size_t> Begin(const MaskedLogits& logits);
  float max() const { return max_; }  // the greatest logit

  // The following are for a finite max().
  void KeepTopK(size_t k);  // 0: all
  void SetTemperature(double temperature);
  // `log2_min_p` is at most 0. Top-p comes first. Tokens without weight are dropped as well.
  void KeepTopPAndMinP(double top_p, double log2_min_p);
  // The sum of the weights.
  uint64_t Weigh();
  // The id of the token that holds unit `draw` of that sum, with the tokens' weights laid end to end.
  size_t Find(uint64_t draw);

 private:
  static constexpr size_t kAny = std::numeric_limits<size_t>::max();
  // A place in the order of probability: by logit, then by index.
  struct Place {
    float logit;
    size_t index;
    bool operator<(const Place& o) const { return logit > o.logit || (logit == o.logit && index < o.index); }
  };
  // Candidates of one block, ascending.
  struct Few {
    size_t size = 0;
    const float* logits = nullptr;
    size_t Offset(size_t i) const { return whole ? i : offsets[i]; }  // in the block

    bool whole = false;  // all tokens of the block
    MaskedLogits::Buffer copies;
    std::array<uint32_t, MaskedLogits::kBlock> offsets;
  };
  enum class By : uint8_t { kWeight, kNumber };

  void KeepBest(size_t k);
  void KeepFrom(float least);
  std::optional<Place> LastUpTo(uint64_t target, By by);
  std::optional<Place> LastOfEqual(float logit, uint64_t target, By by);
  uint64_t Chosen(size_t word, std::span<const float> logits, float low, float high) const;
  float Least();
  const Few& Look(size_t b, float low, float high, std::optional<float> filler = std::nullopt);

  MaskedLogits logits_;
  std::vector<int32_t> ids_;       // of logits_, if they are those of the top k; else empty
  std::vector<float> top_logits_;  // of the top k
  float max_ = 0;
  TokenWeights weights_;
  Place last_ = {};                // the last candidate
  std::vector<float> greatest_;    // logit of each block
  std::vector<uint64_t> sums_;     // of the weights of each block's candidates
  std::vector<uint64_t> buckets_;  // LastUpTo: weights by logit
  std::vector<Place> places_;
  MaskedLogits::Buffer buffer_ = {};
  Few few_ = {};
};

}  // namespace tally
