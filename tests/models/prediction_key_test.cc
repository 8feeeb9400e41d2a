// SPDX-License-Identifier: Apache-2.0
// GGUF's nextn_predict_layers: the tensors say which blocks are for multi-token prediction.
#include <gtest/gtest.h>

#include <string>

#include "models/family.h"
#include "models/made_checkpoint.h"
#include "tests/support/small_config.h"

namespace tally {
namespace {

void ExpectSameModel(const ModelSpec& a, const ModelSpec& b) {
  EXPECT_EQ(a.recipe, b.recipe);
  ASSERT_EQ(a.bindings.size(), b.bindings.size());
  for (size_t i = 0; i < a.bindings.size(); ++i) EXPECT_EQ(a.bindings[i].names, b.bindings[i].names);
}

std::string KeyOf(const Inventory& gguf, std::string_view key) {
  return gguf.metadata.GetString("general.architecture").value().value() + "." + std::string(key);
}

// A file without tensors named nextn, in every family: all blocks are ordinary layers, whatever the key says.
TEST(PredictionKey, CountsForNothingWithoutTensors) {
  size_t read = 0;
  for (const std::string& name : SmallModels()) {
    SCOPED_TRACE(name);
    const auto made = MakeGguf(ReadConfigText(SmallConfig(name).dump(), name).value(), {});
    if (!made.ok()) continue;  // GGUF cannot say it
    Inventory keyed = made->inventory;
    keyed.metadata.Set(KeyOf(keyed, "nextn_predict_layers"), int64_t{1});
    const auto spec = ReadModelSpec(keyed);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    ExpectSameModel(*spec, made->spec);
    ++read;
  }
  EXPECT_GT(read, 40u);
}

// block_count may count the block for prediction or not, and the block may be there or not.
TEST(PredictionKey, BlocksAndTensors) {
  const auto config = ReadConfigText(SmallConfig("Qwen3.5-4B").dump(), "config.json").value();
  const MadeCheckpoint plain = MakeGguf(config, {}).value();
  const MadeCheckpoint predicting = MakeGguf(config, {}, /*prediction=*/true).value();
  const Inventory& whole = predicting.inventory;
  const std::string blocks = KeyOf(whole, "block_count"), layers = std::to_string(kLayers);
  for (const int counted : {kLayers, kLayers + 1}) {
    Inventory with = whole, without = plain.inventory;
    for (Inventory* file : {&with, &without}) {
      file->metadata.Set(blocks, int64_t{counted});
      file->metadata.Set(KeyOf(whole, "nextn_predict_layers"), int64_t{1});
    }
    SCOPED_TRACE(counted);
    const auto read = ReadModelSpec(with), drafting = ReadModelSpec(with, true), alone = ReadModelSpec(without);
    for (const auto* spec : {&read, &drafting, &alone}) ASSERT_TRUE(spec->ok()) << spec->status().message();
    EXPECT_EQ(read->recipe.n_layers, kLayers);
    EXPECT_EQ(read->recipe.mtp_layers, 1);
    ASSERT_EQ(read->parts_not_run.size(), 1u);
    EXPECT_EQ(read->parts_not_run[0].name, "blk." + layers);
    ExpectSameModel(*drafting, predicting.spec);
    ExpectSameModel(*alone, plain.spec);
  }
}

}  // namespace
}  // namespace tally
