// SPDX-License-Identifier: Apache-2.0
// A GGUF file without some of its tensors.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loaders/inventory/file_reader.h"
#include "loaders/loaders.h"

namespace tally {

// Writes what `from` has to `to`, but for the tensors whose names hold `part`.
inline void WriteGgufWithout(const std::string& from, std::string_view part, const std::string& to) {
  const Inventory whole = ReadGguf(from).value();
  const FileReader reader = FileReader::Open(from).value();
  GgufWriter writer;
  for (const auto& [key, value] : whole.metadata.values()) writer.Set(key, value);
  std::vector<const StoredTensor*> kept;
  for (const StoredTensor& t : whole.tensors) {
    if (t.name.find(part) != t.name.npos) continue;
    writer.AddTensor(t.name, t.dtype, t.shape);
    kept.push_back(&t);
  }
  EXPECT_LT(kept.size(), whole.tensors.size());
  const Status written = writer.Write(to, [&](size_t i, uint64_t offset, std::span<uint8_t> piece) {
    EXPECT_TRUE(reader.ReadAt(kept[i]->offset + offset, piece).ok());
  });
  EXPECT_TRUE(written.ok()) << written.message();
}

}  // namespace tally
