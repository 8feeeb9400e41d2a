// SPDX-License-Identifier: Apache-2.0
// A golden checkpoint whose greedy text is known, whatever instructions round in its layers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {

// A copy of the golden directory `from`, of F32 or BF16 embeddings, in `to`. A token's row is of signs, by far louder than what the layers
// add to it, so that the next token is a function of the last: the token itself where the head is tied, else its neighbour in the pair
// {0, 1}, {2, 3}, ...
inline void WritePuppet(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to);
  const Inventory inventory = ReadCheckpoint(to).value();
  const ModelSpec spec = ReadModelSpec(inventory).value();
  for (const TensorBinding& binding : spec.bindings) {
    const bool head = binding.role == Role::kHead;
    if (!head && binding.role != Role::kTokenEmbedding) continue;
    const StoredTensor& t = *inventory.Find(binding.names[0]);
    ASSERT_TRUE(t.dtype == DType::kF32 || t.dtype == DType::kBF16) << t.type_name();
    ASSERT_TRUE(!head || t.shape[0] % 2 == 0) << "no pairs";
    std::vector<uint8_t> bytes;
    for (uint64_t row = 0; row < t.shape[0]; ++row) {
      std::mt19937 random(static_cast<uint32_t>(head ? row ^ 1 : row));
      for (uint64_t i = 0; i < t.shape[1]; ++i) {
        const float value = (random() >> 16) % 2 == 0 ? 256 : -256;
        uint8_t f32[4];
        std::memcpy(f32, &value, 4);
        bytes.insert(bytes.end(), f32 + (t.dtype == DType::kF32 ? 0 : 2), f32 + 4);  // BF16 is the upper half
      }
    }
    ASSERT_EQ(bytes.size(), t.bytes);
    std::fstream file(inventory.files[t.file].path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(t.offset));
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(file.flush().good());
  }
}

}  // namespace tally
