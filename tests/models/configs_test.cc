// SPDX-License-Identifier: Apache-2.0
// Published configurations, read without weights.
#include "models/family.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/recipe/check_recipe.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

class ConfigsTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& text) { return folder_.Write("config.json", text); }
  Result<Recipe> Read(const std::string& text) {
    const Result<Inventory> inventory = ReadConfigJson(Write(text));
    if (!inventory.ok()) return inventory.status();
    EXPECT_TRUE(inventory->tensors.empty());
    Result<ModelSpec> spec = ReadFamily(*inventory);
    if (!spec.ok()) return spec.status();
    return std::move(spec->recipe);
  }
  void ExpectBad(const std::string& text, const std::vector<std::string>& parts) {
    const Result<Recipe> r = Read(text);
    EXPECT_FALSE(r.ok()) << "read, though it should say " << parts.front();
    if (r.ok()) return;
    EXPECT_EQ(r.status().code(), StatusCode::kBadInput);
    EXPECT_EQ(r.status().message().find('\n'), std::string::npos);
    EXPECT_NE(r.status().message().find("config.json: "), std::string::npos) << r.status().message();
    for (const std::string& part : parts) {
      EXPECT_NE(r.status().message().find(part), std::string::npos) << "expected \"" << part << "\" in: " << r.status().message();
    }
  }

  const TempFolder folder_;
};

std::string JsonOf(std::string_view name) {
  EXPECT_FALSE(PublishedConfig(name).empty()) << name;
  return std::string(PublishedConfig(name));
}

// layer_types: every `period`-th of so many layers sees all of the past.
std::string LayerTypes(int count, int period) {
  std::string types;
  for (int i = 1; i <= count; ++i)
    types += std::string(i == 1 ? "" : ", ") + (i % period == 0 ? "\"full_attention\"" : "\"sliding_attention\"");
  return "[" + types + "]";
}

// The text with the first `from` (which must be there) replaced.
std::string With(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string Without(const std::string& text, const std::string& key_value) { return With(text, key_value + ", ", ""); }

TEST_F(ConfigsTest, EveryPublishedConfigurationReads) {
  for (const std::string_view name : CatalogNames()) {
    SCOPED_TRACE(name);
    const Result<CatalogModel> known = FindCatalogModel(name);
    ASSERT_TRUE(known.ok()) << known.status().message();
    const Status fits = CheckRecipe(known->recipe);
    EXPECT_TRUE(fits.ok()) << fits.message();
    const Result<Recipe> r = Read(JsonOf(name));  // as a file
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->family, known->recipe.family);
    EXPECT_EQ(r->layers.size(), known->recipe.layers.size());
  }
}

TEST_F(ConfigsTest, ConfigurationsAsText) {
  const Result<Inventory> inventory = ReadConfigText(R"({"hidden_size": 3, "generation_config": {"a": 1}})", "the text");
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  EXPECT_EQ(inventory->format, FileFormat::kHuggingFace);
  EXPECT_EQ(inventory->metadata.source, "the text");
  EXPECT_TRUE(inventory->metadata.Has("hidden_size"));
  EXPECT_FALSE(inventory->metadata.Has("generation_config.a"));
  for (const char* text : {"", "{", "[]"}) {
    const Result<Inventory> bad = ReadConfigText(text, "the text");
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_EQ(bad.status().code(), StatusCode::kBadInput);
    EXPECT_EQ(bad.status().message().find("the text: "), 0u) << bad.status().message();
  }
}

TEST_F(ConfigsTest, DefaultsOfTheClasses) {
  const std::string qwen3 = JsonOf("Qwen3-0.6B");
  EXPECT_FALSE(Read(Without(qwen3, R"("tie_word_embeddings": true)"))->tied_head);
  EXPECT_EQ(Read(Without(qwen3, R"("head_dim": 128)"))->head_dim, 128);
  EXPECT_EQ(Read(Without(qwen3, R"("rope_theta": 1000000)"))->rope.theta, 10000);
  EXPECT_EQ(Read(Without(JsonOf("Gemma-3-1B"), R"("sliding_window_pattern": 6)"))->layers[5].window, 0);
  EXPECT_EQ(Read(Without(JsonOf("GLM-4.5"), R"("num_nextn_predict_layers": 1)"))->mtp_layers, 0);
  EXPECT_EQ(Read(Without(JsonOf("DeepSeek-V2"), R"("q_lora_rank": 1536)"))->latent.q_rank, 1536);
  EXPECT_EQ(Read(Without(JsonOf("Qwen3-30B-A3B"), R"("norm_topk_prob": true)"))->routing, RoutingRule::kSoftmaxThenTopK);
  const Result<Recipe> by_type = Read(Without(qwen3, R"("architectures": ["Qwen3ForCausalLM"])"));
  ASSERT_TRUE(by_type.ok()) << by_type.status().message();
  EXPECT_EQ(by_type->family, "qwen3");
}

TEST_F(ConfigsTest, WindowsAndSparseLayers) {
  const std::string qwen2 = With(JsonOf("Qwen2.5-7B"), R"("use_sliding_window": false)", R"("use_sliding_window": true)");
  const Recipe late = *Read(With(qwen2, R"("max_window_layers": 28)", R"("max_window_layers": 20)"));
  for (int i = 0; i < 28; ++i) EXPECT_EQ(late.layers[i].window, i >= 20 ? 131072 : 0) << i;
  const Recipe listed = *Read(With(qwen2, R"("max_window_layers": 28)", R"("layer_types": )" + LayerTypes(28, 4)));
  for (int i = 0; i < 28; ++i) EXPECT_EQ(listed.layers[i].window, i % 4 == 3 ? 0 : 131072) << i;
  const Recipe mixtral = *Read(With(JsonOf("Mixtral-8x7B"), R"("sliding_window": null)", R"("sliding_window": 4096)"));
  for (const LayerRecipe& layer : mixtral.layers) EXPECT_EQ(layer.window, 4096);
  const std::string moe = JsonOf("Qwen3-30B-A3B");
  const Recipe some = *Read(With(moe, R"("mlp_only_layers": [])", R"("mlp_only_layers": [0, 3])"));
  for (int i = 0; i < 48; ++i) EXPECT_EQ(some.layers[i].sparse, i != 0 && i != 3) << i;
  const Recipe half = *Read(With(moe, R"("decoder_sparse_step": 1)", R"("decoder_sparse_step": 2)"));
  for (int i = 0; i < 48; ++i) EXPECT_EQ(half.layers[i].sparse, i % 2 == 1) << i;
  const Recipe third = *Read(With(JsonOf("DeepSeek-V2"), R"("moe_layer_freq": 1)", R"("moe_layer_freq": 3)"));
  for (int i = 0; i < 60; ++i) EXPECT_EQ(third.layers[i].sparse, i >= 1 && i % 3 == 0) << i;
  // transformers 5 writes rope_parameters, for each kind of layer, instead.
  const Recipe gemma =
      *Read(With(JsonOf("Gemma-3-4B"), R"("rope_scaling": {"factor": 8.0, "rope_type": "linear"})",
                 R"("rope_parameters": {"full_attention": {"factor": 8.0, "rope_theta": 2e6, "rope_type": "linear"},
                                      "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}})"));
  EXPECT_EQ(gemma.rope.theta, 2e6);
  EXPECT_EQ(gemma.rope.scaling.factor, 8);
  EXPECT_EQ(gemma.local_rope.theta, 1e4);
  EXPECT_EQ(gemma.local_rope.scaling.kind, RopeScalingKind::kNone);
}

TEST_F(ConfigsTest, UnknownArchitecturesAreNamedWithTheKnownOnes) {
  ExpectBad(R"({"architectures": ["FlyForCausalLM"]})", {"'FlyForCausalLM'", "known: ", "GPT2LMHeadModel", "MistralForCausalLM",
                                                         "Qwen3MoeForCausalLM", "Glm4MoeForCausalLM"});
  ExpectBad(R"({"architectures": ["evil\nname"]})", {"'evil\\nname'"});
  ExpectBad(R"({"model_type": "fly"})", {"model_type 'fly'", "qwen3_moe"});
  ExpectBad(R"({"model_type": "mamba"})", {"model_type 'mamba' has state-space layers"});
  ExpectBad(R"({"architectures": [], "vocab_size": 3})", {"neither architectures nor model_type"});
  ExpectBad(R"({"architectures": "Qwen3ForCausalLM"})", {"architectures", "array of strings"});
  ExpectBad(R"({"architectures": [3]})", {"architectures", "array of strings"});
}

TEST_F(ConfigsTest, BadConfigurations) {
  const std::string qwen3 = JsonOf("Qwen3-0.6B"), moe = JsonOf("Qwen3-30B-A3B"), v3 = JsonOf("DeepSeek-V3"),
                    glm = JsonOf("GLM-4.5");
  ExpectBad(Without(qwen3, R"("hidden_size": 1024)"), {"hidden_size is missing"});
  ExpectBad(Without(qwen3, R"("num_hidden_layers": 28)"), {"num_hidden_layers is missing"});
  ExpectBad(With(qwen3, R"("num_hidden_layers": 28)", R"("num_hidden_layers": 1000000)"), {"num_hidden_layers", "1 to 4096"});
  ExpectBad(With(qwen3, R"("num_key_value_heads": 8)", R"("num_key_value_heads": 5)"),
            {"16 attention heads", "5 key-value heads"});
  ExpectBad(With(qwen3, R"("hidden_act": "silu")", R"("hidden_act": "relu")"), {"hidden_act 'relu'"});
  ExpectBad(With(qwen3, R"("head_dim": 128)", R"("head_dim": 127)"), {"127"});
  ExpectBad(With(qwen3, R"("rope_scaling": null)", R"("rope_scaling": {"rope_type": "ntk", "factor": 2})"), {"'ntk'"});
  ExpectBad(With(qwen3, R"("rope_theta": 1000000)", R"("partial_rotary_factor": 0.5)"), {"partial_rotary_factor 0.5"});
  ExpectBad(With(moe, R"("num_experts_per_tok": 8)", R"("num_experts_per_tok": 129)"), {"num_experts_per_tok", "1 to 128"});
  ExpectBad(With(moe, R"("mlp_only_layers": [])", R"("mlp_only_layers": ["a"])"), {"mlp_only_layers"});
  const std::string windowed = With(With(moe, R"("use_sliding_window": false)", R"("use_sliding_window": true)"),
                                    R"("sliding_window": null)", R"("sliding_window": 8)");
  ASSERT_TRUE(ReadFamily(*ReadConfigText(windowed, "config.json")).ok());
  const Recipe all = ReadFamily(*ReadConfigText(windowed, "config.json"))->recipe;  // where the class has windows, all layers do
  EXPECT_TRUE(std::ranges::all_of(all.layers, [](const LayerRecipe& l) { return l.window == 8; }));
  ExpectBad(With(qwen3, R"("hidden_act": "silu")", R"("hidden_act": "silu", "layer_types": ["linear_attention"])"),
            {"layer_types 'linear_attention' in this architecture is not supported"});
  ExpectBad(With(qwen3, R"("hidden_act": "silu")", R"("hidden_act": "silu", "attn_logit_softcapping": 50)"),
            {"attn_logit_softcapping in this architecture is not supported"});
  ExpectBad(With(With(moe, R"("moe_intermediate_size": 768)", R"("moe_intermediate_size": 16777216)"),
                 R"("num_hidden_layers": 48)", R"("num_hidden_layers": 4096)"),
            {"10^15"});
  ExpectBad(With(v3, R"("scoring_func": "sigmoid")", R"("scoring_func": "softmax")"), {"scoring_func 'softmax'"});
  ExpectBad(With(v3, R"("attention_bias": false)", R"("attention_bias": true)"), {"attention_bias"});
  ExpectBad(With(v3, R"("n_shared_experts": 1)", R"("n_shared_experts": 65536)"), {"n_shared_experts"});
  ExpectBad(With(glm, R"("partial_rotary_factor": 0.5)", R"("partial_rotary_factor": 1.5)"), {"partial_rotary_factor"});
  const std::string moe16b = JsonOf("DeepSeekMoE-16B");
  ASSERT_NE(Read(moe16b).value().n_experts, 0);
  ExpectBad(With(moe16b, R"("scoring_func": "softmax")", R"("scoring_func": "sigmoid")"), {"scoring_func 'sigmoid'"});
  for (const auto& [option, part] : {std::pair(R"("topk_method": "noaux_tc")", "topk_method 'noaux_tc'"),
                                     std::pair(R"("routed_scaling_factor": 2.5)", "routed_scaling_factor other than 1")}) {
    ExpectBad(With(moe16b, R"("hidden_size": 2048)", R"("hidden_size": 2048, )" + std::string(option)), {part});
  }
  ExpectBad(With(v3, R"("topk_method": "noaux_tc")", R"("topk_method": "greedy")"), {"topk_method 'greedy'"});
  ExpectBad(With(v3, R"("attention_bias": false)", R"("mlp_bias": true)"), {"mlp_bias true"});
  ExpectBad(With(qwen3, R"("head_dim": 128)", R"("is_causal": false)"), {"is_causal false"});
  const std::string mpt = JsonOf("MPT-7B");
  ExpectBad(With(mpt, R"("n_layers": 32)", R"("n_layers": 32, "ffn_config": {"ffn_act_fn": {"name": "relu"}})"), {"ffn_act_fn"});
  // A factor that is no number once it is computed.
  ExpectBad(With(JsonOf("Granite-3.1-8B"), R"("logits_scaling": 16.0)", R"("logits_scaling": 1e-44)"), {"logit_scale is inf"});
  const std::string gemma = JsonOf("Gemma-3-4B");
  ExpectBad(With(gemma, R"("hidden_size": 2560)",
                 R"("hidden_size": 2560, "rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2}})"),
            {"rope_parameters.sliding_attention.rope_type 'linear'"});
  ExpectBad(With(gemma, R"("num_hidden_layers": 34,)", ""), {"text_config.num_hidden_layers is missing"});
  ExpectBad(With(gemma, R"("hidden_size": 2560)", R"("hidden_size": 2560, "layer_types": ["full_attention"])"),
            {"layer_types", "1 layers of 34"});
  ExpectBad(With(gemma, R"("hidden_size": 2560)", R"("hidden_size": 2560, "attn_logit_softcapping": 50.0)"),
            {"attn_logit_softcapping"});
  ExpectBad(With(gemma, R"("torch_dtype": "bfloat16")", R"("tie_word_embeddings": 3)"), {"tie_word_embeddings"});
  const Result<CountTypes> types = ReadCountTypes(*ReadConfigJson(Write(With(qwen3, "bfloat16", "int3"))));
  ASSERT_FALSE(types.ok());
  EXPECT_NE(types.status().message().find("'int3'"), std::string::npos) << types.status().message();
}

// A tower that its configuration does not describe is named, without a size.
TEST_F(ConfigsTest, TowersOfUnknownSize) {
  const auto parts = [&](const std::string& text) { return ReadFamily(*ReadConfigJson(Write(text)))->parts_not_run; };
  const std::string gemma = JsonOf("Gemma-3-27B");
  ASSERT_EQ(parts(gemma).size(), 2u);
  for (const std::string& text :
       {Without(gemma, R"("image_size": 896)"), With(gemma, R"("patch_size": 14)", R"("patch_size": 897)"),
        With(gemma, R"("vision_use_head": false)", R"("vision_use_head": true)"),
        With(gemma, R"("num_hidden_layers": 27)", R"("num_hidden_layers": "many")"),
        With(gemma, "vision_config", "other_config")}) {
    SCOPED_TRACE(text);
    ASSERT_EQ(parts(text).size(), 1u);
    EXPECT_EQ(parts(text)[0].parameters, std::nullopt);
  }
  const auto hears = parts(With(gemma, R"("vision_config")", R"("audio_config": {"hidden_size": 3}, "vision_config")"));
  ASSERT_EQ(hears.size(), 3u);
  EXPECT_EQ(hears[0].name, "audio_config");
  EXPECT_EQ(hears[0].parameters, std::nullopt);
}

TEST_F(ConfigsTest, OtherMethodsOfQuantisation) {
  const std::string qwen3 = JsonOf("Qwen3-0.6B");
  const auto method = [&](const std::string& config) {
    return ReadCountTypes(*ReadConfigJson(Write(With(qwen3, R"("hidden_size")", config + R"("hidden_size")"))))
        .value()
        .other_method;
  };
  EXPECT_EQ(method(""), "");
  EXPECT_EQ(method(R"("quantization_config": null, )"), "");
  EXPECT_EQ(method(R"("quantization_config": {"quant_method": "gptq", "bits": 4}, )"), "gptq");
  EXPECT_EQ(method(R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}, )"), "fp8");
  EXPECT_EQ(method(R"("quantization_config": {"quant_method": "mxfp4"}, )"), "mxfp4");  // gpt-oss's, not this family's
  EXPECT_EQ(method(R"("quantization_config": {"bits": 4}, )"), "unnamed");
  EXPECT_EQ(method(R"("compression_config": {"quant_method": "compressed-tensors"}, )"), "compressed-tensors");
  EXPECT_EQ(FindCatalogModel("gpt-oss-20b")->other_method, "");
  EXPECT_EQ(FindCatalogModel("Kimi-K2")->other_method, "fp8");
}

// Every number of one configuration of each architecture, one after the other: wild values are refused or read, and never end the
// test.
TEST_F(ConfigsTest, WildNumbers) {
  int refused = 0;
  std::set<std::string> seen;
  for (const std::string_view name : CatalogNames()) {
    const Result<Inventory> inventory = ReadConfigText(PublishedConfig(name), "config.json");
    ASSERT_TRUE(inventory.ok());
    const auto names = inventory->metadata.GetStrings("architectures");
    if (names.ok() && names->has_value() && !seen.insert((*names)->front()).second) continue;
    for (const auto& [key, value] : inventory->metadata.values()) {
      for (const int64_t wild : {int64_t{0}, int64_t{-1}, int64_t{1}, int64_t{3}, int64_t{INT32_MAX}, int64_t{INT64_MIN}}) {
        Inventory changed = *inventory;
        changed.metadata.Set(key, wild);
        const Result<ModelSpec> r = ReadFamily(changed);
        if (r.ok()) {
          EXPECT_EQ(r->recipe.layers.size(), static_cast<size_t>(r->recipe.n_layers)) << name << " " << key;
        } else {
          EXPECT_EQ(r.status().code(), StatusCode::kBadInput) << name << " " << key;
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST_F(ConfigsTest, ConfigFilesByPath) {
  Write(JsonOf("Qwen3-0.6B"));
  EXPECT_TRUE(ReadConfigJson(folder_.path()).ok());  // the directory
  EXPECT_TRUE(ReadConfigJson(folder_.Write("other.json", JsonOf("Qwen3-0.6B"))).ok());
  const std::tuple<std::string, std::string> cases[] = {{"", "empty"},
                                                        {folder_ / "none.json", "no such file"},
                                                        {folder_.Write("half.json", "{"), "half.json"},
                                                        {folder_.Write("list.json", "[]"), "list.json"},
                                                        {folder_.Write("empty.json", ""), "empty.json"}};
  for (const auto& [file, part] : cases) {
    const Result<Inventory> inventory = ReadConfigJson(file);
    ASSERT_FALSE(inventory.ok()) << file;
    EXPECT_EQ(inventory.status().code(), StatusCode::kBadInput);
    EXPECT_NE(inventory.status().message().find(part), std::string::npos) << inventory.status().message();
  }
}

}  // namespace
}  // namespace tally
