// SPDX-License-Identifier: Apache-2.0
#include "engine/session/draw_mask.h"

#include <algorithm>

#include "engine/base/checked.h"
#include "engine/session/sampling.h"

namespace tally {
namespace {

// Ids outside the mask are ignored: a model may name end tokens that it has no logits of.
void Hide(std::span<const int32_t> tokens, std::vector<uint64_t>* mask) {
  for (const int32_t token : tokens) {
    const size_t word = static_cast<size_t>(token) / 64;
    if (token >= 0 && word < mask->size()) (*mask)[word] &= ~(uint64_t{1} << token % 64);
  }
}

}  // namespace

DrawMask::DrawMask(const TokenRules& rules, std::span<const int32_t> ends, bool no_end, size_t vocab)
    : rules_(rules), ends_(ends.begin(), ends.end()), vocab_(vocab) {
  const bool forbids_one = std::ranges::any_of(rules_.forbidden, [](const auto& sequence) { return sequence.size() == 1; });
  const bool hides_ends = no_end && !ends_.empty();
  if (!hides_ends && rules_.allowed.empty() && rules_.never.empty() && !forbids_one) return;
  always_ = MaskWithout(vocab, {});
  if (!rules_.allowed.empty()) {
    std::ranges::fill(always_, 0);
    for (const int32_t token : rules_.allowed) always_[static_cast<size_t>(token) / 64] |= uint64_t{1} << token % 64;
  }
  if (hides_ends) Hide(ends_, &always_);
  Hide(rules_.never, &always_);
  for (const std::vector<int32_t>& sequence : rules_.forbidden) {
    if (sequence.size() == 1) Hide(sequence, &always_);
  }
}

std::span<const uint64_t> DrawMask::For(std::span<const int32_t> drawn, std::span<const uint64_t> mask) {
  const bool too_few = static_cast<int64_t>(drawn.size()) < rules_.min_tokens;
  const auto completes = [&](const std::vector<int32_t>& sequence) {
    const size_t before = sequence.size() - 1;
    return before > 0 && before <= drawn.size() &&
           std::equal(sequence.begin(), sequence.end() - 1, drawn.end() - static_cast<ptrdiff_t>(before));
  };
  const bool completed = std::ranges::any_of(rules_.forbidden, completes);
  if (!too_few && !completed && (always_.empty() || mask.empty())) return always_.empty() ? mask : always_;
  mask_ = always_.empty() ? MaskWithout(vocab_, {}) : always_;
  if (!mask.empty()) {
    for (size_t i = 0; i < mask_.size(); ++i) mask_[i] &= i < mask.size() ? mask[i] : 0;
  }
  if (too_few) {
    Hide(ends_, &mask_);
    Hide(rules_.stop, &mask_);
  }
  for (const std::vector<int32_t>& sequence : rules_.forbidden) {
    if (completes(sequence)) Hide(std::span(sequence).last(1), &mask_);
  }
  return mask_;
}

}  // namespace tally
