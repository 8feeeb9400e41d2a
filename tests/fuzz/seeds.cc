// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of a target as files, for libFuzzer: fuzz_seeds TARGET FOLDER; without arguments: names the targets.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/targets.h"

int main(int argc, char** argv) {
  using tally::fuzz::kTargets;
  using tally::fuzz::Target;
  for (const Target* target : kTargets) {
    if (argc < 3) {
      std::printf("%s\n", std::string(target->name).c_str());
      continue;
    }
    if (target->name != argv[1]) continue;
    std::filesystem::create_directories(argv[2]);
    size_t n = 0;
    for (const std::string& seed : target->seeds()) {
      std::ofstream file(std::string(argv[2]) + "/seed-" + std::to_string(n++), std::ios::binary);
      if (!(file << seed).flush()) return 1;
    }
    return n > 0 ? 0 : 1;
  }
  return argc < 3 ? 0 : 2;
}
