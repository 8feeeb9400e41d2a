// SPDX-License-Identifier: Apache-2.0
#include "models/catalog/recipe_settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "counters/books/books.h"
#include "engine/recipe/check_recipe.h"
#include "models/catalog/catalog.h"

namespace tally {
namespace {

using Settings = std::vector<std::string>;

Recipe Base(std::string_view name) {
  Result<CatalogModel> model = FindCatalogModel(name);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? model->recipe : Recipe{};
}

Recipe Changed(std::string_view name, const Settings& settings) {
  Result<Recipe> r = ChangeRecipe(Base(name), settings);
  EXPECT_TRUE(r.ok()) << r.status().message();
  return r.ok() ? std::move(r).value() : Base(name);
}

uint64_t Total(const Recipe& r) { return books::ClosedFormCounts(r).total; }

// Totals of the course text's model and of its variants, worked out by hand in its review.
TEST(RecipeSettings, TheCoursesVariants) {
  const std::pair<Settings, uint64_t> cases[] = {
      {{}, 103680},
      {{"qkv_bias"}, 104064},
      {{"qkv_bias", "o_bias"}, 104192},
      {{"tied=false"}, 107776},
      {{"d_model=128", "n_layers=4", "d_ff=512"}, 799488},
      {{"d_model=256", "n_layers=6", "d_ff=1024"}, 4749312},
      {{"norm=rms"}, 103680 - 5 * 64},
      {{"ffn_bias=no"}, 103680 - 2 * (256 + 64)},
      {{"learned_positions=yes", "context=1024"}, 103680 + 1024 * 64},
      {{"gated"}, 103680 + 2 * (64 * 256 + 256)},
      {{"sinks=on"}, 103680 + 2 * 4},
      {{"qk_norm=head"}, 103680 + 2 * 2 * 16},
      {{"n_kv_heads=1"}, 103680 - 2 * 2 * 3 * 16 * 64},
      {{"head_dim=32"}, 103680 + 2 * 4 * 64 * 64},
      {{"vocab=128"}, 103680 + 64 * 64},
      {{"n_experts=4", "top_k=2", "d_expert=32"}, 103680 - 2 * 33088 + 2 * 4 * (2 * 64 * 32) + 2 * 4 * 64},
      {{"n_layers=1", "n_layers=2"}, 103680},
  };
  for (const auto& [settings, total] : cases) {
    SCOPED_TRACE(settings.empty() ? "as it is" : settings.front());
    EXPECT_EQ(Total(Changed("mini-gpt", settings)), total);
  }
}

// A smaller published model of the same make is the larger one with other numbers.
TEST(RecipeSettings, OnePublishedModelIsAnotherChanged) {
  const std::tuple<std::string_view, Settings, std::string_view> cases[] = {
      {"gpt2", {"n_layers=48", "d_model=1600", "n_heads=25", "d_ff=6400"}, "gpt2-xl"},
      {"gpt-oss-120b", {"n_layers=24", "n_experts=32"}, "gpt-oss-20b"},
      {"gpt-oss-20b", {"n_layers=36", "n_experts=128"}, "gpt-oss-120b"},
      {"Llama-3.1-8B", {"n_layers=80", "d_model=8192", "n_heads=64", "d_ff=28672"}, "Llama-3.1-70B"},
      {"Qwen3-8B", {"n_layers=28", "d_model=1024", "n_heads=16", "head_dim=128", "d_ff=3072", "tied"}, "Qwen3-0.6B"},
      {"Qwen3-30B-A3B", {"n_layers=94", "d_model=4096", "n_heads=64", "d_expert=1536"}, "Qwen3-235B-A22B"},
  };
  for (const auto& [from, settings, to] : cases) {
    SCOPED_TRACE(to);
    const Recipe changed = Changed(from, settings), expected = Base(to);
    EXPECT_EQ(books::ClosedFormCounts(changed), books::ClosedFormCounts(expected));
    EXPECT_EQ(changed.all.attention.head_dim, expected.all.attention.head_dim);
    EXPECT_EQ(changed.all.attention.n_kv_heads, expected.all.attention.n_kv_heads);
    EXPECT_EQ(changed.rope.dim, expected.rope.dim);
    ASSERT_EQ(changed.layers.size(), expected.layers.size());
    for (size_t i = 0; i < changed.layers.size(); ++i) {
      EXPECT_EQ(changed.layers[i].attention.window, expected.layers[i].attention.window) << i;
      EXPECT_EQ(changed.layers[i].sparse(), expected.layers[i].sparse()) << i;
      EXPECT_EQ(changed.layers[i].attention.scale, expected.layers[i].attention.scale) << i;
    }
  }
}

TEST(RecipeSettings, HeadsFollow) {
  const Recipe more = Changed("mini-gpt", {"n_heads=8"});
  EXPECT_EQ(more.all.attention.head_dim, 8);
  EXPECT_EQ(more.all.attention.n_kv_heads, 8);
  EXPECT_EQ(more.rope.dim, 8);
  EXPECT_FLOAT_EQ(more.layers[1].attention.scale, static_cast<float>(1 / std::sqrt(8.0)));
  const Recipe set = Changed("mini-gpt", {"n_heads=8", "head_dim=16", "n_kv_heads=2"});
  EXPECT_EQ(set.all.attention.head_dim, 16);
  EXPECT_EQ(set.all.attention.n_kv_heads, 2);
  EXPECT_EQ(Changed("Qwen3-4B", {"n_heads=16"}).all.attention.head_dim, 128);  // was not d_model / n_heads
  EXPECT_EQ(Changed("Qwen3-4B", {"n_heads=16"}).all.attention.n_kv_heads, 8);
  EXPECT_EQ(Changed("GLM-4.5", {"head_dim=64"}).rope.dim, 32);  // half of a head turns
  EXPECT_EQ(Changed("DeepSeek-V3", {"n_heads=64"}).all.attention.n_kv_heads, 64);
  // 168 is not the width of Gemma's heads: its scale stays.
  EXPECT_EQ(Changed("Gemma-3-27B", {"head_dim=64"}).all.attention.scale, Base("Gemma-3-27B").all.attention.scale);
}

TEST(RecipeSettings, WindowsKeepTheirPattern) {
  const Recipe gemma = Changed("Gemma-3-1B", {"n_layers=100", "window=2048"});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(gemma.layers[i].attention.window, i % 6 == 5 ? 0 : 2048) << i;
  const Recipe none = Changed("gpt-oss-20b", {"window=0"});
  for (const LayerRecipe& layer : none.layers) EXPECT_EQ(layer.attention.window, 0);
  const Recipe all = Changed("Llama-2-7B", {"window=1024", "n_layers=5"});
  ASSERT_EQ(all.layers.size(), 5u);
  for (const LayerRecipe& layer : all.layers) EXPECT_EQ(layer.attention.window, 1024);
}

TEST(RecipeSettings, SparseLayersKeepTheirPattern) {
  const std::tuple<std::string_view, Settings, int, int> cases[] = {
      // layers, of them dense at the beginning
      {"DeepSeek-V3", {}, 61, 3},
      {"DeepSeek-V3", {"n_layers=80"}, 80, 3},
      {"DeepSeek-V3", {"dense_layers=0"}, 61, 0},
      {"DeepSeek-V3", {"n_layers=4"}, 4, 3},
      {"DeepSeek-V3", {"dense_layers=10", "n_layers=12"}, 12, 10},
      {"gpt-oss-20b", {"dense_layers=2", "d_ff=2880"}, 24, 2},
      {"Llama-2-7B", {"n_experts=8", "top_k=2", "d_expert=64", "dense_layers=1"}, 32, 1},
      {"Qwen3-30B-A3B", {"n_experts=0"}, 48, 48},
  };
  for (const auto& [name, settings, layers, dense] : cases) {
    SCOPED_TRACE(settings.empty() ? "as it is" : settings.front());
    const Recipe r = Changed(name, settings);
    ASSERT_EQ(r.layers.size(), static_cast<size_t>(layers));
    for (int i = 0; i < layers; ++i) EXPECT_EQ(r.layers[i].sparse(), i >= dense) << i;
  }
  Recipe every_other = Base("Qwen3-30B-A3B");
  for (size_t i = 0; i < every_other.layers.size(); ++i)
    every_other.layers[i].feed_forward = i % 2 == 1 ? FeedForward::kSparse : FeedForward::kDense;
  const Result<Recipe> longer = ChangeRecipe(every_other, Settings{"n_layers=51"});
  ASSERT_TRUE(longer.ok()) << longer.status().message();
  for (size_t i = 0; i < 51; ++i) EXPECT_EQ(longer->layers[i].sparse(), i % 2 == 1) << i;
}

TEST(RecipeSettings, BadOnesSayWhatWasExpected) {
  const std::tuple<std::string_view, Settings, std::vector<std::string>> cases[] = {
      {"gpt2", {"layers=3"}, {"'layers'", "n_layers", "shared_gate", "qk_norm"}},
      {"gpt2", {"=3"}, {"''", "n_layers"}},
      {"gpt2", {""}, {"''", "n_layers"}},
      {"gpt2", {"N_LAYERS=3"}, {"'N_LAYERS'"}},
      {"gpt2", {"evil\nkey=3"}, {"'evil\\nkey'"}},
      {"gpt2", {"n_layers"}, {"n_layers", "whole number from 1 to 4096", "''"}},
      {"gpt2", {"n_layers=0"}, {"n_layers", "from 1 to 4096", "'0'"}},
      {"gpt2", {"n_layers=-1"}, {"'-1'"}},
      {"gpt2", {"n_layers=4097"}, {"'4097'"}},
      {"gpt2", {"n_layers=1e3"}, {"'1e3'"}},
      {"gpt2", {"n_layers= 3"}, {"' 3'"}},
      {"gpt2", {"n_layers=3 "}, {"'3 '"}},
      {"gpt2", {"n_layers=+3"}, {"'+3'"}},
      {"gpt2", {"n_layers=3=4"}, {"'3=4'"}},
      {"gpt2", {"vocab=99999999999999999999"}, {"vocab", "'99999999999999999999'"}},
      {"gpt2", {"d_model=16777217"}, {"d_model", "16777216"}},
      {"gpt2", {"tied=maybe"}, {"tied", "true or false", "'maybe'"}},
      {"gpt2", {"tied="}, {"tied", "true or false", "''"}},
      {"gpt2", {"norm=batch"}, {"norm", "rms or layer", "'batch'"}},
      {"gpt2", {"norm"}, {"norm", "rms or layer"}},
      {"gpt2", {"qk_norm=all"}, {"qk_norm", "none, head or whole", "'all'"}},
      {"gpt2", {"n_heads=7"}, {"768", "7 heads"}},
      {"gpt2", {"n_kv_heads=5"}, {"12 attention heads", "5 key-value heads"}},
      {"gpt2", {"top_k=2"}, {"top_k", "n_experts"}},
      {"gpt2", {"d_shared=2"}, {"d_shared", "n_experts"}},
      {"gpt2", {"dense_layers=2"}, {"dense_layers", "n_experts"}},
      {"gpt2", {"router_bias"}, {"router_bias", "n_experts"}},
      {"gpt2", {"n_experts=4"}, {"d_expert"}},
      {"gpt2", {"n_experts=4", "d_expert=8"}, {"top_k is 0", "4"}},
      {"gpt2", {"n_experts=4", "d_expert=8", "top_k=5"}, {"top_k is 5", "4"}},
      {"gpt2", {"n_experts=4", "d_expert=8", "top_k=1", "dense_layers=12"}, {"12 layers", "12 dense"}},
      {"gpt2", {"n_experts=4", "d_expert=8", "top_k=1", "shared_gate"}, {"d_shared"}},
      {"gpt-oss-20b", {"n_experts=3"}, {"top_k is 4", "3"}},
      {"gpt-oss-20b", {"n_experts=0"}, {"d_ff"}},
      {"gpt-oss-20b", {"dense_layers=1"}, {"d_ff"}},
      {"gpt-oss-20b", {"d_ff=100"}, {"d_ff", "d_expert"}},
      {"gpt-oss-20b", {"ffn_bias"}, {"ffn_bias", "expert_bias"}},
      {"gpt-oss-20b", {"gated=no"}, {"gated"}},
      {"gpt-oss-20b", {"head_dim=63"}, {"rope", "63"}},
      {"DeepSeek-V3", {"head_dim=64"}, {"head_dim", "latent"}},
      {"DeepSeek-V3", {"n_kv_heads=8"}, {"n_kv_heads", "latent"}},
      {"DeepSeek-V3", {"qkv_bias"}, {"latent", "biases"}},
      {"DeepSeek-V3", {"n_layers=3"}, {"3 layers", "3 dense"}},
      {"gpt2", {"n_heads=65536", "head_dim=65536"}, {"65536 attention heads", "16777216"}},
      {"gpt2", {"n_layers=4096", "d_ff=16777216", "d_model=16777216", "n_heads=16384", "head_dim=1024"}, {"10^15"}},
      {"gpt-oss-20b", {"n_experts=65536", "d_expert=16777216", "n_layers=4096"}, {"10^15"}},
  };
  for (const auto& [name, settings, parts] : cases) {
    SCOPED_TRACE(settings.back());
    const Result<Recipe> r = ChangeRecipe(Base(name), settings);
    EXPECT_FALSE(r.ok());
    if (r.ok()) continue;
    EXPECT_EQ(r.status().code(), StatusCode::kBadInput);
    EXPECT_EQ(r.status().message().find('\n'), std::string::npos);
    for (const std::string& part : parts) {
      EXPECT_NE(r.status().message().find(part), std::string::npos) << "expected \"" << part << "\" in: " << r.status().message();
    }
  }
}

// Every key is taken with some value, and the catalogue's recipes are sound as they are.
TEST(RecipeSettings, EveryKeyAndEveryModel) {
  const std::string keys = RecipeKeys();
  for (const char* setting : {"n_layers=2",        "d_model=128", "n_heads=4",      "n_kv_heads=1", "head_dim=8",
                              "vocab=9",           "context=9",   "window=9",       "n_experts=9",  "top_k=1",
                              "d_expert=9",        "d_shared=9",  "dense_layers=1", "mtp_layers=2", "d_ff=9",
                              "qkv_bias",          "q_bias",      "k_bias",         "v_bias",       "o_bias",
                              "expert_bias",       "router_bias", "gated=0",        "tied",         "sinks",
                              "learned_positions", "post_norms",  "shared_gate",    "norm=layer",   "qk_norm=whole"}) {
    SCOPED_TRACE(setting);
    const std::string key = std::string(setting).substr(0, std::string(setting).find('='));
    EXPECT_NE(keys.find(key), std::string::npos);
    const Settings settings = {"dense_layers=1", "d_ff=7", setting};
    const Result<Recipe> r = ChangeRecipe(Base("Qwen1.5-MoE-A2.7B"), settings);
    EXPECT_TRUE(r.ok()) << r.status().message();
  }
  for (const std::string_view name : CatalogNames()) {
    const Status status = CheckRecipe(Base(name));
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
}

}  // namespace
}  // namespace tally
