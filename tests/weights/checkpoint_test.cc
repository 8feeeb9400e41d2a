// SPDX-License-Identifier: Apache-2.0
// Loading through the readers: files that the test writes in both formats, and the golden checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "engine/machine/parallel.h"
#include "engine/weights/weights.h"
#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/support/stored_weights.h"
#include "tests/support/temp_folder.h"
#include "tests/weights/expected.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

struct TestTensor {
  std::string name;
  DType dtype;
  std::vector<uint64_t> shape;
  std::vector<uint8_t> bytes;
};

TestTensor Random(std::string name, DType t, std::vector<uint64_t> shape, std::mt19937_64& rng) {
  uint64_t elements = 1;
  for (uint64_t d : shape) elements *= d;
  return {std::move(name), t, std::move(shape), RandomStored(t, elements, rng)};
}

// The safetensors format: u64 length of a JSON header, the header, the data.
void WriteSafetensors(const std::string& path, const std::vector<TestTensor>& tensors) {
  std::string header = "{";
  uint64_t at = 0;
  for (const TestTensor& t : tensors) {
    if (header.size() > 1) header += ",";
    header += "\"" + t.name + "\":{\"dtype\":\"" + std::string(DTypeName(t.dtype)) + "\",\"shape\":[";
    for (size_t i = 0; i < t.shape.size(); ++i) header += (i > 0 ? "," : "") + std::to_string(t.shape[i]);
    header += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + t.bytes.size()) + "]}";
    at += t.bytes.size();
  }
  header += "}";
  std::ofstream file(path, std::ios::binary);
  const uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << header;
  for (const TestTensor& t : tensors) {
    file.write(reinterpret_cast<const char*>(t.bytes.data()), static_cast<std::streamsize>(t.bytes.size()));
  }
}

TEST(Checkpoint, SafetensorsThatTheTestWrites) {
  const TempFolder folder;
  std::mt19937_64 rng(6);
  std::vector<TestTensor> tensors = {
      Random("embed", DType::kBF16, {50, 64}, rng),
      Random("gate_up_blocks", DType::kU8, {2, 40, 2, 16}, rng),
      Random("gate_up_scales", DType::kU8, {2, 40, 2}, rng),
      Random("conv1d", DType::kF16, {33, 20}, rng),
      Random("norm", DType::kF32, {64}, rng),
  };
  for (uint8_t& s : tensors[2].bytes) s = s == 255 ? 127 : s;
  WriteSafetensors(folder / "model.safetensors", tensors);
  std::ofstream(folder / "config.json") << "{\"model_type\": \"test\", \"architectures\": [\"Test\"]}";
  const auto inventory = ReadHuggingFace(folder.path());
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  ModelSpec spec;
  spec.recipe.tied_head = true;
  Bind(spec, Role::kTokenEmbedding, -1, {"embed"}, {50, 64});
  Bind(spec, Role::kExpertGate, 0, {"gate_up_blocks", "gate_up_scales"}, {2, 20, 64}, kEven, DType::kMXFP4);
  Bind(spec, Role::kExpertUp, 0, {"gate_up_blocks", "gate_up_scales"}, {2, 20, 64}, kOdd, DType::kMXFP4);
  Bind(spec, Role::kO, 0, {"conv1d"}, {20, 33}, Storage::kTransposed);
  Bind(spec, Role::kOutputNorm, -1, {"norm"}, {64});
  Team team(2);
  const auto weights = LoadSpec(*inventory, spec, team, nullptr);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  ExpectLoaded(*inventory, spec, *weights);
}

TEST(Checkpoint, GgufThatTheWriterWrites) {
  const TempFolder folder;
  std::mt19937_64 rng(7);
  std::vector<TestTensor> tensors;
  ModelSpec spec;
  GgufWriter writer;
  writer.Set("general.architecture", std::string("test"));
  int32_t layer = 0;
  for (DType t : kWeightTypes) {
    if (t == DType::kFP8) continue;  // GGUF has no such type
    const std::string name = WeightName(Role::kExpertDown, layer) + ".weight";
    const uint64_t cols = 3 * std::max<uint64_t>(32, GetDTypeInfo(t).block_size);
    tensors.push_back(Random(name, t, {3, 37, cols}, rng));
    Bind(spec, Role::kExpertDown, layer++, {name}, {3, 37, cols});
  }
  for (const TestTensor& t : tensors) writer.AddTensor(t.name, t.dtype, t.shape);
  const Status written = writer.Write(folder / "model.gguf", [&](size_t tensor, uint64_t offset, std::span<uint8_t> piece) {
    std::memcpy(piece.data(), tensors[tensor].bytes.data() + offset, piece.size());
  });
  ASSERT_TRUE(written.ok()) << written.message();
  const auto inventory = ReadGguf(folder / "model.gguf");
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  Team team(2);
  const auto weights = LoadSpec(*inventory, spec, team, nullptr);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  ExpectLoaded(*inventory, spec, *weights);
}

// Every golden checkpoint, in both formats.
TEST(Checkpoint, Goldens) {
  const fs::path goldens = TALLY_SOURCE_DIR "/tests/goldens";
  std::vector<fs::path> paths;
  for (const auto& file : fs::recursive_directory_iterator(goldens)) {
    if (file.path().filename() == "config.json") paths.push_back(file.path().parent_path());
    if (file.path().extension() == ".gguf") paths.push_back(file.path());
  }
  std::sort(paths.begin(), paths.end());
  Team team(2);
  size_t loaded = 0;
  std::string families;
  for (const fs::path& path : paths) {
    SCOPED_TRACE(path.string());
    const auto inventory = ReadCheckpoint(path.string());
    ASSERT_TRUE(inventory.ok()) << inventory.status().message();
    const auto spec = ReadModelSpec(*inventory);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    const auto weights = LoadSpec(*inventory, *spec, team, nullptr);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    ExpectLoaded(*inventory, *spec, *weights);
    ++loaded;
    families += " " + spec->recipe.family;
  }
  EXPECT_GE(loaded, 12u);
  RecordProperty("loaded", std::to_string(loaded) + families);
}

}  // namespace
}  // namespace tally
