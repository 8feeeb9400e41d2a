// SPDX-License-Identifier: Apache-2.0
#include "engine/base/hash.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

// What CPython 3.11 gives with PYTHONHASHSEED=0, which is SipHash-1-3 with a key of zeros: hash(bytes(range(n))).
TEST(SipHash13, KnownValues) {
  const std::pair<size_t, uint64_t> known[] = {
      {1, 0x68a914128e01e473},  {7, 0x2f098ab0c751325a},  {8, 0xead411e67ebe2eea},  {9, 0x75927f9d95124362},
      {15, 0xf30eb725bb91c9ea}, {16, 0x8972188433a5c5b7}, {63, 0x385d3e39e5f37359},
  };
  std::string bytes;
  for (const auto& [n, hash] : known) {
    while (bytes.size() < n) bytes.push_back(static_cast<char>(bytes.size()));
    EXPECT_EQ(SipHash13(bytes, {}), hash) << n;
    EXPECT_NE(SipHash13(bytes, {1, 0}), hash) << n;
    EXPECT_NE(SipHash13(bytes, {0, 1}), hash) << n;
  }
}

TEST(Hash, TheProcessHasAKeyOfItsOwn) {
  EXPECT_NE(StringHash()("a"), SipHash13("a", {}));
  EXPECT_EQ(StringHash()("a"), SipHash13("a", ProcessHashKey()));
  EXPECT_EQ(NumberHash()(7), NumberHash()(7));
  EXPECT_NE(NumberHash()(7), NumberHash()(8));
}

}  // namespace
}  // namespace tally
