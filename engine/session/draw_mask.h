// SPDX-License-Identifier: Apache-2.0
// The mask of each draw of one answer, by its rules. Internal to the session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/session/token_rules.h"

namespace tally {

class DrawMask {
 public:
  // `ends`: the end tokens; `no_end`: they are never drawn. `rules` must outlive it.
  DrawMask(const TokenRules& rules, std::span<const int32_t> ends, bool no_end, size_t vocab);
  // As Sampler::Sample takes it, for the token after `drawn`, of those that `mask` allows. Valid until the next call, and as long as
  // `mask`.
  std::span<const uint64_t> For(std::span<const int32_t> drawn, std::span<const uint64_t> mask);

 private:
  const TokenRules& rules_;
  const std::vector<int32_t> ends_;
  const size_t vocab_;
  std::vector<uint64_t> always_;  // what holds for every draw; empty: nothing does
  std::vector<uint64_t> mask_;
};

}  // namespace tally
