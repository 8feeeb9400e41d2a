// SPDX-License-Identifier: Apache-2.0
// Checksums: of bytes that come in pieces, and of blocks of memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/base/mix.h"

namespace tally {

// A sum of 64 bits: words of 8 bytes, each mixed into the sum by SplitMix64, and the length at the end. It does not depend on how the bytes
// are cut into pieces. A change within one word always changes it; other damage goes unseen once in 2^64 times. It does not protect
// against deliberate changes.
class Checksum {
 public:
  void Add(std::string_view bytes) {
    length_ += bytes.size();
    while (used_ != 0 && !bytes.empty()) {
      AddByte(bytes.front());
      bytes.remove_prefix(1);
    }
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
      uint64_t word;
      std::memcpy(&word, bytes.data(), 8);
      sum_ = SplitMix64(sum_ ^ word);
    }
    for (const char byte : bytes) AddByte(byte);
  }
  uint64_t value() const { return SplitMix64(SplitMix64(sum_ ^ word_) ^ length_); }

 private:
  void AddByte(char byte) {
    word_ |= static_cast<uint64_t>(static_cast<uint8_t>(byte)) << (8 * used_);
    if (++used_ < 8) return;
    sum_ = SplitMix64(sum_ ^ word_);
    word_ = 0;
    used_ = 0;
  }

  uint64_t sum_ = 0, length_ = 0;
  uint64_t word_ = 0;  // of the bytes that do not fill a word yet
  int used_ = 0;
};

// The same for a block of memory at some 4 bytes a cycle: eight sums of every eighth word, mixed at the end with the length. Not the
// value of Checksum.
inline uint64_t BlockChecksum(std::span<const uint8_t> bytes) {
  constexpr size_t kSums = 8, kStride = kSums * sizeof(uint64_t);
  std::array<uint64_t, kSums> sums = {0, 1, 2, 3, 4, 5, 6, 7}, words;
  const size_t whole = bytes.size() / kStride * kStride;
  for (size_t at = 0; at < whole; at += kStride) {
    std::memcpy(words.data(), bytes.data() + at, kStride);
    for (size_t i = 0; i < kSums; ++i) sums[i] = SplitMix64(sums[i] ^ words[i]);
  }
  words.fill(0);
  if (whole < bytes.size()) std::memcpy(words.data(), bytes.data() + whole, bytes.size() - whole);
  uint64_t sum = bytes.size();
  for (size_t i = 0; i < kSums; ++i) sum = SplitMix64(sum ^ SplitMix64(sums[i] ^ words[i]));
  return sum;
}

}  // namespace tally
