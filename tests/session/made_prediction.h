// SPDX-License-Identifier: Apache-2.0
// A small Qwen3.5 with a layer for multi-token prediction, of random weights in F32, as Hugging Face stores it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {

inline void MakeQwen35(const std::string& directory) {
  static constexpr char kConfig[] = R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "vocab_size": 61,
      "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
      "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.5}, "mtp_num_hidden_layers": 1,
      "tie_word_embeddings": false, "torch_dtype": "float32"})";
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << kConfig;
  const auto spec = ReadFamily(ReadConfigText(kConfig, "config.json").value(), DType::kF32, /*prediction=*/true);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::string header;
  std::vector<float> values;
  for (const NeededTensor& t : NeededTensors(*spec)) {
    const size_t begin = values.size() * sizeof(float);
    uint64_t n = 1;
    std::string shape;
    for (const uint64_t d : t.shape) {
      n *= d;
      shape += (shape.empty() ? "" : ",") + std::to_string(d);
    }
    const float scale = t.shape.size() == 2 ? 1.5f / std::sqrt(static_cast<float>(t.shape.back())) : 0.3f;
    for (uint64_t i = 0; i < n; ++i) values.push_back(scale * normal(random));
    header += (header.empty() ? "{" : ",") + std::string("\"") + t.name + R"(":{"dtype":"F32","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(values.size() * sizeof(float)) + "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  std::ofstream file(directory + "/model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header;
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
}

}  // namespace tally
