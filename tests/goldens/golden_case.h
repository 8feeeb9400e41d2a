// SPDX-License-Identifier: Apache-2.0
// A golden case of tests/goldens: a small random checkpoint and what an independent reference computed for it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/mat.h"
#include "loaders/loaders.h"
#include "loaders/safetensors.h"

namespace tally {

struct GoldenPrompt {
  std::vector<int32_t> prompt, greedy;
  std::vector<double> margins;  // of the greedy tokens
  std::vector<int32_t> ids;     // prompt + greedy
};

class GoldenCase {
 public:
  explicit GoldenCase(const std::string& name) : directory(std::string(TALLY_SOURCE_DIR) + "/tests/goldens/" + name) {
    std::ifstream json_file(directory + "/golden.json");
    const nlohmann::json json = nlohmann::json::parse(json_file);
    atol = json.at("suggested_logits_atol").get<double>();
    for (const auto& p : json.at("prompts")) {
      GoldenPrompt prompt;
      prompt.prompt = p.at("prompt").get<std::vector<int32_t>>();
      prompt.greedy = p.at("greedy").get<std::vector<int32_t>>();
      prompt.margins = p.at("greedy_margins").get<std::vector<double>>();
      prompt.ids = prompt.prompt;
      prompt.ids.insert(prompt.ids.end(), prompt.greedy.begin(), prompt.greedy.end());
      prompts.push_back(std::move(prompt));
    }
    Status status = internal::ReadSafetensors(directory + "/golden.safetensors", &values_);
    EXPECT_TRUE(status.ok()) << status.message();
    values_.BuildIndex();
  }

  bool Has(const std::string& name) const { return values_.Find(name) != nullptr; }
  // A stored f32 tensor as [rows, cols].
  Mat<const float> F32(const std::string& name) { return {Load<float>(name, floats_).data(), Rows(name), Cols(name)}; }
  Mat<const int32_t> I32(const std::string& name) { return {Load<int32_t>(name, ints_).data(), Rows(name), Cols(name)}; }
  // The paths to load: the Hugging Face directory, and the GGUF files that it holds. GGUF has no keys for what some cases have.
  std::vector<std::string> Checkpoints() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".gguf") paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    paths.insert(paths.begin(), directory);
    return paths;
  }

  std::string directory;
  double atol = 0;
  std::vector<GoldenPrompt> prompts;

 private:
  const StoredTensor& Stored(const std::string& name) const {
    const StoredTensor* t = values_.Find(name);
    if (t == nullptr) throw std::runtime_error("golden.safetensors has no " + name);
    return *t;
  }
  int64_t Rows(const std::string& name) const { return static_cast<int64_t>(Stored(name).shape.at(0)); }
  int64_t Cols(const std::string& name) const {
    const StoredTensor& t = Stored(name);
    return static_cast<int64_t>(t.elements() / t.shape.at(0));
  }
  template <class T>
  const std::vector<T>& Load(const std::string& name, std::map<std::string, std::vector<T>>& cache) {
    std::vector<T>& v = cache[name];
    if (v.empty()) {
      const StoredTensor& t = Stored(name);
      v.resize(t.elements());
      auto file = FileReader::Open(values_.files.at(t.file).path);
      EXPECT_TRUE(file.ok());
      const Status status = file->ReadAt(t.offset, {reinterpret_cast<uint8_t*>(v.data()), t.bytes});
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return v;
  }

  Inventory values_;
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::vector<int32_t>> ints_;
};

}  // namespace tally
