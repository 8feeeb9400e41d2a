// SPDX-License-Identifier: Apache-2.0
// What the formats of a stored model say alike, and where they say it differently.
#include <gtest/gtest.h>

#include <string>

#include "loaders/loaders.h"
#include "tests/models/spec_tools.h"

namespace tally {
namespace {

using synthetic::MustRead;
using synthetic::With;

Inventory StoredGolden(const std::string& path) {
  Result<Inventory> inventory = ReadCheckpoint(std::string(TALLY_SOURCE_DIR) + "/tests/goldens/" + path);
  EXPECT_TRUE(inventory.ok()) << inventory.status().message();
  return inventory.ok() ? std::move(inventory).value() : Inventory{};
}

// llama.cpp takes a factor of 0 for none.
TEST(Goldens, FactorsOfZeroAreNone) {
  const auto read = [](const char* golden, const std::string& key, double value) {
    return MustRead(With(StoredGolden(std::string(golden) + "/model.gguf"), key, value)).recipe;
  };
  EXPECT_EQ(read("granite/granite-a-f32-tied", "granite.residual_scale", 0).all.residual.scale, 1);
  EXPECT_EQ(read("granite/granite-a-f32-tied", "granite.residual_scale", 0.5).all.residual.scale, 0.5);
  EXPECT_EQ(read("deepseek_v1/deepseek1-a-f32-top3of6-shared", "deepseek.expert_weights_scale", 0).all.experts.route_scale, 1);
}

// Both formats of a case are the same model but for how rope pairs and what the files store.
TEST(Goldens, FormatsAgree) {
  for (const std::string path :
       {"gpt2/gpt2-a-f32-release-names", "gpt2/gpt2-b-bf16-prefixed-ninner", "gptoss/gptoss-a-top4of8-realyarn",
        "llama/llama-a-f32-gqa-untied", "llama/llama-b-bf16-llama3rope-headdim-tied"}) {
    SCOPED_TRACE(path);
    const Recipe hf = MustRead(StoredGolden(path)).recipe, gguf = MustRead(StoredGolden(path + "/model.gguf")).recipe;
    EXPECT_EQ(hf.n_layers, gguf.n_layers);
    EXPECT_EQ(hf.d_model, gguf.d_model);
    EXPECT_EQ(hf.all.attention.n_heads, gguf.all.attention.n_heads);
    EXPECT_EQ(hf.all.attention.n_kv_heads, gguf.all.attention.n_kv_heads);
    EXPECT_EQ(hf.all.attention.head_dim, gguf.all.attention.head_dim);
    EXPECT_EQ(hf.all.ffn.width, gguf.all.ffn.width);
    EXPECT_EQ(hf.vocab, gguf.vocab);
    EXPECT_EQ(hf.context, gguf.context);
    EXPECT_EQ(hf.norm_eps, gguf.norm_eps);
    EXPECT_EQ(hf.all.network.activation, gguf.all.network.activation);
    EXPECT_EQ(hf.all.experts.n_experts, gguf.all.experts.n_experts);
    EXPECT_EQ(hf.all.experts.top_k, gguf.all.experts.top_k);
    EXPECT_EQ(hf.all.experts.width, gguf.all.experts.width);
    EXPECT_EQ(hf.rope.theta, gguf.rope.theta);
    EXPECT_EQ(hf.rope.scaling.truncate || hf.rope.scaling.kind != RopeScalingKind::kYarn,
              gguf.rope.scaling.truncate || gguf.rope.scaling.kind != RopeScalingKind::kYarn);
    EXPECT_DOUBLE_EQ(hf.rope.scaling.attention_factor, gguf.rope.scaling.attention_factor);
    for (int32_t i = 0; i < hf.n_layers; ++i) {
      EXPECT_EQ(hf.layers[i].attention.window, gguf.layers[i].attention.window);
      EXPECT_EQ(hf.layers[i].sparse(), gguf.layers[i].sparse());
      EXPECT_EQ(hf.layers[i].attention.scale, gguf.layers[i].attention.scale);
    }
  }
}

}  // namespace
}  // namespace tally
