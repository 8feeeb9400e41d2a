// SPDX-License-Identifier: Apache-2.0
// The logits that a sampler draws from, in blocks; internal to the session. A mask and a repeat penalty are applied to a block when it
// is looked at, so that the vocabulary is never copied.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "engine/base/checked.h"

namespace tally {

class MaskedLogits {
 public:
  static constexpr size_t kBlock = 512, kWord = 64;
  using Buffer = std::array<float, kBlock>;

  MaskedLogits() = default;
  // mask: a bit a token, least significant first, that allows it; words that are missing allow none. No words: all are allowed.
  // penalised: the tokens of the repeat penalty in the same way, [words of the vocabulary]; no words: none.
  explicit MaskedLogits(std::span<const float> logits, std::span<const uint64_t> mask = {},
                        std::span<const uint64_t> penalised = {}, double penalty = 1)
      : logits_(logits), mask_(mask), penalised_(penalised), penalty_(penalty) {}

  size_t size() const { return logits_.size(); }
  size_t blocks() const { return DivCeil(size(), kBlock); }
  // Those of the tokens [word * kWord, ...) that the mask allows, a bit each.
  uint64_t Allowed(size_t word) const {
    const size_t rest = size() - word * kWord;
    const uint64_t there = rest >= kWord ? ~uint64_t{0} : (uint64_t{1} << rest) - 1;
    return mask_.empty() ? there : word < mask_.size() ? mask_[word] & there : 0;
  }
  // The first token that the mask allows; size() if there is none.
  size_t FirstAllowed() const {
    for (size_t word = 0; word * kWord < size(); ++word) {
      if (Allowed(word) != 0) return word * kWord + static_cast<size_t>(std::countr_zero(Allowed(word)));
    }
    return size();
  }
  // The logits of the tokens [b * kBlock, ...), whether allowed or not. Valid as long as the buffer.
  std::span<const float> Block(size_t b, Buffer& buffer) const {
    const std::span<const float> stored = logits_.subspan(b * kBlock, std::min(kBlock, size() - b * kBlock));
    if (penalised_.empty()) return stored;
    const std::span<const uint64_t> words = penalised_.subspan(b * (kBlock / kWord), DivCeil(stored.size(), kWord));
    if (std::all_of(words.begin(), words.end(), [](uint64_t word) { return word == 0; })) return stored;
    std::copy(stored.begin(), stored.end(), buffer.begin());
    for (size_t word = 0; word < words.size(); ++word) {
      for (uint64_t rest = words[word]; rest != 0; rest &= rest - 1) {
        float& logit = buffer[word * kWord + static_cast<size_t>(std::countr_zero(rest))];
        logit = WithPenalty(logit);
      }
    }
    return {buffer.data(), stored.size()};
  }
  // The same, with minus infinity for those that are not allowed.
  std::span<const float> MaskedBlock(size_t b, Buffer& buffer) const {
    const std::span<const float> block = Block(b, buffer);
    if (mask_.empty()) return block;
    for (size_t at = 0; at < block.size(); at += kWord) {
      const uint64_t allowed = Allowed((b * kBlock + at) / kWord);
      if (block.size() - at >= kWord) {
        Select(block.data() + at, allowed, kNone, buffer.data() + at);
      } else {
        for (size_t i = at; i < block.size(); ++i) buffer[i] = (allowed >> (i - at) & 1) != 0 ? block[i] : kNone;
      }
    }
    return {buffer.data(), block.size()};
  }

  // out[i] = logits[i] where bit i is set, else `other`; 64 of them. Without branches, so that the compiler vectorises it.
  static void Select(const float* logits, uint64_t bits, float other, float* out) {
    for (size_t half = 0; half < kWord; half += 32) {
      const uint32_t own = static_cast<uint32_t>(bits >> half);
      for (size_t i = 0; i < 32; ++i) {
        const float logit = logits[half + i];
        out[half + i] = (own & kBits[i]) != 0 ? logit : other;
      }
    }
  }

  static constexpr std::array<uint32_t, 32> kBits = [] {
    std::array<uint32_t, 32> bits{};
    for (size_t i = 0; i < 32; ++i) bits[i] = uint32_t{1} << i;
    return bits;
  }();

 private:
  static constexpr float kNone = -std::numeric_limits<float>::infinity();

  float WithPenalty(float logit) const {
    if (!std::isfinite(logit)) return logit;
    constexpr double kMost = std::numeric_limits<float>::max();
    const double x = logit;
    return static_cast<float>(std::clamp(x > 0 ? x / penalty_ : x * penalty_, -kMost, kMost));
  }

  std::span<const float> logits_;
  std::span<const uint64_t> mask_, penalised_;
  double penalty_ = 1;
};

}  // namespace tally
