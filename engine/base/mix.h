// SPDX-License-Identifier: Apache-2.0
// Pseudorandom numbers that are the same on every machine.
#pragma once

#include <cstdint>

namespace tally {

// splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"; constants from prng.di.unimi.it).
// SplitMix64 returns the output for `state`; the next state is state + kSplitMix64Step. It also serves as a hash of 64 bits.
inline constexpr uint64_t kSplitMix64Step = 0x9e3779b97f4a7c15u;
constexpr uint64_t SplitMix64(uint64_t state) {
  uint64_t z = state + kSplitMix64Step;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace tally
