// SPDX-License-Identifier: Apache-2.0
// A checkpoint that a test writes: two files of random tensors at odd offsets, and bindings to them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "engine/machine/parallel.h"
#include "engine/recipe/roles.h"
#include "engine/weights/weights.h"
#include "tests/support/stored_weights.h"
#include "tests/support/temp_folder.h"

namespace tally {

// guard: each slice ends with a page (WeightPlan::guarded).
inline Result<WeightPlan> PlanOf(const Inventory& inventory, const ModelSpec& spec, bool guard = false) {
  return PlanWeights(inventory, spec, guard ? SystemPageBytes() : 0);
}
inline Result<PackedWeights> LoadSpec(const Inventory& inventory, const ModelSpec& spec, Team& team, const LoadProgress& progress,
                                      bool guard = false) {
  TALLY_ASSIGN_OR_RETURN(const WeightPlan plan, PlanOf(inventory, spec, guard));
  return LoadWeights(inventory, plan, team, progress);
}

// Rows of two weights in turn.
inline constexpr RowMap kEven = {0, 1, 2}, kOdd = {1, 1, 2};

inline TensorBinding& Bind(ModelSpec& spec, Role role, int32_t layer, std::vector<std::string> names, std::vector<uint64_t> shape,
                           Storage storage = Storage::kPlain, std::optional<DType> split = {}) {
  TensorBinding b;
  b.role = role;
  b.layer = layer;
  b.names = std::move(names);
  b.shape = std::move(shape);
  b.storage = storage;
  b.split = split;
  spec.bindings.push_back(std::move(b));
  return spec.bindings.back();
}
inline TensorBinding& Bind(ModelSpec& spec, Role role, int32_t layer, std::vector<std::string> names, std::vector<uint64_t> shape,
                           RowMap rows, std::optional<DType> split = {}) {
  TensorBinding& b = Bind(spec, role, layer, std::move(names), std::move(shape), Storage::kPlain, split);
  b.rows = rows;
  return b;
}

class WrittenCheckpoint {
 public:
  WrittenCheckpoint() {
    inventory.path = folder_.path();
    for (const char* file : {"a.bin", "b.bin"}) {
      inventory.files.push_back({folder_ / file, 0});
      data_.emplace_back(1);  // no empty files
    }
  }

  void Tensor(const std::string& name, DType t, std::vector<uint64_t> shape, uint32_t file = 0) {
    StoredTensor tensor{name, t, std::move(shape), file, 0, 0};
    std::vector<uint8_t> bytes = RandomStored(t, tensor.elements(), rng_);
    if (t == DType::kU8) {
      for (uint8_t& b : bytes) b = b == 255 ? 254 : b;  // no NaN among scales
    }
    data_[file].resize(data_[file].size() + 1 + rng_() % 70);
    tensor.offset = data_[file].size();
    tensor.bytes = bytes.size();
    data_[file].insert(data_[file].end(), bytes.begin(), bytes.end());
    inventory.tensors.push_back(std::move(tensor));
  }

  // The first tensor's bytes a second time.
  void CopyOfFirst(const std::string& name, bool last_byte_differs) {
    const StoredTensor& first = inventory.tensors[0];
    std::vector<uint8_t>& data = data_[first.file];
    const size_t at = data.size();
    data.resize(at + first.bytes);
    std::copy_n(data.data() + first.offset, first.bytes, data.data() + at);
    if (last_byte_differs) data.back() ^= 1;
    inventory.tensors.push_back({name, first.dtype, first.shape, first.file, at, first.bytes});
  }

  TensorBinding& Bind(Role role, int32_t layer, std::vector<std::string> names, std::vector<uint64_t> shape,
                      Storage storage = Storage::kPlain, std::optional<DType> split = {}) {
    return tally::Bind(spec, role, layer, std::move(names), std::move(shape), storage, split);
  }

  TensorBinding& Bind(Role role, int32_t layer, std::vector<std::string> names, std::vector<uint64_t> shape, RowMap rows,
                      std::optional<DType> split = {}) {
    return tally::Bind(spec, role, layer, std::move(names), std::move(shape), rows, split);
  }

  // A tensor stored just as it is wanted.
  void Plain(Role role, int32_t layer, DType t, std::vector<uint64_t> shape, uint32_t file = 0) {
    const std::string name = WeightName(role, layer) + ".plain";
    Tensor(name, t, shape, file);
    Bind(role, layer, {name}, shape);
  }

  void Write() {
    inventory.BuildIndex();
    for (size_t f = 0; f < data_.size(); ++f) {
      std::ofstream(inventory.files[f].path, std::ios::binary)
          .write(reinterpret_cast<const char*>(data_[f].data()), static_cast<std::streamsize>(data_[f].size()));
      inventory.files[f].size = data_[f].size();
    }
  }

  std::string Error() {
    Write();
    Team team(1);
    const auto loaded = LoadSpec(inventory, spec, team, nullptr);
    EXPECT_FALSE(loaded.ok());
    return loaded.status().message();
  }

  Inventory inventory;
  ModelSpec spec;

 private:
  TempFolder folder_;
  std::vector<std::vector<uint8_t>> data_;
  std::mt19937_64 rng_{42};
};

}  // namespace tally
