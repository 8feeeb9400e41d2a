// SPDX-License-Identifier: Apache-2.0
// FP8 weights, whose codes and scales are tensors of their own: every grid of scales, and every way a binding takes rows.
#include <gtest/gtest.h>

#include "tests/weights/expected.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

// Codes [rows, cols] and their scales, bound as `shape`.
TensorBinding& Scaled(WrittenCheckpoint& c, Role role, int32_t layer, std::vector<uint64_t> codes, DType type,
                      std::vector<uint64_t> scales, std::vector<uint64_t> shape) {
  const std::string name = WeightName(role, layer) + "." + std::to_string(c.inventory.tensors.size());
  c.Tensor(name, DType::kF8_E4M3, std::move(codes), 1);
  c.Tensor(name + "_scale_inv", type, std::move(scales));
  TensorBinding& b = c.Bind(role, layer, {name}, std::move(shape));
  b.scales = {name + "_scale_inv"};
  return b;
}

void ExpectLoads(WrittenCheckpoint& c) {
  c.Write();
  for (int threads : {1, 3}) {
    Team team(threads);
    const auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    ExpectLoaded(c.inventory, c.spec, *weights);
  }
}

TEST(ScaledWeights, EveryGrid) {
  WrittenCheckpoint c;
  Scaled(c, Role::kQ, 0, {300, 384}, DType::kF32, {3, 3}, {300, 384});
  Scaled(c, Role::kK, 0, {40, 256}, DType::kBF16, {1, 2}, {40, 256});
  Scaled(c, Role::kV, 0, {40, 256}, DType::kF32, {40, 1}, {40, 256});
  Scaled(c, Role::kO, 0, {384, 128}, DType::kBF16, {384}, {384, 128});
  Scaled(c, Role::kUp, 0, {77, 128}, DType::kF32, {}, {77, 128});
  Scaled(c, Role::kDown, 0, {77, 1280}, DType::kF16, {1}, {77, 1280});
  Scaled(c, Role::kTokenEmbedding, -1, {90, 256}, DType::kF32, {1, 2}, {90, 256});  // in panels too
  ExpectLoads(c);
}

TEST(ScaledWeights, EveryWayToTakeRows) {
  WrittenCheckpoint c;
  // A tensor per expert, of more than is read at a time.
  std::vector<std::string> names, scales;
  for (int i = 0; i < 3; ++i) {
    names.push_back("w1." + std::to_string(i));
    scales.push_back(names.back() + "_scale_inv");
    c.Tensor(names.back(), DType::kF8_E4M3, {500, 2560}, i % 2);
    c.Tensor(scales.back(), DType::kF32, {4, 20});
  }
  c.Bind(Role::kExpertGate, 0, names, {3, 500, 2560}).scales = scales;
  // Gate and up one after the other, and in turn; heads of keys and values, the keys transposed.
  c.Tensor("both", DType::kF8_E4M3, {2 * 140, 256});
  c.Tensor("both_scale", DType::kF32, {3, 2});
  c.Tensor("turns", DType::kF8_E4M3, {2 * 33, 256});
  c.Tensor("turns_scale", DType::kF32, {66});
  c.Tensor("kv_b", DType::kF8_E4M3, {3 * (24 + 40), 128});
  c.Tensor("kv_b_scale", DType::kF32, {2, 1});
  c.Bind(Role::kGate, 1, {"both"}, {140, 256}, RowMap{0, 140, 140}).scales = {"both_scale"};
  c.Bind(Role::kUp, 1, {"both"}, {140, 256}, RowMap{140, 140, 140}).scales = {"both_scale"};
  c.Bind(Role::kGate, 2, {"turns"}, {33, 256}, kEven).scales = {"turns_scale"};
  c.Bind(Role::kUp, 2, {"turns"}, {33, 256}, kOdd).scales = {"turns_scale"};
  TensorBinding& keys = c.Bind(Role::kKB, 3, {"kv_b"}, {3, 128, 24}, RowMap{0, 24, 64});
  keys.storage = Storage::kTransposedHeads;
  keys.scales = {"kv_b_scale"};
  c.Bind(Role::kVB, 3, {"kv_b"}, {3, 40, 128}, RowMap{24, 40, 64}).scales = {"kv_b_scale"};
  // Rows of which 16 are more than is read at a time.
  Scaled(c, Role::kDown, 4, {21, 128 * 1000}, DType::kF32, {1, 1000}, {21, 128 * 1000});
  ExpectLoads(c);
}

TEST(ScaledWeights, Refusals) {
  const auto error = [](std::vector<uint64_t> codes, DType type, std::vector<uint64_t> scales, DType coded = DType::kF8_E4M3) {
    WrittenCheckpoint c;
    c.Tensor("w", coded, codes);
    c.Tensor("w_scale", type, std::move(scales));
    c.Bind(Role::kQ, 0, {"w"}, codes).scales = {"w_scale"};
    return c.Error();
  };
  {  // rows that are no whole blocks, of keys that are transposed by head
    WrittenCheckpoint c;
    c.Tensor("kv_b", DType::kF8_E4M3, {3 * (24 + 40), 100});
    c.Tensor("kv_b_scale", DType::kF32, {3 * (24 + 40)});
    TensorBinding& keys = c.Bind(Role::kKB, 0, {"kv_b"}, {3, 100, 24}, RowMap{0, 24, 64});
    keys.storage = Storage::kTransposedHeads;
    keys.scales = {"kv_b_scale"};
    EXPECT_NE(c.Error().find("cannot cut into blocks of 128"), std::string::npos);
  }
  EXPECT_NE(error({400, 128}, DType::kF32, {3, 1}).find("a scale for all, for each of 400 rows"), std::string::npos);
  EXPECT_NE(error({40, 128}, DType::kI32, {1, 1}).find("expected F32, F16 or BF16"), std::string::npos);
  EXPECT_NE(error({40, 128}, DType::kF32, {1, 1}, DType::kBF16).find("expected F8_E4M3"), std::string::npos);
}

}  // namespace
}  // namespace tally
