// SPDX-License-Identifier: Apache-2.0
#include "engine/base/hash.h"

#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>

namespace tally {
namespace {

HashKey DrawKey() {
  HashKey key;
  if (::getentropy(&key, sizeof key) == 0) return key;
  // Without getentropy the key is made of a stack address and the clock, which the author of a file cannot know.
  key.a = SplitMix64(reinterpret_cast<uintptr_t>(&key));
  key.b = SplitMix64(key.a ^ static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  return key;
}

struct State {
  uint64_t v0, v1, v2, v3;
  void Round() {
    v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
  }
  void Word(uint64_t m) {
    v3 ^= m;
    Round();
    v0 ^= m;
  }
};

}  // namespace

const HashKey& ProcessHashKey() {
  static const HashKey key = DrawKey();
  return key;
}

uint64_t SipHash13(std::string_view bytes, const HashKey& key) {
  State s{key.a ^ 0x736f6d6570736575u, key.b ^ 0x646f72616e646f6du, key.a ^ 0x6c7967656e657261u, key.b ^ 0x7465646279746573u};
  const char* p = bytes.data();
  size_t left = bytes.size();
  uint64_t m = 0;
  for (; left >= 8; p += 8, left -= 8) {
    std::memcpy(&m, p, 8);
    s.Word(m);
  }
  m = static_cast<uint64_t>(bytes.size()) << 56;
  for (size_t i = 0; i < left; ++i) m |= static_cast<uint64_t>(static_cast<uint8_t>(p[i])) << (8 * i);
  s.Word(m);
  s.v2 ^= 0xff;
  for (int i = 0; i < 3; ++i) s.Round();
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

}  // namespace tally
