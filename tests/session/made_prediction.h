// SPDX-License-Identifier: Apache-2.0
// Small checkpoints with a layer for multi-token prediction, of random weights in F32.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "loaders/loaders.h"
#include "models/made_checkpoint.h"

namespace tally {

// The configuration of a model by name: "qwen35", "qwen35moe", "qwen3next", "deepseek3" or "nemotron" (with experts in a
// space of their own).
inline std::string PredictionConfig(const std::string& name) {
  nlohmann::json c = {
      {"vocab_size", 61},         {"hidden_size", 32}, {"num_hidden_layers", 4},         {"num_attention_heads", 4},
      {"num_key_value_heads", 2}, {"head_dim", 16},    {"max_position_embeddings", 512}, {"tie_word_embeddings", false},
      {"torch_dtype", "float32"}};
  if (name.starts_with("qwen")) {
    c.update({{"intermediate_size", 48},
              {"linear_num_key_heads", 2},
              {"linear_num_value_heads", 4},
              {"linear_key_head_dim", 8},
              {"linear_value_head_dim", 8},
              {"linear_conv_kernel_dim", 4},
              {"full_attention_interval", 4},
              {"rms_norm_eps", 1e-6}});
  }
  if (name.starts_with("qwen35")) {
    c.update({{"architectures", {"Qwen3_5ForCausalLM"}},
              {"model_type", "qwen3_5_text"},
              {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000}, {"partial_rotary_factor", 0.5}}},
              {"mtp_num_hidden_layers", 1}});
  }
  if (name == "qwen3next") {
    c.update({{"architectures", {"Qwen3NextForCausalLM"}},
              {"model_type", "qwen3_next"},
              {"rope_theta", 10000},
              {"partial_rotary_factor", 0.5},
              {"num_nextn_predict_layers", 1}});
  }
  if (name == "qwen35moe" || name == "qwen3next") {
    c.update({{"num_experts", 6},
              {"num_experts_per_tok", 2},
              {"moe_intermediate_size", 8},
              {"shared_expert_intermediate_size", 12},
              {"norm_topk_prob", true}});
  }
  if (name == "qwen35moe") c.update({{"architectures", {"Qwen3_5MoeForCausalLM"}}, {"model_type", "qwen3_5_moe_text"}});
  if (name == "deepseek3") {
    std::ifstream golden(std::string(TALLY_SOURCE_DIR) + "/tests/goldens/deepseek_v3/deepseek3-a-f32-groups-mtp/config.json");
    c = nlohmann::json::parse(golden);
    c["max_position_embeddings"] = 512;
  }
  if (name == "nemotron") {
    c.update({{"architectures", {"NemotronHForCausalLM"}},
              {"model_type", "nemotron_h"},
              {"hybrid_override_pattern", "M*EM"},
              {"mtp_hybrid_override_pattern", "*E"},
              {"num_nextn_predict_layers", 1},
              {"mlp_hidden_act", "relu2"},
              {"layer_norm_epsilon", 1e-5},
              {"mamba_num_heads", 4},
              {"mamba_head_dim", 8},
              {"ssm_state_size", 8},
              {"n_groups", 2},
              {"conv_kernel", 4},
              {"use_conv_bias", true},
              {"n_routed_experts", 6},
              {"n_shared_experts", 1},
              {"num_experts_per_tok", 2},
              {"moe_intermediate_size", 12},
              {"moe_shared_expert_intermediate_size", 12},
              {"moe_latent_size", 16},
              {"norm_topk_prob", true},
              {"routed_scaling_factor", 2.5},
              {"n_group", 1},
              {"topk_group", 1}});
  }
  return c.dump();
}

// Random values of a tensor: norms about 1 as a whole, rates that decay.
inline std::vector<float> PredictionValues(const StoredTensor& t, const TensorBinding& b, size_t index) {
  std::mt19937 random(static_cast<uint32_t>(7 + index));
  std::normal_distribution<float> normal;
  const bool matrix = t.shape.size() >= 2 && t.shape.back() > 1;
  const float scale = matrix ? 1.5f / std::sqrt(static_cast<float>(t.shape.back())) : 0.3f;
  const bool norm = t.name.find("norm") != t.name.npos && b.storage != Storage::kPlusOne;
  std::vector<float> values(t.elements());
  for (float& v : values) {
    v = scale * normal(random) + (norm ? 1 : 0);
    if (b.role == Role::kSsmA && b.storage == Storage::kPlain) v = -std::exp(v);
  }
  return values;
}

// A GGUF file if `path` ends in ".gguf", else a Hugging Face directory.
inline void MakePredicting(const std::string& name, const std::string& path) {
  const bool gguf = path.ends_with(".gguf");
  const std::string text = PredictionConfig(name);
  const auto config = ReadConfigText(text, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const MadeTypes types{DType::kF32, DType::kF32};
  const auto made = gguf ? MakeGguf(*config, types, /*prediction=*/true) : MakeHuggingFace(*config, types, /*prediction=*/true);
  ASSERT_TRUE(made.ok()) << name << ": " << made.status().message();
  const std::vector<StoredTensor>& tensors = made->inventory.tensors;
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < tensors.size(); ++i) {
    ASSERT_EQ(tensors[i].dtype, DType::kF32) << tensors[i].name;
    values.push_back(PredictionValues(tensors[i], made->spec.bindings[made->made_for[i]], i));
  }
  const FillTensor fill = [&](size_t tensor, uint64_t offset, std::span<uint8_t> piece) {
    std::memcpy(piece.data(), reinterpret_cast<const uint8_t*>(values[tensor].data()) + offset, piece.size());
  };
  if (!gguf) {
    std::filesystem::create_directories(path);
    std::ofstream(path + "/config.json") << text;
    const Status written = WriteSafetensors(path + "/model.safetensors", tensors, fill);
    ASSERT_TRUE(written.ok()) << written.message();
    return;
  }
  GgufWriter writer;
  writer.Set("general.architecture", *made->inventory.metadata.Find("general.architecture"));
  for (const auto& [key, value] : made->inventory.metadata.values()) {
    if (key != "general.architecture") writer.Set(key, value);
  }
  writer.Set("tokenizer.ggml.model", std::string("no_vocab"));
  for (const StoredTensor& t : tensors) writer.AddTensor(t.name, t.dtype, t.shape);
  const Status written = writer.Write(path, fill);
  ASSERT_TRUE(written.ok()) << written.message();
}

}  // namespace tally
