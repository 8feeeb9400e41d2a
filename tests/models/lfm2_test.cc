// SPDX-License-Identifier: Apache-2.0
// How LFM2 is read: layers that attend or convolve, the width of the feed-forward, and GGUF's lists of a number for each layer.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/models/spec_tools.h"

namespace tally {
namespace {

using synthetic::Bound;
using synthetic::ExpectBadInput;
using synthetic::MustRead;
using synthetic::With;

const std::string kFolder = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";

ModelSpec Checkpoint(const std::string& path) {
  const Result<Inventory> inventory = ReadCheckpoint(kFolder + path);
  EXPECT_TRUE(inventory.ok()) << inventory.status().message();
  return inventory.ok() ? MustRead(*inventory) : ModelSpec{};
}

TEST(Lfm2, BothFormats) {
  const std::string dense = "lfm2/lfm2-a-f32-tied", mixture = "lfm2_moe/lfm2moe-a-f32-top3of6";
  for (const std::string& path : {dense, mixture}) {
    const Recipe hf = Checkpoint(path).recipe, gguf = Checkpoint(path + "/model.gguf").recipe;
    EXPECT_EQ(hf.layers, gguf.layers);
    EXPECT_EQ(TapsOf(hf), 3);
    EXPECT_EQ(TapsOf(gguf), 3);
    EXPECT_EQ(hf.all.ffn.width, gguf.all.ffn.width);
    EXPECT_TRUE(hf.tied_head && gguf.tied_head);
    EXPECT_EQ(hf.all.experts.routing, gguf.all.experts.routing);
    EXPECT_EQ(hf.all.experts.router_bias, gguf.all.experts.router_bias);
    EXPECT_EQ(hf.all.experts.route_sum_eps, gguf.all.experts.route_sum_eps);
  }
  const Recipe r = Checkpoint(dense).recipe;
  EXPECT_EQ(r.all.ffn.width, 32);  // two thirds of 41, in steps of 8
  EXPECT_TRUE(r.layers[0].mixers == Mixer::kShortConv && r.layers[1].mixers == Mixer::kAttention);
  EXPECT_FALSE(r.layers[0].attends());
  const ModelSpec hf = Checkpoint(mixture);
  EXPECT_EQ(hf.recipe.family, "lfm2-moe");
  EXPECT_TRUE(hf.recipe.layers[0].dense() && hf.recipe.layers[1].sparse());
  EXPECT_EQ(Bound(hf, Role::kConv, 0)->StoredShape(24), (std::vector<uint64_t>{24, 1, 3}));
  EXPECT_EQ(Bound(Checkpoint(mixture + "/model.gguf"), Role::kConv, 0)->StoredShape(24), (std::vector<uint64_t>{24, 3}));
}

TEST(Lfm2, LayersAndWidths) {
  const Inventory dense = ReadCheckpoint(kFolder + "lfm2/lfm2-a-f32-tied").value();
  const auto types = [](const char* other) {
    return std::vector<std::string>{"conv", "full_attention", "conv", "full_attention", other};
  };
  EXPECT_EQ(MustRead(With(dense, "layer_types", types("conv"))).recipe, MustRead(dense).recipe);
  ExpectBadInput(With(dense, "layer_types", types("mamba")), {"layer_types 'mamba' is not supported"});
  ExpectBadInput(With(dense, "layer_types", std::vector<std::string>{"conv"}), {"layer_types lists 1 layers of 5"});
  ExpectBadInput(With(dense, "conv_bias", true), {"conv_bias true is not supported"});
  ExpectBadInput(With(dense, "conv_L_cache", int64_t{99}), {"conv_L_cache is 99; expected 1 to 16"});
  ExpectBadInput(With(dense, "conv_L_cache", int64_t{4}), {"conv.conv.weight", "expected [24, 1, 4]"});
  ExpectBadInput(With(dense, "block_auto_adjust_ff_dim", false), {"feed_forward", "expected [41, 24]"});
  ExpectBadInput(With(dense, "block_ffn_dim_multiplier", 1.5), {"feed_forward", "expected [40, 24]"});
  const Inventory gguf = ReadCheckpoint(kFolder + "lfm2/lfm2-a-f32-tied/model.gguf").value();
  const std::string kv = "lfm2.attention.head_count_kv";
  ExpectBadInput(With(gguf, kv, std::vector<int64_t>{0, 2}), {"attention.head_count_kv lists 2 layers of 5"});
  ExpectBadInput(With(gguf, kv, std::vector<int64_t>{0, 2, 0, 2, -1}), {"attention.head_count_kv has -1 for layer 4"});
  ExpectBadInput(With(gguf, kv, std::vector<int64_t>{0, 0, 0, 0, 0}), {"attention.head_count_kv has 0"});
  const Recipe windowed = MustRead(With(gguf, "lfm2.attention.sliding_window", int64_t{7})).recipe;
  EXPECT_EQ(windowed.layers[1].attention.window, 7);
  EXPECT_EQ(windowed.layers[0].attention.window, 0);
  // A list of which nothing is 0 is of sizes.
  const Recipe listed =
      MustRead(With(synthetic::GgufLlama(), "llama.attention.head_count_kv", std::vector<int64_t>{2, 2, 2})).recipe;
  EXPECT_EQ(listed, MustRead(synthetic::GgufLlama()).recipe);
  ExpectBadInput(With(synthetic::GgufLlama(), "llama.attention.head_count_kv", std::vector<int64_t>{2, 0, 2}),
                 {"has 0 for layer 1"});
}

}  // namespace
}  // namespace tally
