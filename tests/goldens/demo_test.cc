// SPDX-License-Identifier: Apache-2.0
// The bundled model (models/demo): verse, its books, and the same logits from a Hugging Face directory of the same values.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "loaders/loaders.h"
#include "tests/goldens/demo_model.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

TEST(Demo, IsFoundAndSpeaksVerse) {
  const auto path = DemoModelPath();
  ASSERT_TRUE(path.ok()) << path.status().message();
  EXPECT_LE(std::filesystem::file_size(*path), 4u << 20);
  Opened demo = OpenDemo(*path, ActivationMode::kAuto);
  ASSERT_NE(demo.engine, nullptr);
  const ParameterCounts& counts = demo.model->parameters();
  EXPECT_GE(counts.total, 2'000'000u);
  EXPECT_LE(counts.total, 6'000'000u);
  EXPECT_LT(counts.active_all, counts.total / 2);

  ASSERT_NE(demo.model->tokenizer(), nullptr);
  const auto prompt = demo.model->tokenizer()->Encode("", {.add_special = true});
  ASSERT_TRUE(prompt.ok());
  // Speakers in capitals, and lines between them that begin with a capital. What is sampled differs between instruction sets, in a
  // word soon in everything; now and then a text is one long speech.
  const std::regex speech("\n[A-Z][A-Z ]+:\n[A-Z'][^\n]+\n");
  GenerateOptions options;
  options.max_tokens = 400;
  std::string texts;
  for (options.sampling.seed = 0; options.sampling.seed < 5; ++options.sampling.seed) {
    const auto result = Generate(*demo.engine, *prompt, options);
    ASSERT_TRUE(result.ok()) << result.status().message();
    texts += result->text;
  }
  const auto first = std::sregex_iterator(texts.begin(), texts.end(), speech);
  EXPECT_GE(std::distance(first, std::sregex_iterator()), 20) << texts;  // 41 by AVX-512 with bf16
}

// --- The same values as a Hugging Face directory ---

class HfWriter {
 public:
  explicit HfWriter(const Inventory& gguf) : gguf_(gguf), file_(gguf.files[0].path, std::ios::binary) {}

  void Write(const TempFolder& folder) {
    Copy("token_embd.weight", "model.embed_tokens.weight");
    Copy("output_norm.weight", "model.norm.weight");
    Copy("output.weight", "lm_head.weight");
    const int64_t layers = Int("block_count");
    for (int64_t i = 0; i < layers; ++i) {
      const std::string from = "blk." + std::to_string(i) + ".", to = "model.layers." + std::to_string(i) + ".";
      Copy(from + "attn_norm.weight", to + "input_layernorm.weight");
      Copy(from + "post_attention_norm.weight", to + "post_attention_layernorm.weight");
      Copy(from + "attn_sinks.weight", to + "self_attn.sinks");
      for (const auto& [a, b] :
           {std::pair{"attn_q", "q_proj"}, {"attn_k", "k_proj"}, {"attn_v", "v_proj"}, {"attn_output", "o_proj"}}) {
        for (const char* kind : {".weight", ".bias"}) Copy(from + a + kind, to + "self_attn." + b + kind);
      }
      for (const char* kind : {".weight", ".bias"}) Copy(from + "ffn_gate_inp" + kind, to + "mlp.router" + kind);
      const std::string experts = to + "mlp.experts.";
      Experts({from + "ffn_gate_exps", from + "ffn_up_exps"}, experts + "gate_up_proj");
      Experts({from + "ffn_down_exps"}, experts + "down_proj");
    }
    std::string header = header_.dump();
    header.append((8 - header.size() % 8) % 8, ' ');
    std::string file(8, '\0');
    const uint64_t size = header.size();
    std::memcpy(file.data(), &size, 8);
    folder.Write("model.safetensors", file + header + data_);
    folder.Write("config.json", Config(layers).dump());
  }

 private:
  int64_t Int(const std::string& key) const { return **gguf_.metadata.GetInt("gpt-oss." + key); }
  double Double(const std::string& key) const { return **gguf_.metadata.GetDouble("gpt-oss." + key); }

  nlohmann::json Config(int64_t layers) const {
    nlohmann::json types = nlohmann::json::array();
    for (int64_t i = 0; i < layers; ++i) types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
    return {{"architectures", {"GptOssForCausalLM"}},
            {"model_type", "gpt_oss"},
            {"attention_bias", true},
            {"head_dim", Int("attention.key_length")},
            {"hidden_size", Int("embedding_length")},
            {"intermediate_size", Int("expert_feed_forward_length")},
            {"layer_types", types},
            {"max_position_embeddings", Int("context_length")},
            {"num_attention_heads", Int("attention.head_count")},
            {"num_experts_per_tok", Int("expert_used_count")},
            {"num_hidden_layers", layers},
            {"num_key_value_heads", Int("attention.head_count_kv")},
            {"num_local_experts", Int("expert_count")},
            {"rms_norm_eps", Double("attention.layer_norm_rms_epsilon")},
            {"rope_theta", Double("rope.freq_base")},
            {"rope_scaling",
             {{"rope_type", "yarn"},
              {"factor", Double("rope.scaling.factor")},
              {"beta_fast", Double("rope.scaling.yarn_beta_fast")},
              {"beta_slow", Double("rope.scaling.yarn_beta_slow")},
              {"original_max_position_embeddings", Int("rope.scaling.original_context_length")},
              {"truncate", false}}},
            {"sliding_window", Int("attention.sliding_window")},
            {"swiglu_limit", 7.0},
            {"tie_word_embeddings", false},
            {"vocab_size", Int("vocab_size")}};
  }

  std::string Read(const StoredTensor& t) {
    std::string bytes(t.bytes, '\0');
    file_.seekg(static_cast<std::streamoff>(t.offset));
    file_.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }
  const StoredTensor& At(const std::string& name) const {
    const StoredTensor* t = gguf_.Find(name);
    if (t == nullptr) throw std::runtime_error(name);  // ends the test with its name
    return *t;
  }
  void Add(const std::string& name, const char* type, const std::vector<uint64_t>& shape, const std::string& bytes) {
    header_[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  void Copy(const std::string& from, const std::string& to) {
    const StoredTensor& t = At(from);
    Add(to, t.dtype == DType::kBF16 ? "BF16" : "F32", t.shape, Read(t));
  }
  // Rows of the parts by turns. GGUF's block: the exponent, then 16 bytes with elements j and j + 16; here scales apart, and bytes
  // with elements 2j and 2j + 1.
  void Experts(const std::vector<std::string>& parts, const std::string& to) {
    std::string blocks, scales, bias;
    std::vector<std::string> weights, biases;
    for (const std::string& part : parts) {
      weights.push_back(Read(At(part + ".weight")));
      biases.push_back(Read(At(part + ".bias")));
    }
    const StoredTensor& t = At(parts[0] + ".weight");
    const uint64_t n = t.shape[0], rows = t.shape[1], per_row = t.shape[2] / 32;
    for (uint64_t row = 0; row < n * rows; ++row) {
      for (size_t p = 0; p < parts.size(); ++p) {
        bias.append(biases[p], row * 4, 4);
        for (uint64_t b = 0; b < per_row; ++b) {
          const char* block = weights[p].data() + (row * per_row + b) * 17;
          scales += block[0];
          const auto code = [&](int j) { return static_cast<uint8_t>(block[1 + j % 16]) >> (j < 16 ? 0 : 4) & 15; };
          for (int j = 0; j < 32; j += 2) blocks += static_cast<char>(code(j) | code(j + 1) << 4);
        }
      }
    }
    Add(to + "_blocks", "U8", {n, rows * parts.size(), per_row, 16}, blocks);
    Add(to + "_scales", "U8", {n, rows * parts.size(), per_row}, scales);
    Add(to + "_bias", "F32", {n, rows * parts.size()}, bias);
  }

  const Inventory& gguf_;
  std::ifstream file_;
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

TEST(Demo, AHuggingFaceDirectoryGivesTheSameLogits) {
  const auto gguf = ReadGguf(kDemo + "demo.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.status().message();
  const TempFolder folder;
  HfWriter(*gguf).Write(folder);
  std::vector<int32_t> ids = {1023};
  for (int32_t i = 0; i < 700; ++i) ids.push_back((i * 37 + i / 7) % 1023);
  for (const ActivationMode activations : {ActivationMode::kF32, ActivationMode::kAuto}) {
    std::vector<std::vector<float>> logits;
    for (const std::string& path : {kDemo + "demo.gguf", folder.path()}) {
      Opened opened = OpenDemo(path, activations);
      ASSERT_NE(opened.engine, nullptr);
      logits.emplace_back();
      ForEachLogits(*opened.engine, ids, [&](size_t, Mat<const float> m) {
        logits.back().insert(logits.back().end(), m.data, m.data + m.rows * m.cols);
      });
    }
    ASSERT_EQ(logits[0].size(), ids.size() * 1024);
    EXPECT_EQ(logits[0], logits[1]);
  }
}

}  // namespace
}  // namespace tally
