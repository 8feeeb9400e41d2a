// SPDX-License-Identifier: Apache-2.0
// What a weight must hold after loading, worked out the slow way from the stored tensors, and the comparison.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/unpack.h"
#include "engine/recipe/model_spec.h"
#include "engine/recipe/roles.h"
#include "engine/weights/plan.h"
#include "engine/weights/weights.h"
#include "loaders/loaders.h"
#include "tests/support/stored_weights.h"

namespace tally {

inline std::vector<uint8_t> ReadStored(const Inventory& inventory, const StoredTensor& t) {
  auto file = FileReader::Open(inventory.files[t.file].path);
  std::vector<uint8_t> bytes(t.bytes);
  EXPECT_TRUE(file.ok() && file->ReadAt(t.offset, bytes).ok()) << t.name;
  return bytes;
}

// All values of a binding as the engine wants them, [slices, rows, cols] (vectors: [slices, cols]).
inline std::vector<float> ExpectedValues(const Inventory& inventory, const TensorBinding& b) {
  std::vector<float> stored;  // every stored element, all tensors of the binding one after another
  if (b.split) {
    const StoredTensor& blocks = *inventory.Find(b.names[0]);
    const auto bytes = ReadStored(inventory, blocks), scales = ReadStored(inventory, *inventory.Find(b.names[1]));
    stored = DecodeHfMxfp4(bytes.data(), scales.data(), bytes.size() * 2);
  } else if (!b.scales.empty()) {  // FP8
    for (size_t i = 0; i < b.names.size(); ++i) {
      const StoredTensor &t = *inventory.Find(b.names[i]), &s = *inventory.Find(b.scales[i]);
      const auto codes = ReadStored(inventory, t);
      const auto scales = DecodeStored(s.dtype, ReadStored(inventory, s).data(), s.elements());
      const uint64_t cols = t.shape.back(), rows = codes.size() / cols, across = (cols + 127) / 128;
      for (uint64_t at = 0; at < codes.size(); ++at) {
        const uint64_t row = at / cols, block = row / 128 * across + at % cols / 128;
        const uint64_t scale = scales.size() == 1 ? 0 : scales.size() == rows ? row : block;
        stored.push_back(scales[scale] * E4M3ToF32(codes[at]));
      }
    }
  } else {
    for (const std::string& name : b.names) {
      const StoredTensor& t = *inventory.Find(name);
      const auto values = DecodeStored(t.dtype, ReadStored(inventory, t).data(), t.elements());
      stored.insert(stored.end(), values.begin(), values.end());
    }
  }
  const bool vector = b.vector();
  const uint64_t cols = vector ? 1 : b.shape.back();  // a vector's elements are picked as a matrix's rows are
  const uint64_t rows = b.shape[b.shape.size() - (vector ? 1 : 2)];
  const uint64_t slices = b.shape.size() > (vector ? 1u : 2u) ? b.shape[0] : 1;
  const uint64_t slice_elements = stored.size() / slices;
  std::vector<float> out;
  for (uint64_t s = 0; s < slices; ++s) {
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t k = 0; k < cols; ++k) {
        const bool all = b.rows.all() || b.storage == Storage::kTransposedHeads;
        const uint64_t row = all ? r : b.rows.first + r / b.rows.block * b.rows.step + r % b.rows.block;
        // Transposed: rows are stored as columns; by heads: those of the stored rows that the map takes.
        const uint64_t width = b.storage == Storage::kTransposed ? slice_elements / cols : rows;
        const uint64_t at = b.storage == Storage::kTransposed        ? k * width + row
                            : b.storage == Storage::kTransposedHeads ? b.rows.Stored(k) * width + r
                                                                     : row * cols + k;
        const bool taps = b.storage == Storage::kTaps || b.storage == Storage::kConv1d;  // [n, taps]
        const float value = stored[taps ? r * slices + s : s * slice_elements + at];
        switch (b.storage) {
          case Storage::kPlusOne: out.push_back(1 + value); break;
          case Storage::kOverRoot: out.push_back(value / std::sqrt(static_cast<float>(rows))); break;
          case Storage::kMinusExp: out.push_back(-std::exp(value)); break;
          case Storage::kExp: out.push_back(std::exp(value)); break;
          case Storage::kSoftplus: out.push_back(static_cast<float>(std::log1p(std::exp(static_cast<double>(value))))); break;
          default: out.push_back(value);
        }
      }
    }
  }
  return out;
}

// Shape, place, values and description of every weight of `spec`.
inline void ExpectLoaded(const Inventory& inventory, const ModelSpec& spec, const PackedWeights& weights) {
  std::vector<bool> seen(weights.infos().size(), false);
  uint64_t slice_pages = 0;
  for (const TensorBinding& b : spec.bindings) {
    SCOPED_TRACE(WeightName(b.role, b.layer) + " of " + b.names[0]);
    const std::vector<float> expected = ExpectedValues(inventory, b);
    if (FactsOf(b.role).kind == WeightInfo::Kind::kBuffer) {
      const auto values = weights.HostVector(b.role, b.layer);
      ASSERT_EQ(values.size(), expected.size());
      EXPECT_TRUE(SameBits(values.data(), expected.data(), expected.size()));
      EXPECT_TRUE(weights.Get(b.role, b.layer).empty());
      continue;
    }
    const WeightView& w = weights.Get(b.role, b.layer);
    ASSERT_FALSE(w.empty());
    const bool vector = FactsOf(b.role).vector;
    EXPECT_EQ(w.layout, b.scales.empty() || vector ? LayoutFor(b.role, spec.recipe) : WeightLayout::kPanel16);
    EXPECT_EQ(static_cast<uint64_t>(w.cols), b.shape.back());
    EXPECT_EQ(static_cast<uint64_t>(w.rows), vector ? 1 : b.shape[b.shape.size() - 2]);
    ASSERT_EQ(static_cast<uint64_t>(w.slices * w.rows * w.cols), expected.size());
    EXPECT_EQ(w.slice_stride % 4096, 0u);
    slice_pages += w.slice_stride / 4096 * static_cast<uint64_t>(w.slices);
    std::vector<float> row(static_cast<size_t>(w.cols));
    for (int64_t s = 0; s < w.slices; ++s) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(w.Slice(s)) % 4096, 0u);
      for (int64_t r = 0; r < w.rows; ++r) {
        UnpackRow(w, s, r, row.data());
        ASSERT_TRUE(SameBits(row.data(), expected.data() + (s * w.rows + r) * w.cols, row.size()))
            << "slice " << s << " row " << r;
      }
    }

    ASSERT_LT(w.id, weights.infos().size());
    EXPECT_FALSE(seen[w.id]) << "two weights of one id";
    seen[w.id] = true;
    const WeightInfo& info = weights.infos()[w.id];
    EXPECT_EQ(info.name, WeightName(b.role, b.layer));
    EXPECT_EQ(info.layer, b.layer);
    EXPECT_EQ(info.component, FactsOf(b.role).component);
    EXPECT_EQ(info.parameters(), expected.size());
    EXPECT_EQ(static_cast<int64_t>(info.rows), w.rows);
    EXPECT_EQ(static_cast<int64_t>(info.slices), w.slices);
    EXPECT_EQ(info.stored_bytes, (w.stored_row_bytes * info.rows + w.stored_scale_bytes) * info.slices);
    EXPECT_EQ(info.scale_bytes, w.stored_scale_bytes * info.slices);
    EXPECT_LE(info.packed_bytes, w.slice_stride * info.slices);
    uint64_t stored = 0;
    for (const std::string& name : b.names) {
      const StoredTensor& t = *inventory.Find(name);
      const auto shape = std::span(t.shape).first(std::min(t.shape.size(), b.shape.size()));  // not the dimension within blocks
      stored += b.rows.all() ? t.bytes : t.bytes / b.StoredRows(shape) * b.mapped_rows();
    }
    EXPECT_EQ(info.stored_bytes, stored + info.scale_bytes);
  }
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(seen[i]) << "info " << i << " describes nothing";
  EXPECT_EQ(weights.packed_bytes(), slice_pages * 4096);
}

}  // namespace tally
