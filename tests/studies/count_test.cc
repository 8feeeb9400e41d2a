// SPDX-License-Identifier: Apache-2.0
// Counting checkpoints: what is stored, of whatever type, run or not.
#include "engine/studies/count.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/session/model.h"
#include "engine/studies/count_figures.h"
#include "engine/studies/fit.h"
#include "engine/studies/inspect.h"
#include "engine/studies/quantize.h"
#include "engine/studies/synth.h"
#include "models/catalog/catalog.h"
#include "tests/models/spec_tools.h"
#include "tests/models/synthetic_files.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using namespace synthetic;

std::string Gguf(const TempFolder& folder, const Inventory& inventory) {
  return folder.Write("m.gguf", GgufOf(inventory).Make());
}

std::string Directory(const TempFolder& folder, const Inventory& inventory) {
  folder.Write("config.json", ConfigOf(inventory));
  folder.Write("model.safetensors", SafetensorsOf(HeaderOf(inventory, 0, inventory.tensors.size())));
  return folder.path();
}

CountedModel MustCount(const std::string& path) {
  Result<CountedModel> counted = CountModel({.model = path, .settings = {}, .options = {}});
  EXPECT_TRUE(counted.ok()) << counted.status().message();
  return counted.ok() ? std::move(counted).value() : CountedModel{};
}

Inventory Stored(Inventory inventory, const std::string& name, DType type) {
  inventory = WithType(std::move(inventory), name, type);
  for (StoredTensor& t : inventory.tensors) t.bytes = *StoredBytes(t.dtype, t.elements());
  return inventory;
}

Inventory Added(Inventory inventory, const std::string& name, std::vector<uint64_t> shape) {
  inventory = WithTensor(std::move(inventory), name, std::move(shape));
  inventory.tensors.back().bytes = 4 * inventory.tensors.back().elements();
  return inventory;
}

// Types that nothing runs are inspected and counted to the byte, and refused by name where they would be run.
TEST(Count, TypesThatAreOnlyStored) {
  const TempFolder folder;
  const CountedModel plain = MustCount(Gguf(folder, GgufGptOss()));
  for (const DType type : kDTypes) {
    if (!GetDTypeInfo(type).quantised || IsWeightType(type) || GetDTypeInfo(type).block_size > 64) continue;
    SCOPED_TRACE(DTypeName(type));
    const std::string name = "blk.1.ffn_up_exps.weight";
    const std::string path = Gguf(folder, Stored(GgufGptOss(), name, type));
    const CountedModel counted = MustCount(path);
    const auto inspected = InspectCheckpoint(path);
    ASSERT_TRUE(inspected.ok()) << inspected.status().message();
    EXPECT_EQ(counted.count.parameters, plain.count.parameters);
    EXPECT_EQ(counted.count.weight_bytes, inspected->bytes);
    EXPECT_EQ(inspected->inventory.Find(name)->bytes, *StoredBytes(type, 5 * 32 * 64));
    EXPECT_NE(counted.stored_as.find(DTypeName(type)), std::string::npos) << counted.stored_as;
    EXPECT_EQ(SizesOf(inspected->recipe).family, "gpt-oss");
    const std::string refusal =
        path + ": tensor '" + name + "' has type " + std::string(DTypeName(type)) + ", which cannot be run";
    EXPECT_NE(inspected->runnable.message().find(refusal), std::string::npos) << inspected->runnable.message();
    EXPECT_EQ(LoadModel(path, {}).status().message(), inspected->runnable.message());
  }
}

// A type that is not known at all, of a weight (GGUF) and of a tensor beside them (safetensors): inspected, counted, not run.
TEST(Count, TypesThatAreUnknown) {
  const TempFolder folder;
  const std::string name = "blk.1.ffn_up_exps.weight";
  const CountedModel plain = MustCount(Gguf(folder, GgufGptOss()));
  Inventory weight = GgufGptOss();
  for (StoredTensor& t : weight.tensors) {
    if (t.name == name) t.other_type = "ggml type 99";
  }
  const std::string path = Gguf(folder, weight);
  const CountedModel counted = MustCount(path);
  EXPECT_EQ(counted.count.parameters, plain.count.parameters);
  EXPECT_EQ(counted.count.weight_bytes, plain.count.weight_bytes);
  EXPECT_NE(counted.stored_as.find("ggml type 99"), std::string::npos) << counted.stored_as;
  EXPECT_NE(InspectCheckpoint(path)->runnable.message().find("'" + name + "' has type ggml type 99"), std::string::npos);
  EXPECT_EQ(LoadModel(path, {}).status().message(), InspectCheckpoint(path)->runnable.message());

  const uint64_t total = MustCount(Directory(folder, HfLlama())).count.parameters.total;
  Inventory beside = Added(HfLlama(), "other", {4});
  beside.tensors.back().other_type = "F8_E8M0";
  Directory(folder, beside);
  EXPECT_EQ(MustCount(folder.path()).count.parameters.total, total);
  const auto inspected = InspectCheckpoint(folder.path());
  ASSERT_TRUE(inspected.ok()) << inspected.status().message();
  EXPECT_EQ(inspected->inventory.tensors.back().type_name(), "F8_E8M0");
  EXPECT_NE(LoadModel(folder.path(), {}).status().message().find("'other' [4] of type F8_E8M0 has no place"), std::string::npos);
}

TEST(Count, TowersOfACheckpoint) {
  const TempFolder folder;
  Inventory parts = Added(HfGemma3(true), "vision_tower.vision_model.embeddings.patch_embedding.weight", {4, 3, 2, 2});
  parts = Added(parts, "multi_modal_projector.mm_input_projection_weight", {4, 8});
  const CountedModel counted = MustCount(Directory(folder, parts));
  const auto inspected = InspectCheckpoint(folder.path());
  ASSERT_TRUE(inspected.ok());
  EXPECT_TRUE(counted.counts_part());
  EXPECT_EQ(counted.all_parameters(), inspected->elements);
  EXPECT_EQ(counted.all_bytes(), inspected->bytes);
  EXPECT_EQ(counted.count.parameters.total, inspected->elements - 48 - 32);
  EXPECT_EQ(counted.count.weight_bytes, inspected->bytes - 4 * (48 + 32));
  const TempFolder text;
  EXPECT_FALSE(MustCount(Directory(text, HfGemma3(true))).counts_part());  // without its towers
}

// A tied head's copy is bytes of the file, and no parameters.
TEST(Count, TiedHeadWithACopy) {
  const TempFolder folder;
  const CountedModel alone = MustCount(Directory(folder, HfGemma3()));
  const Inventory copied = Added(With(HfGemma3(), "tie_word_embeddings", true), "lm_head.weight", {11, 8});
  const CountedModel counted = MustCount(Directory(folder, copied));
  EXPECT_FALSE(counted.counts_part());
  EXPECT_EQ(counted.count.parameters, alone.count.parameters);
  EXPECT_EQ(counted.all_parameters(), alone.count.parameters.total);
  EXPECT_EQ(counted.count.weight_bytes, alone.count.weight_bytes);
  EXPECT_EQ(counted.all_bytes(), alone.count.weight_bytes + 4 * 11 * 8);
}

// FP8 with scales that no role has is counted from its configuration, and says so.
TEST(Count, QuantisedDirectories) {
  const TempFolder folder;
  const std::string weight = "model.layers.0.mlp.up_proj.weight";
  Inventory fp8 = Stored(HfLlama(), weight, DType::kF8_E4M3);
  fp8 = Added(With(fp8, "quantization_config.quant_method", std::string("fp8")), weight + "_block_scale", {1, 1});
  fp8.metadata.Set("torch_dtype", std::string("bfloat16"));
  const CountedModel counted = MustCount(Directory(folder, fp8));
  EXPECT_EQ(counted.count.weight_bytes, 2 * counted.count.parameters.total);
  const std::string notes = testing::PrintToString(counted.count.warnings);
  EXPECT_NE(notes.find("quantised (fp8): bytes are counted as if they were stored in BF16"), std::string::npos) << notes;
  EXPECT_NE(notes.find("counted from its configuration"), std::string::npos) << notes;
}

// A misspelt key is named by whoever reads the checkpoint, the defaults that are taken by those who look at it, and the type of a
// configuration without tensors where it is not said.
TEST(Count, WhatTheConfigurationDoesNotSay) {
  const TempFolder folder;
  const std::string path = Directory(folder, With(Without(HfLlama(), "rms_norm_eps"), "rms_norm_ep", 1e-5));
  const std::string note =
      "its key rms_norm_ep is unknown and not read; rms_norm_eps, which it looks like, is missing and taken to be 1e-06";
  const std::vector<std::string> warnings = MustCount(path).count.warnings;
  ASSERT_EQ(warnings.size(), 2u) << testing::PrintToString(warnings);
  EXPECT_EQ(warnings[0], note);
  EXPECT_NE(warnings[1].find("has no rms_norm_eps (1e-06)"), std::string::npos) << warnings[1];
  EXPECT_EQ(InspectCheckpoint(path)->notes, warnings);
  const auto model = LoadModel(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_EQ((*model)->notes().size(), 1u);
  EXPECT_EQ((*model)->notes()[0], note);
  const auto quantised = Quantize(path, folder / "out.gguf", {.type = "F16", .dry_run = true});
  ASSERT_TRUE(quantised.ok()) << quantised.status().message();
  EXPECT_EQ(quantised->notes, std::vector<std::string>{note});

  const CountedModel typeless = MustCount(folder.Write("alone.json", ConfigOf(HfLlama())));
  EXPECT_EQ(typeless.count.weight_bytes, 4 * typeless.count.parameters.total);
  EXPECT_NE(testing::PrintToString(typeless.count.warnings).find("no torch_dtype: weights are counted as F32"),
            std::string::npos);
  const CountedModel fp8 =
      MustCount(folder.Write("fp8.json", ConfigOf(With(HfLlama(), "torch_dtype", std::string("float8_e4m3fn")))));
  EXPECT_EQ(fp8.stored_as, "FP8");
  EXPECT_LT(fp8.count.weight_bytes, typeless.count.weight_bytes);
}

// Published and computed apart from Tally (issue 53): matrix products of a token that sees 1,048,576 positions.
TEST(Count, SparseAttention) {
  constexpr auto kCausal = static_cast<size_t>(books::FlopsView::kCausal);
  const auto at = [](const char* name, uint64_t context) {
    CountRequest request{.model = name, .settings = {}, .options = {}};
    request.options.context = context;
    Result<CountedModel> counted = CountModel(request);
    EXPECT_TRUE(counted.ok()) << counted.status().message();
    return counted.ok() ? std::move(counted->count) : books::Count{};
  };
  constexpr uint64_t S = 1 << 20;
  EXPECT_EQ(at("DeepSeek-V3.2", S).decode.total[kCausal],
            74'952'212'480 + 61 * (64 * 128 * 2 * S + 64 * 2 * S + 128 * 2 * 1'088 * 2'048));
  const auto giga = [&](const char* name) { return static_cast<double>(*at(name, S).decode.total[kCausal].number()) / 1e9; };
  EXPECT_NEAR(giga("DeepSeek-V3.2"), 1165.9, .05);
  EXPECT_NEAR(giga("DeepSeek-V4-Pro"), 304.2, .05);
  EXPECT_NEAR(giga("DeepSeek-V4-Flash"), 141.0, .05);
  // Held and read of the cache at 131,072 positions, in hundredths of 10^9 bytes.
  const auto held_and_read = [&](const char* name) {
    const books::Count c = at(name, 131'072);
    const auto hundredths = [](uint64_t n) { return (n + 5'000'000) / 10'000'000; };
    return std::pair(hundredths(c.kv_bytes_at_context), hundredths(c.kv_bytes_read.number().value()));
  };
  EXPECT_EQ(held_and_read("DeepSeek-V3.2"), std::pair(uint64_t{1126}, uint64_t{219}));
  EXPECT_EQ(held_and_read("MiniMax-M3"), std::pair(uint64_t{1802}, uint64_t{296}));
  EXPECT_EQ(held_and_read("DeepSeek-V4-Flash"), std::pair(uint64_t{91}, uint64_t{21}));
  // States of a sequence: with compressors' rows that are not yet an entry, and a dilated convolution.
  EXPECT_EQ(at("DeepSeek-V4-Flash", S).state_bytes, 12'206'080u);
  EXPECT_EQ(at("DeepSeek-V4-Pro", S).state_bytes, 18'710'528u);
  EXPECT_EQ(at("Qwen3.8-Flash-Next", S).state_bytes, 118'038'528u);
}

// Every type of the cache, of grouped, latent, shared and compressed keys and values: elements, and a scale of 2 bytes for 32 in q8_0.
TEST(Count, TypesOfTheCache) {
  const auto at = [](const char* name, KvType kv) {
    CountRequest request{.model = name};
    request.options = {.context = 4096, .batch = 2, .kv = kv};
    Result<CountedModel> counted = CountModel(request);
    EXPECT_TRUE(counted.ok()) << counted.status().message();
    return counted.ok() ? std::move(counted->count) : books::Count{};
  };
  for (const char* name : {"Llama-3.1-8B", "DeepSeek-V3", "Gemma-4-E2B", "Qwen3.6-35B-A3B", "DeepSeek-V4-Flash", "gpt-oss-20b"}) {
    SCOPED_TRACE(name);
    const books::Count f16 = at(name, KvType::kF16), f32 = at(name, KvType::kF32), q8 = at(name, KvType::kQ8_0);
    EXPECT_EQ(f32.kv_bytes_per_token, 2 * f16.kv_bytes_per_token);
    EXPECT_EQ(at(name, KvType::kBF16).kv_bytes_at_context, f16.kv_bytes_at_context);
    EXPECT_EQ(f32.kv_bytes_at_context, 2 * f16.kv_bytes_at_context);
    // Heads, latents and entries here are whole blocks.
    EXPECT_EQ(32 * q8.kv_bytes_at_context, 17 * f16.kv_bytes_at_context);
    EXPECT_EQ(32 * q8.kv_bytes_read.number().value(), 17 * f16.kv_bytes_read.number().value());
    EXPECT_EQ(q8.kv_per_token.value(), q8.kv_bytes_per_token);
    EXPECT_EQ(q8.kv_elements_per_token.value(), f16.kv_elements_per_token.value());
  }
  EXPECT_EQ(at("Llama-3.1-8B", KvType::kQ8_0).kv_bytes_per_token, 32u * 2 * 8 * (128 + 4 * 2));
  const books::Count v3 = at("DeepSeek-V3", KvType::kQ8_0);
  EXPECT_EQ(v3.kv_bytes_per_token, 61u * (576 + 18 * 2));
  EXPECT_EQ(v3.expanded->kv_bytes_per_token, 61u * 128 * (192 + 6 * 2 + 128 + 4 * 2));
}

// The rows of the table by layer add up to the model's figures.
TEST(Count, ByLayer) {
  for (const char* name :
       {"gpt2", "gpt-oss-20b", "Gemma-4-E2B", "Llama-4-Maverick", "Nemotron-3-Super", "DeepSeek-V3.2", "DeepSeek-V4-Flash",
        "DeepSeek-V4-Pro", "MiniMax-M3", "Qwen3.8-Flash-Next", "GLM-5", "GLM-5.3-Flash"}) {
    SCOPED_TRACE(name);
    CountRequest request{.model = name};
    request.options.kv = KvType::kQ8_0;  // of which an entry's bytes are not always a whole number for each position
    Result<CountedModel> counted = CountModel(request);
    ASSERT_TRUE(counted.ok()) << counted.status().message();
    const books::Count& c = counted->count;
    const std::vector<LayerCost> layers = LayerCosts(c);
    ASSERT_EQ(layers.size(), c.recipe->layers.size() + 1);
    LayerCost sum;
    uint64_t matmul = 0, everything = 0;
    for (const LayerCost& l : layers) {
      sum.parameters += l.parameters;
      sum.active += l.active;
      sum.kv_bytes += l.kv_bytes;
      matmul += l.prefill_matmul.number().value_or(0);
      everything += l.decode.number().value_or(0);
      EXPECT_EQ(l.decode.whole(), c.decode.total[2].whole());
    }
    EXPECT_EQ(sum.parameters, c.parameters.total);
    EXPECT_EQ(sum.active, c.parameters.active_all);
    EXPECT_EQ(matmul, c.prefill.total[1].number().value_or(0));
    EXPECT_EQ(everything, c.decode.total[2].number().value_or(0));
    EXPECT_EQ(sum.kv_bytes, c.kv_bytes_per_token);
    EXPECT_EQ(layers[0].kv_bytes, 0u);
  }
  const std::vector<LayerCost> flash = LayerCosts(CountModel({.model = "DeepSeek-V4-Flash"})->count);
  EXPECT_EQ(flash[1].kv_bytes, 1'024u);                        // the window alone: 512 elements
  EXPECT_EQ(flash[3].kv_bytes, 1'024u + (512 + 128) / 4 * 2);  // and an entry and an index key of 4 positions
  EXPECT_EQ(flash[4].kv_bytes, 1'024u + 512 / 128 * 2);
  const std::vector<LayerCost> maverick = LayerCosts(CountModel({.model = "Llama-4-Maverick"})->count);
  EXPECT_EQ(maverick[1].mixer + "; " + maverick[1].network, "attention, chunk 8192; dense");
  EXPECT_EQ(maverick[4].mixer + "; " + maverick[4].network, "attention; 1 of 128 experts");
}

// Jamba's attention and recurrence, and Kimi-K3's heads: 4 S for each element of the queries, absorbed 2 (2 R_kv + D_r) for each head.
TEST(Count, AttentionOfModelsThatAreCountedOnly) {
  constexpr auto kCausal = static_cast<size_t>(books::FlopsView::kCausal);
  for (const auto& [name, a_position] :
       {std::pair{"Jamba-1.5-Mini", uint64_t{4} * 4 * 32 * 128}, std::pair{"Kimi-K3", uint64_t{24} * 96 * 2 * (2 * 512 + 64)}}) {
    const auto flops = [model = name](uint64_t context) {
      CountRequest request{.model = model, .settings = {}, .options = {}};
      request.options.context = context;
      return CountModel(request).value().count.decode.total[kCausal].number().value();
    };
    EXPECT_EQ(flops(5000) - flops(1000), 4000 * a_position) << name;
  }
}

// By name and by config.json, with what is apart; whatever would run or change one is an error that says why.
TEST(Count, ModelsThatAreCountedOnly) {
  const TempFolder folder;
  Directory(folder, HfLlama());  // some tensors
  for (const std::string_view name : {"RWKV-7-2.9B", "DeepSeek-V4-Flash", "Qwen3.8-Flash-Next"}) {
    SCOPED_TRACE(name);
    const CountedModel known = MustCount(std::string(name));
    const std::string file = folder.Write("config.json", PublishedConfig(name));
    EXPECT_EQ(MustCount(file).count.parameters, known.count.parameters);
    EXPECT_EQ(MustCount(folder.path()).count.parameters, known.count.parameters);
    ASSERT_TRUE(known.count.recipe->counted_only.has_value());
    const std::string why = known.count.recipe->counted_only->why;
    const auto refused = [&](const Status& status) {
      EXPECT_EQ(status.code(), StatusCode::kBadInput);
      EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    };
    refused(LoadModel(folder.path(), {}).status());
    refused(PlanSynth(name, folder / "m.gguf", {}).status());
    refused(FitModel(known, {}, {}).status());
    EXPECT_FALSE(CountModel({.model = std::string(name), .settings = {"d_model=64"}, .options = {}}).ok());
  }
}

}  // namespace
}  // namespace tally
