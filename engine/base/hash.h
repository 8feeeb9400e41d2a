// SPDX-License-Identifier: Apache-2.0
// Keyed hashes of strings from files and texts, so that no file can be written whose keys all collide. The key is drawn once per
// process and differs between processes, so output must not depend on the order of these tables.
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
const HashKey& ProcessHashKey();

// SipHash-1-3: Aumasson, Bernstein 2012, "SipHash: a fast short-input PRF", with one round per word and three at the end.
uint64_t SipHash13(std::string_view bytes, const HashKey& key);

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return SipHash13(s, ProcessHashKey()); }
};
template <class V>
using StringMap = std::unordered_map<std::string, V, StringHash, std::equal_to<>>;
using StringSet = std::unordered_set<std::string, StringHash, std::equal_to<>>;

struct NumberHash {
  HashKey key = ProcessHashKey();
  size_t operator()(uint64_t n) const { return SplitMix64(SplitMix64(n ^ key.a) ^ key.b); }
};

}  // namespace tally
