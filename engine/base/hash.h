// Hashes of what comes from files and texts. They are keyed, so that nobody can write a file whose keys all fall into one place
// and make a table slow. The key is drawn once in a process: never let an order that depends on it be seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/mix.h"

namespace tally {

struct HashKey {
  uint64_t a = 0, b = 0;
};
// The process's own.
const HashKey& ProcessHashKey();

// SipHash-1-3 (Aumasson, Bernstein 2012, "SipHash: a fast short-input PRF", with one round a word and three at the end, as hash
// tables of several languages have it).
uint64_t SipHash13(std::string_view bytes, const HashKey& key);

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return SipHash13(s, ProcessHashKey()); }
};
template <class V>
using StringMap = std::unordered_map<std::string, V, StringHash, std::equal_to<>>;
using StringSet = std::unordered_set<std::string, StringHash, std::equal_to<>>;

// Of a number of 64 bits.
struct NumberHash {
  HashKey key = ProcessHashKey();
  size_t operator()(uint64_t n) const { return SplitMix64(SplitMix64(n ^ key.a) ^ key.b); }
};

}  // namespace tally
