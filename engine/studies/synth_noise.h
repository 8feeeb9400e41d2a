// Noise of a given scale in any stored type, produced as fast as memory can be copied.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/dtype.h"

namespace tally {

// One pool of encoded blocks per (type, standard deviation), made once; a tensor is the pool read in a circle from a block that
// depends on seed and tensor. A pool holds a prime number of blocks, so that the rows of a matrix, whatever their length,
// all begin at different ones (as long as there are fewer rows than blocks) and no two rows are the same.
class NoisePools {
 public:
  explicit NoisePools(uint64_t seed) : seed_(seed) {}
  // Bytes [offset, offset + out.size()) of tensor `tensor`. `type` is one that ParseWeightType knows.
  void Fill(uint64_t tensor, DType type, float deviation, uint64_t offset, std::span<uint8_t> out);

 private:
  const std::vector<uint8_t>& Pool(DType type, float deviation);
  uint64_t seed_;
  std::map<std::pair<DType, float>, std::vector<uint8_t>> pools_;
};

}  // namespace tally
