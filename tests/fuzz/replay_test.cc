// SPDX-License-Identifier: Apache-2.0
// The fuzz targets without libFuzzer: their seeds, what fuzzing once found, and random damage to both.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tests/support/temp_folder.h"

namespace tally::fuzz {
namespace {

uint64_t Seed() {
  const char* given = std::getenv("TALLY_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

// Flips, overwrites, cuts, repeats or removes bytes, one to four times.
std::string Mutate(std::string bytes, std::mt19937_64& random) {
  static const uint64_t kNasty[] = {0, 1, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 63, UINT64_MAX, INT64_MAX};
  const auto below = [&](uint64_t n) { return n == 0 ? 0 : random() % n; };
  for (uint64_t n = 1 + below(4); n > 0 && !bytes.empty(); --n) {
    const size_t at = below(bytes.size());
    switch (below(6)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
      case 1: bytes[at] = static_cast<char>(random()); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.insert(at, bytes.substr(below(bytes.size()), below(40))); break;
      case 4: bytes.erase(at, below(20)); break;
      default: {
        const uint64_t value = kNasty[below(std::size(kNasty))];
        const size_t size = std::min<size_t>(below(2) ? 8 : 4, bytes.size() - at);
        std::memcpy(bytes.data() + at, &value, size);
      }
    }
  }
  return bytes;
}

class Replay : public testing::TestWithParam<const Target*> {
 protected:
  // tests/fuzz/found/TARGET/*: inputs that once broke something.
  std::vector<std::string> Found() const {
    std::vector<std::string> found;
    const std::filesystem::path folder = std::filesystem::path(TALLY_SOURCE_DIR) / "tests/fuzz/found" / GetParam()->name;
    std::error_code none;
    for (const auto& file : std::filesystem::directory_iterator(folder, none)) found.push_back(ReadAll(file.path().string()));
    return found;
  }
};

// A target aborts where something is wrong: what it says, and the seed, stand before that in the output.
TEST_P(Replay, SeedsFindsAndDamage) {
  const Target& target = *GetParam();
  std::vector<std::string> inputs = target.seeds();
  ASSERT_FALSE(inputs.empty());
  for (std::string& found : Found()) inputs.push_back(std::move(found));
  for (const std::string& input : inputs) target.run(input);
  const uint64_t seed = Seed();
  std::printf("TALLY_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) target.run(Mutate(inputs[static_cast<size_t>(i) % inputs.size()], random));
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param->name); });

}  // namespace
}  // namespace tally::fuzz
