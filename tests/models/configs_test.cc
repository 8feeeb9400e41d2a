// SPDX-License-Identifier: Apache-2.0
// Published configurations, read without weights.
#include "models/family.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/recipe/check_recipe.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "tests/models/spec_tools.h"
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
  return PublishedConfig(name);
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
  for (const std::string_view name : CountedNames()) {
    SCOPED_TRACE(name);
    const Result<CatalogModel> known = FindCatalogModel(name);
    ASSERT_TRUE(known.ok()) << known.status().message();
    const Status fits = CheckRecipe(known->recipe);
    EXPECT_TRUE(fits.ok()) << fits.message();
    EXPECT_EQ(ReadFamily(*ReadConfigText(PublishedConfig(name), "config.json"))->notes, std::vector<std::string>());
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
  EXPECT_EQ(Read(Without(qwen3, R"("head_dim": 128)"))->all.attention.head_dim, 128);
  EXPECT_EQ(Read(Without(qwen3, R"("rope_theta": 1000000)"))->rope.theta, 10000);
  EXPECT_EQ(Read(Without(JsonOf("Gemma-3-1B"), R"("sliding_window_pattern": 6)"))->layers[5].attention.window, 0);
  EXPECT_EQ(Read(Without(JsonOf("GLM-4.5"), R"("num_nextn_predict_layers": 1)"))->mtp_layers, 0);
  EXPECT_EQ(Read(Without(JsonOf("DeepSeek-V2"), R"("q_lora_rank": 1536)"))->all.latent.q_rank, 1536);
  EXPECT_EQ(Read(Without(JsonOf("Qwen3-30B-A3B"), R"("norm_topk_prob": true)"))->all.experts.routing,
            RoutingRule::kSoftmaxThenTopK);
  const Result<Recipe> by_type = Read(Without(qwen3, R"("architectures": ["Qwen3ForCausalLM"])"));
  ASSERT_TRUE(by_type.ok()) << by_type.status().message();
  EXPECT_EQ(by_type->family, "qwen3");
}

TEST_F(ConfigsTest, WindowsAndSparseLayers) {
  const std::string qwen2 = With(JsonOf("Qwen2.5-7B"), R"("use_sliding_window": false)", R"("use_sliding_window": true)");
  const Recipe late = *Read(With(qwen2, R"("max_window_layers": 28)", R"("max_window_layers": 20)"));
  for (int i = 0; i < 28; ++i) EXPECT_EQ(late.layers[i].attention.window, i >= 20 ? 131072 : 0) << i;
  const Recipe listed = *Read(With(qwen2, R"("max_window_layers": 28)", R"("layer_types": )" + LayerTypes(28, 4)));
  for (int i = 0; i < 28; ++i) EXPECT_EQ(listed.layers[i].attention.window, i % 4 == 3 ? 0 : 131072) << i;
  const Recipe mixtral = *Read(With(JsonOf("Mixtral-8x7B"), R"("sliding_window": null)", R"("sliding_window": 4096)"));
  for (const LayerRecipe& layer : mixtral.layers) EXPECT_EQ(layer.attention.window, 4096);
  const std::string moe = JsonOf("Qwen3-30B-A3B");
  const Recipe some = *Read(With(moe, R"("mlp_only_layers": [])", R"("mlp_only_layers": [0, 3])"));
  for (int i = 0; i < 48; ++i) EXPECT_EQ(some.layers[i].sparse(), i != 0 && i != 3) << i;
  const Recipe half = *Read(With(moe, R"("decoder_sparse_step": 1)", R"("decoder_sparse_step": 2)"));
  for (int i = 0; i < 48; ++i) EXPECT_EQ(half.layers[i].sparse(), i % 2 == 1) << i;
  const Recipe third = *Read(With(JsonOf("DeepSeek-V2"), R"("moe_layer_freq": 1)", R"("moe_layer_freq": 3)"));
  for (int i = 0; i < 60; ++i) EXPECT_EQ(third.layers[i].sparse(), i >= 1 && i % 3 == 0) << i;
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
  ExpectBad(R"({"model_type": "zamba2"})", {"model_type 'zamba2' is not supported: it has state-space layers"});
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
  EXPECT_TRUE(std::ranges::all_of(all.layers, [](const LayerRecipe& l) { return l.attention.window == 8; }));
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
  ASSERT_NE(Read(moe16b).value().all.experts.n_experts, 0);
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
}

// The types that weights are counted in: transformers takes `dtype` where `torch_dtype` is there too.
TEST_F(ConfigsTest, TypesOfWeights) {
  const std::string qwen3 = JsonOf("Qwen3-0.6B"), key = R"("torch_dtype": "bfloat16")";
  const auto types = [&](const std::string& instead) { return ReadCountTypes(*ReadConfigText(With(qwen3, key, instead), "x")); };
  const std::tuple<const char*, DType, bool> cases[] = {{R"("torch_dtype": "torch.bfloat16")", DType::kBF16, false},
                                                        {R"("dtype": "float16")", DType::kF16, false},
                                                        {R"("dtype": "half", "torch_dtype": "float32")", DType::kF16, false},
                                                        {R"("torch_dtype": "float8_e4m3fn")", DType::kFP8, false},
                                                        {R"("torch_dtype": "auto")", DType::kF32, true},
                                                        {R"("torch_dtype": null)", DType::kF32, true}};
  for (const auto& [text, type, note] : cases) {
    const Result<CountTypes> read = types(text);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->type, type) << text;
    EXPECT_EQ(!read->note.empty(), note) << text;
  }
  for (const std::string name : {"int3", "torch.", "torch.auto"}) {
    const Result<CountTypes> bad = types(R"("torch_dtype": ")" + name + "\"");
    ASSERT_FALSE(bad.ok()) << name;
    EXPECT_NE(bad.status().message().find("'" + name + "'"), std::string::npos) << bad.status().message();
  }
}

// A key that is missing and has a published default is named with what is taken, and a key that looks like it.
TEST_F(ConfigsTest, MissingKeysAndMisspeltOnes) {
  const auto read = [](const std::string& text) { return ReadFamily(*ReadConfigText(text, "config.json")).value(); };
  const std::string qwen3 = JsonOf("Qwen3-0.6B");
  const ModelSpec whole = read(With(qwen3, R"("attention_bias": false)", R"("attention_bias": null)"));
  EXPECT_EQ(whole.defaults, "");  // null is not missing, and the published file has the rest
  const ModelSpec misspelt = read(With(Without(qwen3, R"("attention_bias": false)"), "vocab_size", "vocab_siz"));
  EXPECT_EQ(misspelt.recipe.vocab, 151936);
  EXPECT_EQ(misspelt.defaults,
            "its configuration has no vocab_size (151936), attention_bias (false): the published defaults of "
            "Qwen3ForCausalLM are taken");
  EXPECT_EQ(misspelt.notes,
            std::vector<std::string>{"its key vocab_siz is unknown and not read; vocab_size, which it looks like, is "
                                     "missing and taken to be 151936"});
  // Without a default, below another key, and where a value follows from others.
  ExpectBad(With(qwen3, "hidden_size", "hiden_size"), {"required key hidden_size is missing (hiden_size is there)"});
  EXPECT_EQ(read(With(JsonOf("Gemma-3-4B"), "sliding_window\"", "slidng_windw\"")).notes.size(), 1u);
  EXPECT_EQ(read(With(JsonOf("Qwen2.5-7B"), R"("hidden_size")", R"("head_dims": 64, "hidden_size")")).notes.size(), 1u);
  EXPECT_EQ(read(With(JsonOf("Qwen3-30B-A3B"), R"("mlp_only_layers": [])", R"("mlp_only_layer": [0, 3])")).notes.size(), 1u);
  // Unknown, and like none that is missing.
  EXPECT_EQ(read(With(qwen3, R"("hidden_size")", R"("hidden_sizes": 3, "my_own": 1, "hidden_size")")).notes.size(), 0u);
  const ModelSpec gguf =
      synthetic::MustRead(synthetic::With(synthetic::GgufLlama(), "llama.attention.sliding_windw", int64_t{8}));
  EXPECT_EQ(gguf.notes.size(), 1u);
  EXPECT_EQ(gguf.defaults, "");
}

// Python's json writes them. They are numbers, which no key that is read may be.
TEST_F(ConfigsTest, NumbersThatAreNotFinite) {
  const std::string qwen3 = JsonOf("Qwen3-0.6B"),
                    unused = R"("limits": [1, -Infinity,Infinity], "s": "1, NaN \\\" NaN", "n":NaN, "e": 1e3, "hidden_size")";
  const Inventory inventory = ReadConfigText(With(qwen3, R"("hidden_size")", unused), "config.json").value();
  const Metadata& m = inventory.metadata;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(**m.GetDoubles("limits"), (std::vector<double>{1, -kInfinity, kInfinity}));
  EXPECT_TRUE(std::isnan(**m.GetDouble("n")));
  EXPECT_EQ(**m.GetString("s"), "1, NaN \\\" NaN");
  EXPECT_EQ(**m.GetDouble("e"), 1e3);
  EXPECT_EQ(**m.GetInt("hidden_size"), 1024);
  EXPECT_TRUE(ReadFamily(inventory).ok());
  ExpectBad(With(qwen3, R"("rope_theta": 1000000)", R"("rope_theta": Infinity)"), {"rope_theta is inf"});
  ExpectBad(With(qwen3, R"("hidden_size": 1024)", R"("hidden_size": NaN)"), {"hidden_size", "found a number (nan)"});
  ExpectBad(With(JsonOf("Granite-3.1-8B"), R"("logits_scaling": 16.0)", R"("logits_scaling": NaN)"), {"logits_scaling is nan"});
  for (const char* bad : {"1NaN", "NaNs", "-NaN", "+Infinity", "nan", "Infinity5", "[NaN Infinity]", "NaN, NaN: 1"}) {
    ExpectBad(With(qwen3, R"("hidden_size")", R"("x": )" + std::string(bad) + R"(, "hidden_size")"), {"not valid JSON"});
  }
  EXPECT_FALSE(CheckJson("x", R"({"x": NaN})", {}).ok());  // elsewhere they are no JSON
}

TEST_F(ConfigsTest, RopeOfTransformers) {
  const std::string qwen3 = JsonOf("Qwen3-0.6B"), key = R"("rope_scaling": null)";
  ASSERT_EQ(Read(qwen3)->context, 40960);
  const auto scaling = [&](const std::string& value) { return With(qwen3, key, R"("rope_scaling": )" + value); };
  const auto read = [&](const std::string& value) { return Read(scaling(value)).value().rope.scaling; };
  for (const char* value : {"\"linear\"", "2.0", "[]", "[[1]]", "true"}) {
    ExpectBad(scaling(value), {"key 'rope_scaling': expected an object, found "});
  }
  EXPECT_EQ(read("{}"), RopeScaling());
  EXPECT_EQ(read(R"({"type": "linear", "factor": 1.0})"), RopeScaling());
  ExpectBad(scaling(R"({"beta_fast": 32})"), {"required key rope_scaling.rope_type is missing"});
  ExpectBad(scaling(R"({"type": "dynamic", "factor": 1.0, "alpha": 1000.0})"), {"rope_scaling.alpha with rope_type 'dynamic'"});
  // Both names of one thing.
  const std::string linear = R"({"rope_type": "linear", "factor": 4})";
  EXPECT_EQ(read(linear + R"(, "rope_parameters": {"type": "linear", "factor": 4.0, "rope_theta": 1e6})").factor, 4);
  ExpectBad(scaling(linear + R"(, "rope_parameters": {"rope_type": "linear", "factor": 8})"), {"differ in factor"});
  ExpectBad(scaling(linear + R"(, "rope_parameters": {"rope_theta": 5})"), {"differ in rope_theta"});
  const ModelSpec noted = *ReadFamily(*ReadConfigText(scaling(R"({"rope_type": "default", "type": "yarn", "factor": 4})"), "x"));
  EXPECT_EQ(noted.recipe.rope.scaling, RopeScaling());
  EXPECT_EQ(noted.notes.size(), 2u);

  // YaRN's magnitude: what is told; the quotient of two; or the usual one. A factor that is not told is that of the contexts.
  const auto yarn = [](const std::string& rest) {
    return R"({"rope_type": "yarn", "original_max_position_embeddings": 10240, )" + rest + "}";
  };
  const double usual = 0.1 * std::log(4.0) + 1;
  EXPECT_DOUBLE_EQ(read(yarn(R"("factor": 4.0, "mscale": 2, "mscale_all_dim": 0.5)")).attention_factor,
                   (0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1));
  EXPECT_DOUBLE_EQ(read(yarn(R"("factor": 4, "mscale": 0, "mscale_all_dim": 0)")).attention_factor, usual);
  EXPECT_EQ(read(yarn(R"("factor": 4, "mscale": 2, "attention_factor": 1)")).attention_factor, 1);
  EXPECT_EQ(read(yarn(R"("factor": null)")).factor, 4);
  EXPECT_EQ(read(yarn(R"("factor": 8)")).factor, 8);
  ExpectBad(scaling(yarn(R"("factor": 4, "mscale": 2)")), {"rope_scaling.mscale without the other magnitude"});
  ExpectBad(scaling(R"({"type": "yarn"})"), {"required key rope_scaling.factor is missing"});
  ExpectBad(scaling(yarn(R"("factor": 4)") + R"(, "original_max_position_embeddings": 20480)"), {"other than original_max"});
  const std::string v3 = JsonOf("DeepSeek-V3");  // both are 1: the quotient is 1, and the attention scale has the rest
  EXPECT_EQ(Read(v3)->rope.scaling.attention_factor, 1);
  ExpectBad(With(v3, R"("mscale": 1.0)", R"("mscale": 1.0, "attention_factor": 2.0)"),
            {"attention_factor with latent attention"});
  ExpectBad(With(v3, R"("mscale": 1.0)", R"("mscale": 0)"), {"rope_scaling.mscale_all_dim without the other magnitude"});
}

// transformers reads a model as its model_type says. A class without a head is read as the one with.
TEST_F(ConfigsTest, ModelTypesAndArchitectures) {
  const auto read = [](const std::string& text) { return ReadFamily(*ReadConfigText(text, "config.json")).value(); };
  const std::string mistral = JsonOf("Mistral-7B-v0.1"), type = R"("model_type": "mistral")";
  const ModelSpec agreed = read(mistral);
  ASSERT_GT(agreed.recipe.layers[0].attention.window, 0);
  EXPECT_EQ(agreed.notes.size(), 0u);
  const ModelSpec other = read(With(mistral, "\"MistralForCausalLM\"", "\"LlamaForCausalLM\""));
  EXPECT_EQ(other.recipe, agreed.recipe);
  ASSERT_EQ(other.notes.size(), 1u);
  EXPECT_NE(other.notes[0].find("'mistral' and its architecture 'LlamaForCausalLM'"), std::string::npos) << other.notes[0];
  const ModelSpec own = read(With(mistral, type, R"("model_type": "my_mistral")"));  // the makers' own code
  EXPECT_EQ(own.recipe, agreed.recipe);
  EXPECT_EQ(own.notes.size(), 0u);
  const ModelSpec base = read(With(mistral, "MistralForCausalLM", "MistralModel"));
  EXPECT_EQ(base.recipe, agreed.recipe);
  ASSERT_EQ(base.notes.size(), 1u);
  EXPECT_NE(base.notes[0].find("MistralModel has no head"), std::string::npos) << base.notes[0];
  EXPECT_EQ(read(With(JsonOf("gpt2"), "GPT2LMHeadModel", "GPT2Model")).notes.size(), 0u);  // its head is the embedding
  const std::string fly = With(mistral, "MistralForCausalLM", "FlyForCausalLM");
  const ModelSpec by_type = read(fly);
  EXPECT_EQ(by_type.recipe, agreed.recipe);
  ASSERT_EQ(by_type.notes.size(), 1u);
  EXPECT_NE(by_type.notes[0].find("'FlyForCausalLM' is unknown: it is read as its model_type 'mistral'"), std::string::npos)
      << by_type.notes[0];
  ExpectBad(With(fly, type, type + R"(, "auto_map": {"AutoModelForCausalLM": "fly.FlyForCausalLM"})"), {"'FlyForCausalLM'"});
  ExpectBad(With(mistral, "MistralForCausalLM", "MistralForSequenceClassification"), {"'MistralForSequenceClassification'"});
  ExpectBad(With(mistral, "MistralForCausalLM", "FlyModel"), {"'FlyModel'"});

  // Such a class is saved without "model." before its names.
  using synthetic::With;
  Inventory tensors = synthetic::WithoutTensors(
      With(synthetic::HfLlama(), "architectures", std::vector<std::string>{"LlamaModel"}), "lm_head.weight");
  for (StoredTensor& t : tensors.tensors) t.name.erase(0, std::string_view("model.").size());
  tensors.BuildIndex();
  synthetic::ExpectBadInput(tensors, {"'lm_head.weight'", "is missing", "LlamaModel has no head"});
  const ModelSpec tied = synthetic::MustRead(With(tensors, "tie_word_embeddings", true));
  EXPECT_EQ(synthetic::Bound(tied, Role::kQ, 1)->names[0], "layers.1.self_attn.q_proj.weight");
}

// An id beyond the vocabulary is never drawn.
TEST_F(ConfigsTest, EndTokensBeyondTheVocabulary) {
  using synthetic::With;
  for (const auto& [inventory, key] :
       {std::pair(synthetic::HfLlama(), "eos_token_id"), std::pair(synthetic::HfLlama(), "generation_config.eos_token_id"),
        std::pair(synthetic::GgufLlama(), "tokenizer.ggml.eos_token_id")}) {
    const ModelSpec spec = synthetic::MustRead(With(inventory, key, std::vector<int64_t>{2, 11}));
    EXPECT_EQ(spec.recipe.eos_tokens, std::vector<int32_t>{2});
    EXPECT_EQ(spec.notes,
              std::vector<std::string>{"its " + std::string(key) + " names token 11 of a vocabulary of 11, which is ignored"});
    EXPECT_EQ(synthetic::MustRead(With(inventory, key, int64_t{50256})).recipe.eos_tokens, std::vector<int32_t>());
  }
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
  EXPECT_EQ(method(R"("quantization_config": {}, )"), "");
  EXPECT_EQ(method(R"("quantization_config": {"load_in_8bit": true}, )"), "bitsandbytes");
  EXPECT_EQ(method(R"("quantization": {"group_size": 64, "bits": 4}, )"), "MLX's affine format");
  EXPECT_EQ(method(R"("quantization_config": {"bits": 4}, "quantization": {"bits": 4, "mode": "mxfp4"}, )"),
            "MLX's mxfp4 format");
  // What is stored may look like plain weights: bitnet's are quantised when they are loaded.
  for (const auto& [config, part] : {std::pair(R"({"quant_method": "bitnet"})", "cannot be read: bitnet"),
                                     std::pair(R"({"bits": 4})", "cannot be read: unnamed"),
                                     std::pair("4", "'quantization_config': expected an object, found an integer"),
                                     std::pair(R"({"quant_method": "compressed-tensors"})", ""), std::pair("{}", "")}) {
    const Inventory llama = synthetic::HfLlama();
    Inventory read = *ReadConfigText(R"({"quantization_config": )" + std::string(config) + "}", "x");
    for (const auto& [key, value] : llama.metadata.values()) read.metadata.Set(key, value);
    read.tensors = llama.tensors;
    read.BuildIndex();
    const Result<ModelSpec> spec = ReadModelSpec(read);
    EXPECT_EQ(spec.ok(), *part == '\0') << config;
    EXPECT_TRUE(spec.ok() || spec.status().message().find(part) != std::string::npos) << spec.status().message();
  }
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
