// SPDX-License-Identifier: Apache-2.0
// Ids that are unique across threads and processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tally {

// The first 2^32 ids are all different; those of two processes differ. Any number of threads may draw at once.
class UniqueIds {
 public:
  UniqueIds();
  // The same key gives the same ids.
  explicit UniqueIds(uint64_t key) : key_(key) {}
  std::string Next(const char* prefix);  // "PREFIX" and 24 hexadecimal digits
  std::string NextShort();               // 9 letters and digits, as templates of Mistral want them

 private:
  const uint64_t key_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace tally
