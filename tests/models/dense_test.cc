// SPDX-License-Identifier: Apache-2.0
// Relatives of Llama: what their configurations say beside the sizes, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"
#include "models/made_checkpoint.h"

namespace tally::dense {
namespace {

using Json = nlohmann::ordered_json;

Json ConfigOf(std::string_view name) { return Json::parse(PublishedConfig(name)); }

Result<ModelSpec> Read(const Json& config) {
  const Result<Inventory> inventory = ReadConfigText(config.dump(), "config.json");
  return inventory.ok() ? ReadFamily(*inventory) : inventory.status();
}

Recipe MustRead(const Json& config) {
  const Result<ModelSpec> spec = Read(config);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? spec->recipe : Recipe{};
}

void ExpectBad(const Json& config, std::string_view part) {
  const Result<ModelSpec> spec = Read(config);
  ASSERT_FALSE(spec.ok()) << part;
  EXPECT_NE(spec.status().message().find(part), std::string::npos) << spec.status().message();
}

TEST(Dense, Mistral3) {
  Json config = ConfigOf("Ministral-3-8B");
  const Recipe ministral = MustRead(config);
  EXPECT_TRUE(ministral.all.attention.temperature.everywhere);
  EXPECT_FLOAT_EQ(ministral.all.attention.temperature.scale, 0.1f);
  EXPECT_FLOAT_EQ(ministral.all.attention.temperature.floor, 16384);
  EXPECT_FLOAT_EQ(ministral.all.attention.temperature.offset, 0);
  EXPECT_EQ(ministral.rope.scaling.kind, RopeScalingKind::kYarn);
  EXPECT_DOUBLE_EQ(ministral.rope.scaling.attention_factor, 1);  // mscale over mscale_all_dim

  Json& text = config["text_config"];
  text["rope_parameters"] = {{"rope_theta", 1e9}, {"rope_type", "default"}};
  text["model_type"] = "mistral";  // Mistral Small 3
  EXPECT_EQ(MustRead(config).all.attention.temperature.scale, 0);
  EXPECT_EQ(MustRead(config).layers[0].attention.window, 0);
  text.erase("sliding_window");
  EXPECT_EQ(MustRead(config).layers[0].attention.window, 4096);  // MistralConfig's default
  text["model_type"] = "mistral7";
  ExpectBad(config, "text_config.model_type 'mistral7' is not supported");
}

TEST(Dense, Exaone4) {
  Json config = ConfigOf("EXAONE-4.0-32B");
  const Recipe r = MustRead(config);
  EXPECT_TRUE(r.all.residual.post_norms && !r.all.residual.pre_norms);
  for (size_t i = 0; i < r.layers.size(); ++i) {
    EXPECT_EQ(r.layers[i].attention.window, i % 4 == 3 ? 0 : 4096);
    EXPECT_EQ(r.layers[i].attention.rope, i % 4 == 3 ? LayerRope::kNone : LayerRope::kGlobal);
  }
  // The smaller model: no window, and rope in every layer. Its published pattern says nothing then.
  Json smaller = ConfigOf("EXAONE-4.0-1.2B");
  smaller["sliding_window_pattern"] = "LLLG";
  for (const LayerRecipe& layer : MustRead(smaller).layers) {
    EXPECT_TRUE(layer.attention.window == 0 && layer.attention.rope == LayerRope::kGlobal);
  }
}

// YaRN is for the layers that see all of the past.
TEST(Dense, Olmo3) {
  const Recipe r = MustRead(ConfigOf("Olmo-3-7B"));
  EXPECT_EQ(r.family, "olmo3");
  EXPECT_EQ(r.layers[2].attention.rope, LayerRope::kLocal);
  EXPECT_EQ(r.layers[3].attention.rope, LayerRope::kGlobal);
  EXPECT_EQ(r.layers[3].attention.window, 0);
  EXPECT_EQ(r.local_rope.scaling.kind, RopeScalingKind::kNone);
  EXPECT_EQ(r.local_rope.theta, r.rope.theta);
}

TEST(Dense, MuseGlimmer) {
  Json config = ConfigOf("Muse-Glimmer-30B");
  const Recipe r = MustRead(config);
  EXPECT_FLOAT_EQ(r.layers[0].attention.scale, 3.87f / std::sqrt(128.0f));
  EXPECT_FLOAT_EQ(r.all.residual.post_norm_eps, 1e-8f);
  for (size_t i = 0; i < r.layers.size(); ++i)
    EXPECT_EQ(r.layers[i].attention.window > 0, r.layers[i].attention.rope == LayerRope::kGlobal);
  EXPECT_EQ(r.layers[51].attention.window, 0);
  config["text_config"]["layer_rope_theta"] = {1, 0};
  ExpectBad(config, "layer_rope_theta has not one number for each layer");
}

TEST(Dense, Hunyuan) {
  Json config = ConfigOf("Hunyuan-7B");
  EXPECT_NEAR(MustRead(config).rope.theta, 11158840, 1);  // that of the published GGUF files
  config["use_cla"] = true;
  ExpectBad(config, "use_cla true is not supported");
}

TEST(Dense, Glm4vWithAndWithoutATextConfig) {
  Json config = ConfigOf("GLM-4-9B-0414");
  config["architectures"] = {"Glm4vForConditionalGeneration"};
  config["model_type"] = "glm4v";
  config["rope_scaling"] = {{"type", "default"}, {"mrope_section", {8, 12, 12}}};
  const Recipe flat = MustRead(config);
  Json whole = {{"architectures", config["architectures"]}, {"model_type", "glm4v"}, {"text_config", config}};
  EXPECT_EQ(MustRead(whole), flat);
  EXPECT_TRUE(flat.all.residual.post_norms);
  EXPECT_EQ(flat.rope.style, RopeStyle::kAdjacentPair);
  EXPECT_EQ(flat.rope.sections, (std::array<int32_t, 3>{8, 12, 12}));
  EXPECT_FALSE(flat.rope.sections_interleaved);
}

TEST(Dense, Apertus) {
  const Json published = ConfigOf("Apertus-8B");
  const Recipe r = MustRead(published);
  EXPECT_TRUE(r.all.network.stored_xielu && !r.all.network.gated && r.all.attention.qk_norm == QkNormKind::kHead);
  EXPECT_EQ(r.rope.scaling.kind, RopeScalingKind::kLlama3);
  for (const auto& [key, value, part] : {std::tuple<const char*, Json, const char*>{"hidden_act", "silu", "hidden_act 'silu'"},
                                         {"rope_scaling", nullptr, "rope_parameters is missing"},
                                         {"mlp_bias", true, "mlp_bias true is not supported"}}) {
    Json config = published;
    config[key] = value;
    ExpectBad(config, part);
  }
  const Result<MadeCheckpoint> made =
      MakeGguf(ReadConfigText(published.dump(), "config.json").value(), {DType::kF32, DType::kF32});
  ASSERT_TRUE(made.ok()) << made.status().message();
  Inventory gguf = made->inventory;
  const auto with = [&](const char* key, std::vector<double> values) {
    gguf = made->inventory;
    gguf.metadata.Set(key, std::move(values));
    return ReadModelSpec(gguf);
  };
  std::vector<double> alphas(32);
  alphas[3] = 1;
  const Result<ModelSpec> read = with("xielu.alpha_n", alphas);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_FLOAT_EQ(read->recipe.layers[3].network.xielu.alpha_n, 0.5f + 1.3132617f);  // beta + ln(1 + e)
  EXPECT_FLOAT_EQ(read->recipe.layers[4].network.xielu.alpha_n, 0.5f + 0.6931472f);
  EXPECT_NE(with("xielu.beta", {0.5, 0.5}).status().message().find("xielu.beta lists 2 layers of 32"), std::string::npos);
  EXPECT_FALSE(with("xielu.eps", std::vector<double>(32, 0.5)).ok());
}

TEST(Dense, OldOnes) {
  Json config = ConfigOf("TinyLlama-1.1B");
  config.erase("num_key_value_heads");
  config["architectures"] = {"BaichuanForCausalLM"};
  config["model_type"] = "baichuan";
  EXPECT_EQ(MustRead(config).rope.style, RopeStyle::kRotateHalf);
  config["num_hidden_layers"] = 40;
  EXPECT_EQ(MustRead(config).alibi_bias, 8);
  config["vocab_size"] = 125696;
  ExpectBad(config, "Baichuan 2, whose head is normalised");

  config["architectures"] = {"StableLmForCausalLM"};
  config["model_type"] = "stablelm";
  EXPECT_EQ(MustRead(config).all.residual.kind, Residual::kSequential);
  EXPECT_EQ(MustRead(config).rope.dim, 16);
  config["use_parallel_residual"] = true;
  EXPECT_EQ(MustRead(config).all.residual.kind, Residual::kParallelOneNorm);
  config["qk_layernorm"] = true;
  ExpectBad(config, "qk_layernorm true is not supported");
}

}  // namespace
}  // namespace tally::dense
