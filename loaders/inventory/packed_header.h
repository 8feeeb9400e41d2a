// SPDX-License-Identifier: Apache-2.0
// What a packed file (model.tally) says of itself. The file, little endian:
//   first page  magic, version, sizes of the header and of the data, a checksum of the header
//   header      the source's inventory, its fingerprint, the shard, the weights, a checksum of each block of data
//   data        the weights as they lie in memory (engine/weights/packed_file.h), from a page on
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "loaders/inventory/inventory.h"

namespace tally {

inline constexpr uint64_t kPackedPage = 4096;
inline constexpr uint64_t kPackedBlock = uint64_t{1} << 20;  // a checksum's

// A weight in the data. Which bytes it has there is the layout version's matter.
struct PackedWeight {
  std::string role = {};  // its name in the table of roles
  int32_t layer = -1;
  DType dtype = DType::kF32;
  uint8_t layout = 0;  // WeightLayout
  uint64_t slices = 1, rows = 0, cols = 0;
  uint64_t slice_bytes = 0;  // without what fills its last page
  bool operator==(const PackedWeight&) const = default;
};

struct PackedHeader {
  uint32_t layout_version = 0;
  std::string family = {};  // of instructions that the layout is for
  int32_t rank = 0, ranks = 1;
  bool whole_mixers = false, own_experts = false;  // Shard
  std::vector<InventoryFile> sources = {};         // names without directories; sizes and stamps when it was packed
  uint64_t source_checksum = 0;                    // of the names, types, shapes and places of the source's tensors
  std::vector<PackedWeight> weights = {};
  uint64_t layout_checksum = 0;  // of `weights`
  struct Buffer {
    std::string name = {};
    std::vector<uint8_t> bytes = {};
  };
  std::vector<Buffer> buffers = {};  // tensors that are no weights (rope factors), with their bytes as the source stores them
  std::vector<uint64_t> sums = {};   // of the data's blocks
  uint64_t data_offset = 0, data_bytes = 0;  // in the file
  InventoryFile file = {};                   // the packed file itself, when its header was read
};

}  // namespace tally
