// SPDX-License-Identifier: Apache-2.0
#include "engine/session/unique_ids.h"

#include <cstdio>
#include <random>

#include "engine/base/mix.h"
#include "engine/base/short_id.h"

namespace tally {
namespace {

__extension__ using Wide = unsigned __int128;

uint64_t DrawKey() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

UniqueIds::UniqueIds() : UniqueIds(DrawKey()) {}

std::string UniqueIds::Next(const char* prefix) {
  const uint64_t n = next_.fetch_add(1, std::memory_order_relaxed);
  constexpr uint32_t kOdd = 0x9E3779B1;  // 2^32 products with an odd number are all different
  char digits[40];
  std::snprintf(digits, sizeof digits, "%016llx%08llx", static_cast<unsigned long long>(key_),
                static_cast<unsigned long long>((static_cast<uint32_t>(n) * kOdd) ^ static_cast<uint32_t>(SplitMix64(key_))));
  return prefix + std::string(digits);
}

// Steps of a size that has no divisor in common with the number of ids visit each id once before the first comes again.
std::string UniqueIds::NextShort() {
  constexpr uint64_t kStep = 5'172'706'837'101'323;  // kShortIds divided by the golden number squared
  static_assert(kStep % 2 != 0 && kStep % 31 != 0);
  const uint64_t n = next_.fetch_add(1, std::memory_order_relaxed);
  return ShortId(static_cast<uint64_t>((static_cast<Wide>(n) * kStep + SplitMix64(key_)) % kShortIds));
}

}  // namespace tally
