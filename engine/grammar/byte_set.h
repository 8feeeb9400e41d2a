// SPDX-License-Identifier: Apache-2.0
// A set of bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tally {

class ByteSet {
 public:
  constexpr ByteSet() = default;
  static constexpr ByteSet Of(uint8_t byte) { return Range(byte, byte); }
  static constexpr ByteSet Range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (int b = first; b <= last; ++b) set.Add(static_cast<uint8_t>(b));
    return set;
  }
  static constexpr ByteSet All() { return Range(0, 255); }

  constexpr void Add(uint8_t byte) { words_[byte / 64] |= uint64_t{1} << (byte % 64); }
  constexpr bool Has(uint8_t byte) const { return (words_[byte / 64] >> (byte % 64) & 1) != 0; }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr int size() const {
    return std::popcount(words_[0]) + std::popcount(words_[1]) + std::popcount(words_[2]) + std::popcount(words_[3]);
  }
  // The least; the set is not empty.
  constexpr uint8_t first() const {
    size_t w = 0;
    while (words_[w] == 0) ++w;
    return static_cast<uint8_t>(w * 64 + static_cast<size_t>(std::countr_zero(words_[w])));
  }
  constexpr ByteSet& operator|=(const ByteSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
    return *this;
  }
  constexpr ByteSet& operator&=(const ByteSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] &= other.words_[w];
    return *this;
  }
  friend constexpr bool operator==(const ByteSet&, const ByteSet&) = default;
  friend constexpr auto operator<=>(const ByteSet&, const ByteSet&) = default;
  const std::array<uint64_t, 4>& words() const { return words_; }

 private:
  std::array<uint64_t, 4> words_ = {};
};

}  // namespace tally
