// SPDX-License-Identifier: Apache-2.0
// Checkpoints that the repository does not hold: those of other makers with the float64 logits of transformers (shared/fixtures-hf), and
// the project's shared goldens, in each format.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/goldens/golden_case.h"
#include "tests/goldens/logits.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

const std::string kShared = TALLY_SOURCE_DIR "/../shared/";

std::vector<std::string> FoldersWith(const std::string& file, const std::string& below) {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(below)) {
    if (entry.path().filename() == file) found.push_back(entry.path().parent_path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Shared, FixturesOfTransformers) {
  const std::string fixtures = kShared + "fixtures-hf";
  if (!fs::exists(fixtures)) GTEST_SKIP() << fixtures << " is absent";
  const auto folders = FoldersWith("logits.json", fixtures);
  EXPECT_GE(folders.size(), 26u);
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    std::ifstream file(folder + "/logits.json");
    const nlohmann::json json = nlohmann::json::parse(file);
    Opened opened = Open(folder, Exact());
    if (opened.engine == nullptr) continue;
    double difference = 0, greatest = 0;
    for (size_t s = 0; s < json.at("sequences").size(); ++s) {
      const auto ids = json["sequences"][s].get<std::vector<int32_t>>();
      const std::vector<float> got = Logits(*opened.engine, ids, ids.size());
      size_t at = 0;
      for (const auto& row : json.at("logits")[s]) {
        for (const double want : row.get<std::vector<double>>()) {
          ASSERT_LT(at, got.size());
          difference = std::max(difference, std::fabs(want - static_cast<double>(got[at++])));
          greatest = std::max(greatest, std::fabs(want));
        }
      }
      EXPECT_EQ(at, got.size());
    }
    std::printf("%s: greatest difference %.1e of %.2f\n", folder.c_str() + folder.rfind('/') + 1, difference, greatest);
    // transformers computes the decays of gated delta nets in f32, whatever the rest is.
    EXPECT_LE(difference, (folder.ends_with("qwen3_5") ? 2e-5 : 1e-5) * greatest);
  }
}

// All of shared/fixtures-llamacpp. The reference keeps K and V in f16. ernie4_5-moe-moe lacks the gates of experts, kimi-linear-moe the
// shared experts that its keys name: llama.cpp adds the SiLU of what they would read.
const std::vector<std::string> kOfLlamaCpp = {
    "ernie4_5-moe-moe",   "kimi-linear-moe",      "bailingmoe2-moe", "cohere2-dense",  "dots1-moe",      "exaone4-dense",
    "laguna-moe",         "lfm2-dense",           "mamba2-dense",    "minimax-m2-moe", "mistral3-dense", "mistral4-moe",
    "muse-glimmer-dense", "nemotron_h_moe-dense", "olmo2-dense",     "qwen35-dense",   "qwen3vl-dense",  "seed_oss-dense"};

TEST(Shared, FixturesOfLlamaCpp) {
  const std::string fixtures = kShared + "fixtures-llamacpp/";
  if (!fs::exists(fixtures)) GTEST_SKIP() << fixtures << " is absent";
  std::vector<int32_t> ids;
  std::ifstream tokens(fixtures + "tokens.txt");
  for (std::string id; std::getline(tokens, id, ',');) ids.push_back(std::stoi(id));
  for (const std::string& name : kOfLlamaCpp) {
    SCOPED_TRACE(name);
    EngineOptions options = Exact();
    options.context = static_cast<int64_t>(ids.size());
    Opened opened = Open(fixtures + name + ".gguf", options);
    if (opened.engine == nullptr) continue;
    const std::vector<float> got = Logits(*opened.engine, ids, ids.size());
    std::vector<float> want(got.size());
    std::ifstream file(fixtures + name + ".logits.f32", std::ios::binary);
    ASSERT_TRUE(file.read(reinterpret_cast<char*>(want.data()), static_cast<std::streamsize>(want.size() * sizeof(float))));
    const Mat<const float> all(want.data(), 1, static_cast<int64_t>(want.size()));
    const double difference = MaxDifference({got.data(), 1, all.cols}, all);
    std::printf("%s: greatest difference %.1e of %.2f\n", name.c_str(), difference, MaxAbs(all));
    EXPECT_LE(difference, 1e-3 * MaxAbs(all));
  }
}

// Gemma 4 (dense, with embeddings of layers and shared caches) against float64, from GGUF with and without the keys and values that no
// layer uses, and from a directory with towers.
TEST(Shared, FixturesOfGemma4) {
  const std::string fixtures = kShared + "fixtures-gemma4/";
  if (!fs::exists(fixtures)) GTEST_SKIP() << fixtures << " is absent";
  std::vector<int32_t> ids;
  std::ifstream tokens(fixtures + "tokens.txt");
  for (std::string id; std::getline(tokens, id, ',');) ids.push_back(std::stoi(id));
  for (const std::string name : {"gemma4-e2b-tiny.gguf", "gemma4-e2b-tiny-pruned.gguf", "hf-conditional"}) {
    SCOPED_TRACE(name);
    EngineOptions options = Exact();
    options.context = static_cast<int64_t>(ids.size());
    Opened opened = Open(fixtures + name, options);
    if (opened.engine == nullptr) continue;
    const std::vector<float> got = Logits(*opened.engine, ids, ids.size());
    std::vector<double> exact(got.size());
    std::ifstream file(fixtures + "gemma4-e2b-tiny.exact.f64", std::ios::binary);
    ASSERT_TRUE(file.read(reinterpret_cast<char*>(exact.data()), static_cast<std::streamsize>(exact.size() * sizeof(double))));
    double difference = 0, greatest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      difference = std::max(difference, std::fabs(exact[i] - static_cast<double>(got[i])));
      greatest = std::max(greatest, std::fabs(exact[i]));
    }
    std::printf("%s: greatest difference %.1e of %.2f\n", name.c_str(), difference, greatest);
    EXPECT_LE(difference, 1e-5 * greatest);
  }
}

TEST(Shared, Goldens) {
  const std::string goldens = kShared + "goldens";
  if (!fs::exists(goldens)) GTEST_SKIP() << goldens << " is absent";
  const auto folders = FoldersWith("golden.json", goldens);
  EXPECT_GE(folders.size(), 18u);
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    GoldenCase golden("../../../shared/goldens" + folder.substr(goldens.size()));
    for (const std::string& path : golden.Checkpoints()) {
      if (path.find("gptoss-b") != path.npos && path.ends_with(".gguf")) continue;  // GGUF rounds YaRN's bounds
      Opened opened = Open(path, Exact());
      if (opened.engine == nullptr) continue;
      for (size_t p = 0; p < golden.prompts.size(); ++p) {
        const std::vector<int32_t>& ids = golden.prompts[p].ids;
        const Mat<const float> want = golden.F32("p" + std::to_string(p) + ".logits");
        const std::vector<float> got = Logits(*opened.engine, ids, ids.size());
        ASSERT_EQ(static_cast<int64_t>(got.size()), want.rows * want.cols);
        EXPECT_LE(MaxDifference({got.data(), want.rows, want.cols}, want), golden.atol) << path;
      }
    }
  }
}

}  // namespace
}  // namespace tally
