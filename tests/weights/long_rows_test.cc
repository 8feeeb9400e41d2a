// SPDX-License-Identifier: Apache-2.0
// Rows of which 16 do not fit what a thread reads at a time (1 MiB) are read and packed in pieces: the same bytes in the arena,
// and no staging buffer that grows with the rows.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "tests/support/sanitizers.h"
#include "tests/weights/expected.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

// First: the peak is the process's.
TEST(LongRows, StagingDoesNotGrowWithThem) {
#if defined(TALLY_SHADOW_MEMORY)
  GTEST_SKIP() << "the sanitizer's own memory would be counted";
#endif
  WrittenCheckpoint c;
  c.Write();
  const uint64_t cols = uint64_t{1} << 22;
  uint64_t at = 0, arena = 0;
  const auto add = [&](Role role, int32_t layer, DType type, std::vector<uint64_t> shape, Storage storage) {
    const std::string name = WeightName(role, layer);
    StoredTensor t{name, type, shape, 0, at, 0};
    t.bytes = *StoredBytes(type, t.elements());
    at += t.bytes;
    arena += t.bytes;
    c.inventory.tensors.push_back(t);
    if (storage == Storage::kTransposed) std::swap(shape[0], shape[1]);
    c.Bind(role, layer, {name}, shape, storage);
  };
  add(Role::kQ, 0, DType::kQ4_0, {16, cols}, Storage::kPlain);     // 38 MB of 16 rows
  add(Role::kO, 0, DType::kF32, {4, cols}, Storage::kTransposed);  // 34 MB of two
  add(Role::kOutputNorm, -1, DType::kF32, {4 * cols}, Storage::kPlain);
  std::filesystem::resize_file(c.inventory.files[0].path, at);  // sparse
  c.inventory.files[0].size = at;
  c.inventory.BuildIndex();
  Team team(2);
  const uint64_t before = ResidentBytes(), peak_before = PeakResidentBytes();
  const auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->packed_bytes(), arena);
  EXPECT_LE(PeakResidentBytes(), std::max(peak_before, before + arena + arena / 20));
}

TEST(LongRows, EveryStorage) {
  using S = Storage;
  WrittenCheckpoint c;
  int32_t layer = 0;
  for (DType t : kWeightTypes) {
    const uint64_t odd = GetDTypeInfo(t).quantised ? 0 : 1;
    c.Plain(Role::kQ, layer, t, {21, 128 * 1000 + odd}, layer % 2);
    const std::string both = "x.i." + std::to_string(layer);
    c.Tensor(both, t, {2, 2 * 9, 96 * 1000 + odd});
    c.Bind(Role::kExpertUp, layer, {both}, {2, 9, 96 * 1000 + odd}, kOdd);
    c.Bind(Role::kExpertGate, layer, {both}, {2, 9, 96 * 1000 + odd}, kEven);
    if (odd == 1) {
      const uint64_t wide = t == DType::kF32 ? 200'001 : 400'003;
      const std::string turned = "x.t." + std::to_string(layer);
      c.Tensor(turned, t, {5, wide}, 1);
      c.Bind(Role::kO, layer, {turned}, {wide, 5}, S::kTransposed);
    }
    ++layer;
  }
  // An interleaved tensor of which only one half is wanted.
  c.Tensor("x.odd", DType::kF16, {2 * 5, 70'001});
  c.Bind(Role::kUp, 0, {"x.odd"}, {5, 70'001}, kOdd);
  // Blocks of rows.
  c.Tensor("x.blocks", DType::kQ8_0, {2 * 3 * 7, 96 * 1000});
  c.Bind(Role::kK, 1, {"x.blocks"}, {2 * 7, 96 * 1000}, RowMap{7, 7, 21});
  c.Tensor("x.long", DType::kBF16, {2 * 700'001});
  c.Bind(Role::kKBias, 1, {"x.long"}, {700'001}, RowMap{700'001, 700'001, 700'001});
  // Hugging Face's MXFP4.
  const uint64_t groups = 3001;
  c.Tensor("gate_up_blocks", DType::kU8, {2, 2 * 17, groups, 16}, 1);
  c.Tensor("gate_up_scales", DType::kU8, {2, 2 * 17, groups}, 0);
  c.Bind(Role::kExpertUp, layer, {"gate_up_blocks", "gate_up_scales"}, {2, 17, groups * 32}, kOdd, DType::kMXFP4);
  c.Bind(Role::kExpertGate, layer, {"gate_up_blocks", "gate_up_scales"}, {2, 17, groups * 32}, kEven, DType::kMXFP4);
  c.Tensor("down_blocks", DType::kU8, {2, 18, 2 * groups, 16}, 1);
  c.Tensor("down_scales", DType::kU8, {2, 18, 2 * groups}, 0);
  c.Bind(Role::kExpertDown, layer, {"down_blocks", "down_scales"}, {2, 18, 2 * groups * 32}, S::kPlain, DType::kMXFP4);
  // Vectors, and rows that are kept as they are.
  c.Plain(Role::kOutputNorm, -1, DType::kF32, {700'001});
  c.Plain(Role::kOutputNormBias, -1, DType::kBF16, {1'500'001});
  c.Tensor("bias", DType::kF16, {2, 2 * 400'001});
  c.Bind(Role::kExpertGateBias, 0, {"bias"}, {2, 400'001}, kEven);
  c.Bind(Role::kExpertUpBias, 0, {"bias"}, {2, 400'001}, kOdd);
  c.Plain(Role::kPositionEmbedding, -1, DType::kF32, {3, 300'001});
  c.Write();
  for (int threads : {1, 3}) {
    SCOPED_TRACE(threads);
    Team team(threads);
    uint64_t done = 0, all = 0;
    const auto weights = LoadSpec(c.inventory, c.spec, team, [&](uint64_t now, uint64_t total) {
      done = now, all = total;
      return true;
    });
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    EXPECT_EQ(done, all);
    ExpectLoaded(c.inventory, c.spec, *weights);
  }
}

}  // namespace
}  // namespace tally
