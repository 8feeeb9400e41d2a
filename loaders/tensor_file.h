// SPDX-License-Identifier: Apache-2.0
// A file of a header and tensors one after another, streamed through one buffer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loaders/loaders.h"

namespace tally::internal {

inline uint64_t Padding(uint64_t size, uint64_t alignment) { return (alignment - size % alignment) % alignment; }

struct TensorFile {
  std::string header;           // padded to the alignment
  uint64_t alignment = 1;       // of every tensor
  std::vector<uint64_t> bytes;  // of each tensor, unpadded
  uint64_t total = 0;           // of the file
};

Status WriteTensorFile(const std::string& path, const TensorFile& layout, const std::vector<StoredTensor>& tensors,
                       const FillTensor& fill, const WriteProgress& progress);

}  // namespace tally::internal
