// SPDX-License-Identifier: Apache-2.0
// Small trained models found in public repositories (../shared/weights, not part of this repository) do what their sources say.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/open_engine.h"

namespace tally {
namespace {

const std::string kWeights = std::string(TALLY_SOURCE_DIR) + "/../shared/weights/";

#define SKIP_WITHOUT(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here"

Opened OpenAs(const std::string& path, ActivationMode activations = ActivationMode::kF32, int64_t context = 0) {
  EngineOptions options;
  options.context = context;
  options.threads = 2;
  options.activations = activations;
  options.max_logit_rows = EngineOptions::kBatchRows;
  return Open(path, options);
}

GenerateOptions Greedy(int64_t n) {
  GenerateOptions options;
  options.max_tokens = n;
  options.sampling.temperature = 0;
  return options;
}

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// The greedy sequences that microsoft/onnxruntime-genai's own test expects of hf-internal-testing/tiny-random-gpt2.
TEST(RealWeights, TinyRandomGpt2) {
  SKIP_WITHOUT(kWeights + "tiny-random-gpt2");
  const nlohmann::json expected = ReadJson(kWeights + "tiny-random-gpt2/expected_greedy.json");
  Opened opened = OpenAs(kWeights + "tiny-random-gpt2");
  ASSERT_NE(opened.engine, nullptr);
  for (size_t i = 0; i < expected["prompts"].size(); ++i) {
    const auto prompt = expected["prompts"][i].get<std::vector<int32_t>>();
    auto whole = expected["greedy_outputs"][i].get<std::vector<int32_t>>();
    auto result = Generate(*opened.engine, prompt, Greedy(static_cast<int64_t>(whole.size() - prompt.size())));
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->tokens, std::vector<int32_t>(whole.begin() + static_cast<int64_t>(prompt.size()), whole.end()));
  }
}

std::string DecodeBase64(const std::string& text) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int n = 0;
  for (char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((n += 6) >= 8) bytes += static_cast<char>(bits >> (n -= 8));
  }
  return bytes;
}

// The sorting model of bbycroft/llm-viz as a Hugging Face directory, made from the author's own JSON: the model.safetensors beside
// it was derived without the biases of c_attn (RefusedWithoutItsBiases). Removed when the test is done with it.
struct NanoSortDirectory {
  NanoSortDirectory();
  ~NanoSortDirectory() { std::filesystem::remove_all(path); }
  const std::string path = testing::TempDir() + "/real_weights_" + std::to_string(getpid()) + "_gpt-nano-sort";
};

NanoSortDirectory::NanoSortDirectory() {
  const nlohmann::json source = ReadJson(kWeights + "gpt-nano-sort/gpt-nano-sort-model.json");
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : source.items()) {
    if (!tensor.contains("data") || name.ends_with(".attn.bias")) continue;  // the configuration, the masks
    std::string bytes = DecodeBase64(tensor.at("data").get<std::string>());
    auto shape = tensor.at("shape").get<std::vector<size_t>>();
    const bool conv1d = shape.size() == 2 && (name.find("c_attn") != std::string::npos ||
                                              name.find("c_proj") != std::string::npos || name.find("c_fc") != std::string::npos);
    if (conv1d) {  // minGPT's Linear is [out, in]
      std::string turned(bytes.size(), 0);
      for (size_t r = 0; r < shape[0]; ++r) {
        for (size_t c = 0; c < shape[1]; ++c) turned.replace((c * shape[0] + r) * 4, 4, bytes, (r * shape[1] + c) * 4, 4);
      }
      bytes = turned;
      std::swap(shape[0], shape[1]);
    }
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  std::filesystem::create_directories(path);
  std::filesystem::copy_file(kWeights + "gpt-nano-sort/config.json", path + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream out(path + "/model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << text << data;
}

TEST(RealWeights, GptNanoSortRefusedWithoutItsBiases) {
  SKIP_WITHOUT(kWeights + "gpt-nano-sort");
  auto model = LoadModel(kWeights + "gpt-nano-sort", {});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kBadInput);
  EXPECT_NE(model.status().message().find("c_attn.bias"), std::string::npos) << model.status().message();
}

// The logits that PyTorch gave for it.
TEST(RealWeights, GptNanoSort) {
  SKIP_WITHOUT(kWeights + "gpt-nano-sort");
  const nlohmann::json expected = ReadJson(kWeights + "gpt-nano-sort/expected_logits.json");
  const NanoSortDirectory directory;
  Opened opened = OpenAs(directory.path);
  ASSERT_NE(opened.engine, nullptr);
  for (size_t i = 0; i < expected["idx"].size(); ++i) {
    auto sequence = opened.engine->NewSequence();
    ASSERT_TRUE(sequence.ok());
    std::vector<BatchRow> rows;
    for (int32_t token : expected["idx"][i]) rows.push_back({token, *sequence, true});
    auto logits = opened.engine->StepAll(rows);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    for (int64_t t = 0; t < logits->rows; ++t) {
      for (int64_t v = 0; v < logits->cols; ++v) {
        EXPECT_NEAR(logits->Row(t)[v], expected["logits"][i][static_cast<size_t>(t)][static_cast<size_t>(v)].get<float>(), 2e-5);
      }
    }
    opened.engine->Free(*sequence);
  }
}

// Six digits in, the same digits sorted out: what the model was trained for.
TEST(RealWeights, GptNanoSortSorts) {
  SKIP_WITHOUT(kWeights + "gpt-nano-sort");
  const NanoSortDirectory directory;
  Opened opened = OpenAs(directory.path, ActivationMode::kAuto);
  ASSERT_NE(opened.engine, nullptr);
  for (const std::vector<int32_t>& digits : {std::vector<int32_t>{2, 0, 1, 0, 2, 1}, {1, 1, 0, 2, 0, 0}, {2, 2, 1, 0, 1, 0}}) {
    auto result = Generate(*opened.engine, digits, Greedy(6));
    ASSERT_TRUE(result.ok()) << result.status().message();
    std::vector<int32_t> sorted = digits;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(result->tokens, sorted);
  }
}

// karpathy/llama2.c's test_all.py: what run.c prints at temperature 0 for stories260K, from the start token alone.
TEST(RealWeights, Stories260K) {
  const std::string path = kWeights + "stories260K-gguf/stories260Ktok512.gguf";
  SKIP_WITHOUT(path);
  const std::string expected =
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red "
      "ball. "
      "She wanted to play with it, but it was too high.\nLily's mom said, \"Lily, let's go to the park.\" Lily was sad and "
      "didn't know "
      "what to do. She said, \"I want to play with your ball, but I can't find it.\"\nLily was sad and didn't know what to do. "
      "She said, "
      "\"I'm sorry, Lily. I didn't know what to do.\"\nLily didn't want to help her mom, so she";
  for (ActivationMode activations : {ActivationMode::kF32, ActivationMode::kAuto}) {
    Opened opened = OpenAs(path, activations, 256);  // the file says 128; it was trained on 512
    ASSERT_NE(opened.engine, nullptr);
    ASSERT_NE(opened.model->tokenizer(), nullptr);
    const std::vector<int32_t> start = {opened.model->tokenizer()->bos()};
    auto result = Generate(*opened.engine, start, Greedy(250));
    ASSERT_TRUE(result.ok()) << result.status().message();
    const size_t at = result->text.find("Once");
    ASSERT_NE(at, std::string::npos) << result->text;
    EXPECT_EQ(result->text.substr(at, expected.size()), expected);
  }
}

// Text that goes on from a prompt keeps the space before its first word.
TEST(RealWeights, Stories260KContinuesAPrompt) {
  const std::string path = kWeights + "stories260K-gguf/stories260Ktok512.gguf";
  SKIP_WITHOUT(path);
  Opened opened = OpenAs(path);
  ASSERT_NE(opened.engine, nullptr);
  auto prompt = opened.model->tokenizer()->Encode("Once upon a");
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  auto result = Generate(*opened.engine, *prompt, Greedy(8));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->text.substr(0, 13), " time, there ") << result->text;
}

// No reference output is published for TinyStories-656K: its card promises fluent stories after its template.
TEST(RealWeights, TinyStories656K) {
  const std::string path = kWeights + "tinystories-656k-bf16";
  SKIP_WITHOUT(path);
  Opened opened = OpenAs(path, ActivationMode::kAuto);
  ASSERT_NE(opened.engine, nullptr);
  EXPECT_EQ(opened.model->parameters().total, 656'000u);
  auto prompt =
      opened.model->tokenizer()->Encode("<|start_story|>Once upon a time, ", {.add_special = false, .parse_special = true});
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  auto result = Generate(*opened.engine, *prompt, Greedy(200));
  ASSERT_TRUE(result.ok()) << result.status().message();
  int words = 0;
  for (const char* word : {" was ", " and ", " the ", " to ", " with "})
    words += result->text.find(word) != std::string::npos ? 1 : 0;
  EXPECT_GE(words, 4) << result->text;
  EXPECT_TRUE(result->finish == FinishReason::kEos || result->text.size() > 400) << result->text;
}

}  // namespace
}  // namespace tally
