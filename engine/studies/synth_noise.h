// SPDX-License-Identifier: Apache-2.0
// Noise of a given scale in any weight type, produced as fast as memory can be copied.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/dtype.h"

namespace tally {

// There is one pool of encoded blocks per (type, standard deviation). A tensor reads its pool cyclically from a block that
// depends on the seed and the tensor. A pool has a prime number of blocks, so that all rows of a matrix with fewer rows than that
// start at different blocks, and no two rows are equal. What no tensor reads is not drawn.
class NoisePools {
 public:
  explicit NoisePools(uint64_t seed) : seed_(seed) {}
  // Bytes [offset, offset + out.size()) of tensor `tensor`. `type` is one that ParseWeightType knows. Any thread.
  void Fill(uint64_t tensor, DType type, float deviation, uint64_t offset, std::span<uint8_t> out);

 private:
  void Draw(DType type, float deviation, uint64_t chunk, std::vector<uint8_t>& bytes) const;
  const std::vector<uint8_t>& Chunk(DType type, float deviation, uint64_t chunk);

  uint64_t seed_;
  std::mutex mutex_;
  std::map<std::pair<DType, float>, std::vector<std::vector<uint8_t>>> pools_;  // by chunk; empty: not drawn
};

}  // namespace tally
