// SPDX-License-Identifier: Apache-2.0
// The fingerprint sees every weight, and nothing of how it was loaded.
#include "engine/weights/fingerprint.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <vector>

#include "engine/base/checksum.h"
#include "tests/weights/everything.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

uint64_t Fingerprint(const WrittenCheckpoint& c, int threads, bool guard = false) {
  Team team(threads);
  const auto weights = LoadSpec(c.inventory, c.spec, team, nullptr, guard);
  EXPECT_TRUE(weights.ok()) << weights.status().message();
  return weights.ok() ? FingerprintOf(*weights, team) : 0;
}

TEST(Fingerprint, DoesNotDependOnThreadsAndGuards) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  const uint64_t one = Fingerprint(c, 1);
  EXPECT_EQ(Fingerprint(c, 3), one);
  EXPECT_EQ(Fingerprint(c, 2, true), one);
  WrittenCheckpoint empty;
  empty.Write();
  EXPECT_NE(Fingerprint(empty, 2), one);
}

// A bit of a code, a scale or an element in the middle of each stored tensor.
TEST(Fingerprint, SeesABitOfEveryWeight) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  const uint64_t before = Fingerprint(c, 2);
  for (const StoredTensor& t : c.inventory.tensors) {
    const DTypeInfo type = GetDTypeInfo(t.dtype);
    // Odd rows and columns: of some tensors the others are nobody's. The low byte, so that vectors stay finite; where 1 + w is kept, and w
    // may be tiny, a high bit of the exponent.
    const bool plus_one = t.name == "gemma";
    const int bit = plus_one ? 0x40 : 1;
    const uint64_t at = (type.block_size == 1 ? (t.elements() / 2 | 1) * type.block_bytes : t.bytes / 2) + (plus_one ? 1 : 0);
    std::fstream file(c.inventory.files[t.file].path, std::ios::binary | std::ios::in | std::ios::out);
    const auto flip = [&] {
      file.seekg(static_cast<std::streamoff>(t.offset + at));
      const char byte = static_cast<char>(file.get() ^ bit);
      file.seekp(static_cast<std::streamoff>(t.offset + at));
      file.put(byte).flush();
    };
    flip();
    const bool host_vector = t.name == WeightName(Role::kRopeFactors, -1) + ".plain";  // no weight; the engine's own
    EXPECT_EQ(Fingerprint(c, 2) == before, host_vector) << t.name;
    flip();
    ASSERT_TRUE(file.good()) << t.name;
  }
  EXPECT_EQ(Fingerprint(c, 2), before);
}

TEST(BlockChecksum, SeesEveryBitAndTheLength) {
  std::mt19937 rng(3);
  for (size_t size = 0; size < 200; ++size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
    const uint64_t sum = BlockChecksum(bytes);
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      ASSERT_NE(BlockChecksum(bytes), sum) << size << " bytes, bit " << bit;
      bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
    bytes.push_back(0);
    EXPECT_NE(BlockChecksum(bytes), sum) << size;
  }
}

}  // namespace
}  // namespace tally
