// SPDX-License-Identifier: Apache-2.0
// Checked arithmetic for sizes from files: an overflow gives nullopt. DivCeil and RoundUp are not checked.
#pragma once

#include <cstdint>
#include <optional>

namespace tally {

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// For amounts of memory: an overflow gives UINT64_MAX, which no machine has.
inline uint64_t SaturatingAdd(uint64_t a, uint64_t b) { return CheckedAdd(a, b).value_or(UINT64_MAX); }
inline uint64_t SaturatingMul(uint64_t a, uint64_t b) { return CheckedMul(a, b).value_or(UINT64_MAX); }

constexpr uint64_t DivCeil(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
constexpr uint64_t RoundUp(uint64_t a, uint64_t b) { return DivCeil(a, b) * b; }

}  // namespace tally
