// SPDX-License-Identifier: Apache-2.0
// Whole models with weights in FP8: codes and scales as published checkpoints have them, beside the F32 values that they stand for. The
// one must generate what the other does, its books must agree, and GGUF files of both must be the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/kernels/formats/fp8.h"
#include "engine/studies/audit.h"
#include "engine/studies/quantize.h"
#include "engine/studies/synth.h"
#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/goldens/logits.h"
#include "tests/support/stored_weights.h"
#include "tests/support/targets.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

// Query and key norms, one head of keys and values, whose 64 rows are part of a block; untied.
Json Qwen3() {
  return Json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256,
    "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64,
    "vocab_size": 320, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "hidden_act": "silu"})");
}
// Rows that are no whole blocks.
Json Ragged() {
  Json config = Qwen3();
  config.update({{"hidden_size", 200}, {"intermediate_size", 328}, {"head_dim", 24}});
  return config;
}
// Latent attention, whose keys are transposed by head; a dense layer, then experts and a shared one.
Json DeepseekV3() {
  return Json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 256,
    "intermediate_size": 256, "moe_intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 64, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.5,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_nextn_predict_layers": 0, "vocab_size": 320,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000, "rope_scaling": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "hidden_act": "silu", "attention_bias": false})");
}

enum class Scales { kBlocks, kBlocksBF16, kRows, kWhole };

struct Fp8Case {
  const char* name;
  Json (*config)();
  Scales scales;
  bool embedding;  // it and the head are FP8, too
};

class Fp8 : public testing::TestWithParam<Fp8Case> {
 protected:
  struct Written {
    std::vector<StoredTensor> tensors;
    std::vector<std::vector<uint8_t>> bytes;
    void Add(const std::string& name, DType type, std::vector<uint64_t> shape, std::vector<uint8_t> data) {
      tensors.push_back({.name = name, .dtype = type, .shape = std::move(shape)});
      bytes.push_back(std::move(data));
    }
    void Write(const std::string& directory, const Json& config) const {
      std::filesystem::create_directory(directory);
      ASSERT_TRUE(WriteTextFile(directory + "/config.json", config.dump()).ok());
      const Status written =
          WriteSafetensors(directory + "/model.safetensors", tensors, [&](size_t i, uint64_t at, std::span<uint8_t> piece) {
            std::memcpy(piece.data(), bytes[i].data() + at, piece.size());
          });
      ASSERT_TRUE(written.ok()) << written.message();
    }
  };

  static std::vector<uint8_t> Bytes(DType t, const std::vector<float>& x) {
    std::vector<uint8_t> out(x.size() * GetDTypeInfo(t).block_bytes);
    FormatOf(t).encode(x.data(), nullptr, static_cast<int64_t>(x.size()), out.data());
    return out;
  }

  void SetUp() override {
    const Fp8Case& c = GetParam();
    Json config = c.config();
    ASSERT_TRUE(WriteTextFile(folder_ / "config.json", config.dump()).ok());
    SynthOptions synth;
    synth.type = DType::kBF16;
    const auto made = Synthesize(folder_ / "config.json", folder_ / "bf16", synth);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const Inventory plain = ReadHuggingFace(folder_ / "bf16").value();
    Written coded, values;
    for (const StoredTensor& t : plain.tensors) {
      std::vector<uint8_t> bytes(t.bytes);
      ASSERT_TRUE(FileReader::Open(plain.files[t.file].path)->ReadAt(t.offset, bytes).ok());
      std::vector<float> x = DecodeStored(t.dtype, bytes.data(), t.elements());
      const bool outside = t.name == "model.embed_tokens.weight" || t.name == "lm_head.weight";
      if (t.name.find("_proj") == std::string::npos && !(outside && c.embedding)) {
        coded.Add(t.name, t.dtype, t.shape, bytes);
      } else {
        Encode(t, x, coded);
        ++matrices_;
      }
      values.Add(t.name, DType::kF32, t.shape, Bytes(DType::kF32, x));
    }
    if (c.scales == Scales::kRows) {  // of a quantised KV cache, which no one has here
      for (const char* name : {"k_proj.k_scale", "v_proj.v_scale", "k_scale", "v_scale"}) {
        coded.Add("model.layers.1.self_attn." + std::string(name), DType::kF32, {1}, Bytes(DType::kF32, {0.25f}));
      }
    }
    values.Write(folder_ / "values", config);
    const bool blocks = c.scales == Scales::kBlocks || c.scales == Scales::kBlocksBF16;
    config["quantization_config"] = {{"quant_method", blocks ? "fp8" : "compressed-tensors"}, {"activation_scheme", "dynamic"}};
    if (blocks) config["quantization_config"]["weight_block_size"] = {128, 128};
    coded.Write(folder_ / "fp8", config);
    for (int32_t i = 0; i < 20; ++i) ids_.push_back(i * i * 7 % 320);
  }

  // Writes a matrix as codes and scales; x becomes what they stand for.
  void Encode(const StoredTensor& t, std::vector<float>& x, Written& coded) const {
    const Scales kind = GetParam().scales;
    const uint64_t cols = t.shape.back(), rows = t.elements() / cols;  // keys and values of all heads are one matrix
    const bool blocks = kind == Scales::kBlocks || kind == Scales::kBlocksBF16;
    const uint64_t high = blocks ? 128 : kind == Scales::kRows ? 1 : rows, wide = blocks ? 128 : cols;
    const uint64_t down = (rows + high - 1) / high, across = (cols + wide - 1) / wide;
    const DType type = kind == Scales::kBlocksBF16 ? DType::kBF16 : DType::kF32;
    std::vector<float> scales(down * across, 0.0f);
    const auto scale = [&](uint64_t i) -> float& { return scales[i / cols / high * across + i % cols / wide]; };
    for (uint64_t i = 0; i < x.size(); ++i) scale(i) = std::max(scale(i), std::fabs(x[i]) / 448);
    const std::vector<uint8_t> stored = Bytes(type, scales);
    scales = DecodeStored(type, stored.data(), scales.size());
    std::vector<uint8_t> codes(x.size());
    for (uint64_t i = 0; i < x.size(); ++i) {
      codes[i] = F32ToE4M3(x[i] / scale(i));
      x[i] = scale(i) * E4M3ToF32(codes[i]);
    }
    coded.Add(t.name, DType::kF8_E4M3, {rows, cols}, codes);
    std::vector<uint64_t> shape = {down, across};
    if (kind == Scales::kWhole) shape = {};
    coded.Add(t.name + (blocks ? "_scale_inv" : "_scale"), type, shape, stored);
    if (kind == Scales::kWhole) {  // of static activations, which no one reads here
      coded.Add(t.name.substr(0, t.name.rfind('.')) + ".input_scale", DType::kF32, {1}, Bytes(DType::kF32, {0.5f}));
    }
  }

  std::vector<float> LogitsOf(const std::string& path, ActivationMode activations, ImplChoice impl = ImplChoice::kAuto) {
    EngineOptions options = Exact();
    options.activations = activations;
    options.impl = impl;
    Opened opened = Open(path, options);
    return opened.engine == nullptr ? std::vector<float>() : Logits(*opened.engine, ids_, ids_.size());
  }
  static Mat<const float> View(const std::vector<float>& logits) {
    return {logits.data(), static_cast<int64_t>(logits.size()) / 320, 320};
  }

  const TempFolder folder_;
  const std::string fp8_ = folder_ / "fp8", values_ = folder_ / "values";
  std::vector<int32_t> ids_;
  int matrices_ = 0;
};

// f32 activations: the products are those of the values, in the same order. bf16: within the bound of quantised_test for BF16 weights;
// the greedy token is that of the f32 run wherever its margin exceeds twice the difference seen.
TEST_P(Fp8, GivesTheLogitsOfTheValues) {
  ASSERT_GE(matrices_, 14);
  const std::vector<float> exact = LogitsOf(values_, ActivationMode::kF32, ImplChoice::kRef);
  ASSERT_EQ(exact.size(), ids_.size() * 320);
  const Mat<const float> want = View(exact);
  ExpectSameLogits(LogitsOf(fp8_, ActivationMode::kF32, ImplChoice::kRef), exact, "reference");
  ForEachTarget([&] {
    const std::vector<float> close = LogitsOf(fp8_, ActivationMode::kF32);
    ExpectSameLogits(close, LogitsOf(values_, ActivationMode::kF32), "f32 on this target");
    EXPECT_LE(MaxDifference(View(close), want), 1e-5 * MaxAbs(want));
    for (const ActivationMode mode : {ActivationMode::kAuto, ActivationMode::kBF16}) {
      const std::vector<float> got = LogitsOf(fp8_, mode);
      const double difference = MaxDifference(View(got), want);
      EXPECT_LE(difference, 0.025 * MaxAbs(want));
      int compared = 0;
      for (int64_t r = 0; r < want.rows; ++r) {
        std::vector<float> sorted(want.Row(r), want.Row(r) + want.cols);
        std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
        if (sorted[0] - sorted[1] <= 2 * difference) continue;
        const float* const row = View(got).Row(r);
        EXPECT_EQ(std::max_element(row, row + 320) - row, std::max_element(want.Row(r), want.Row(r) + 320) - want.Row(r)) << r;
        ++compared;
      }
      EXPECT_GE(compared, 3);
      std::printf("%s: greatest difference %.2f %% of the largest logit\n", GetParam().name, 100 * difference / MaxAbs(want));
    }
  });
}

TEST_P(Fp8, BitsDoNotDependOnThreadsCutsOrCompany) {
  ForEachTarget([&] { ExpectSameBitsHoweverRun(fp8_, ids_); });
}

TEST_P(Fp8, BooksAgree) {
  const Opened opened = Open(fp8_, SmallOptions(), {.guard_slices = true});
  ASSERT_NE(opened.engine, nullptr);
  AuditOptions options;
  options.prompt = {1, 2, 3, 2, 1, 4, 5, 2, 3, 1, 0};
  options.decode_tokens = 3;
  const auto report = Audit(*opened.engine, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->differing, 0u);
  EXPECT_GT(report->compared, 100u);
  uint64_t bytes = 0;
  const Inventory inventory = ReadHuggingFace(fp8_).value();
  const auto is_of_activations = [](std::string_view name) {
    return name.ends_with("input_scale") || name.ends_with(".k_scale") || name.ends_with(".v_scale");
  };
  for (const StoredTensor& t : inventory.tensors) bytes += is_of_activations(t.name) ? 0 : t.bytes;
  uint64_t booked = 0;
  for (const books::AuditRow& r : report->stored) booked += r.account == books::AuditAccount::kWeightBytes ? *r.inventory : 0;
  // Keys and values of latent attention share the scales of a block of rows: each is charged with those that it needs.
  const double shared = GetParam().config == DeepseekV3 ? 100 : 0;
  EXPECT_NEAR(static_cast<double>(booked), static_cast<double>(bytes), shared);
}

TEST_P(Fp8, NamesScalesOfTheCache) {
  const auto spec = ReadModelSpec(ReadHuggingFace(fp8_).value());
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const auto named = std::ranges::find_if(spec->notes, [](const std::string& n) {
    return n == "its scales of a quantised KV cache ('model.layers.1.self_attn.k_proj.k_scale' and 3 more) are not used";
  });
  EXPECT_EQ(named != spec->notes.end(), GetParam().scales == Scales::kRows);
}

TEST_P(Fp8, BecomesGguf) {
  QuantizeOptions options;
  options.type = "F32";
  for (const std::string& directory : {fp8_, values_}) {
    const auto report = Quantize(directory, directory + ".gguf", options);
    ASSERT_TRUE(report.ok()) << report.status().message();
  }
  ExpectSameLogits(LogitsOf(fp8_ + ".gguf", ActivationMode::kF32), LogitsOf(values_ + ".gguf", ActivationMode::kF32), "GGUF");
  options.type = "Q8_0";
  EXPECT_TRUE(Quantize(fp8_, folder_ / "q8.gguf", options).ok());  // without --requantize
}

INSTANTIATE_TEST_SUITE_P(Cases, Fp8,
                         testing::Values(Fp8Case{"qwen3_blocks", Qwen3, Scales::kBlocks, false},
                                         Fp8Case{"qwen3_rows_and_embedding", Qwen3, Scales::kRows, true},
                                         Fp8Case{"ragged_rows", Ragged, Scales::kRows, true},
                                         Fp8Case{"ragged_blocks", Ragged, Scales::kBlocks, false},
                                         Fp8Case{"qwen3_whole", Qwen3, Scales::kWhole, false},
                                         Fp8Case{"deepseek3_blocks", DeepseekV3, Scales::kBlocks, false},
                                         Fp8Case{"deepseek3_bf16_scales_and_embedding", DeepseekV3, Scales::kBlocksBF16, true}),
                         [](const testing::TestParamInfo<Fp8Case>& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace tally
