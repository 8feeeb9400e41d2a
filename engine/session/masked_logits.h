// SPDX-License-Identifier: Apache-2.0
// The logits that a sampler draws from, in blocks; internal to the session. A mask, and the logits that are not the model's, are applied to
// a block when it is looked at, so that the vocabulary is never copied.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "engine/base/checked.h"

namespace tally {

// A token whose logit is another than the model's.
struct ChangedLogit {
  size_t token = 0;
  float logit = 0;
};

class MaskedLogits {
 public:
  static constexpr size_t kBlock = 512, kWord = 64;
  using Buffer = std::array<float, kBlock>;

  MaskedLogits() = default;
  // mask: a bit a token, least significant first, that allows it; words that are missing allow none. No words: all are allowed.
  // changed: by ascending token, each once and of the vocabulary.
  explicit MaskedLogits(std::span<const float> logits, std::span<const uint64_t> mask = {},
                        std::span<const ChangedLogit> changed = {})
      : logits_(logits), mask_(mask), changed_(changed) {}

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
    if (changed_.empty()) return stored;
    const size_t begin = b * kBlock, end = begin + stored.size();
    auto at =
        std::lower_bound(changed_.begin(), changed_.end(), begin, [](const ChangedLogit& c, size_t t) { return c.token < t; });
    if (at == changed_.end() || at->token >= end) return stored;
    std::copy(stored.begin(), stored.end(), buffer.begin());
    for (; at != changed_.end() && at->token < end; ++at) buffer[at->token - begin] = at->logit;
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

  std::span<const float> logits_;
  std::span<const uint64_t> mask_;
  std::span<const ChangedLogit> changed_;
};

}  // namespace tally
