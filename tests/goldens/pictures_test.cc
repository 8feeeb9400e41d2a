// SPDX-License-Identifier: Apache-2.0
// Rows with given embeddings and spans against float64 logits of models that see pictures (shared/fixtures-vision): the text model alone,
// with the embeddings that the tower would give.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/recipe/recipe.h"
#include "tests/goldens/logits.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const std::string kFixtures = TALLY_SOURCE_DIR "/../shared/fixtures-vision/";

std::vector<double> Doubles(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  std::vector<double> values(bytes.str().size() / sizeof(double));
  std::memcpy(values.data(), bytes.str().data(), values.size() * sizeof(double));
  return values;
}

std::vector<int32_t> TokensOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<int32_t> tokens;
  for (std::string number; std::getline(file, number, ',');) tokens.push_back(std::stoi(number));
  return tokens;
}

struct PictureCase {
  const char *model, *prompt, *logits;  // files
  std::vector<const char*> pictures;
  int32_t soft_token, row_token;  // the placeholder, and the token that rows of pictures have
  bool both_ways;
  double tolerance;
};

// The placeholders become embeddings, a run of them for each picture. In one step, and with the text before and after in steps of its own.
void ExpectLogits(const PictureCase& c) {
  SCOPED_TRACE(std::string(c.model) + " " + c.logits);
  EngineOptions options = Exact();
  options.context = 400;
  // A configuration without weights is of those beside it.
  const TempFolder folder;
  std::string path = kFixtures + c.model;
  if (std::filesystem::is_directory(path) && !std::filesystem::exists(path + "/model.safetensors")) {
    std::filesystem::copy_file(path + "/config.json", folder / "config.json");
    std::filesystem::create_symlink(std::filesystem::canonical(path + "/../hf/model.safetensors"), folder / "model.safetensors");
    path = folder.path();
  }
  const Opened opened = Open(path, options);
  ASSERT_NE(opened.engine, nullptr);
  const size_t width = static_cast<size_t>(opened.model->recipe().d_model),
               vocab = static_cast<size_t>(opened.model->recipe().vocab);
  std::vector<int32_t> tokens = TokensOf(kFixtures + c.prompt);
  const std::vector<double> wanted = Doubles(kFixtures + c.logits);
  ASSERT_EQ(wanted.size(), tokens.size() * vocab);
  std::vector<float> embeddings;
  for (const char* picture : c.pictures) {
    for (const double x : Doubles(kFixtures + picture)) embeddings.push_back(static_cast<float>(x));
  }
  const int32_t s = opened.engine->NewSequence().value();
  std::vector<BatchRow> rows;
  size_t used = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    BatchRow row{tokens[i], s, true};
    if (tokens[i] == c.soft_token) {
      size_t begin = i, end = i;
      while (begin > 0 && tokens[begin - 1] == c.soft_token) --begin;
      while (end < tokens.size() && tokens[end] == c.soft_token) ++end;
      row.token = c.row_token;
      row.embedding = std::span(embeddings).subspan(width * used++, width);
      if (c.both_ways) row.both_ways = {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
    }
    rows.push_back(row);
  }
  ASSERT_EQ(used * width, embeddings.size());
  for (const bool cut : {false, true}) {
    std::vector<float> got;
    for (size_t at = 0; at < rows.size();) {
      size_t end = rows.size();
      for (end = cut ? at + 1 : end; end < rows.size() && !rows[end - 1].embedding.empty() && !rows[end].embedding.empty();)
        ++end;
      const auto out = opened.engine->StepAll(std::span(rows).subspan(at, end - at));
      ASSERT_TRUE(out.ok()) << out.status().message();
      got.insert(got.end(), out->data, out->Row(out->rows));
      at = end;
    }
    double most = 0;
    for (size_t i = 0; i < got.size(); ++i) most = std::max(most, std::fabs(static_cast<double>(got[i]) - wanted[i]));
    EXPECT_LE(most, c.tolerance) << "cut " << cut;
    ASSERT_TRUE(opened.engine->Truncate(s, 0).ok());
  }
}

TEST(Pictures, LogitsOfTheTextModel) {
  if (!std::filesystem::exists(kFixtures)) GTEST_SKIP() << kFixtures << " is absent";
  // fixtures-vision/README.md: a float32 engine's logits are within 5e-5 for Gemma 3, 1.5e-4 for the others.
  for (const PictureCase& c : std::vector<PictureCase>{{"gemma3/gemma3-tiny.gguf",
                                                        "gemma3/one.tokens.txt",
                                                        "gemma3/one.logits.f64",
                                                        {"gemma3/square.embeddings.f64"},
                                                        128,
                                                        128,
                                                        true,
                                                        5e-5},
                                                       {"gemma3/gemma3-tiny.gguf",
                                                        "gemma3/two.tokens.txt",
                                                        "gemma3/two.logits.f64",
                                                        {"gemma3/odd.embeddings.f64", "gemma3/square.embeddings.f64"},
                                                        128,
                                                        128,
                                                        true,
                                                        5e-5},
                                                       {"gemma4/hf",
                                                        "gemma4/one.tokens.txt",
                                                        "gemma4/one.causal.logits.f64",
                                                        {"gemma4/big.embeddings.f64"},
                                                        104,
                                                        0,
                                                        true,
                                                        1.5e-4},
                                                       {"gemma4/hf-vision",
                                                        "gemma4/one.tokens.txt",
                                                        "gemma4/one.vision.logits.f64",
                                                        {"gemma4/big.embeddings.f64"},
                                                        104,
                                                        0,
                                                        true,
                                                        1.5e-4},
                                                       {"gemma4/hf-vision",
                                                        "gemma4/two.tokens.txt",
                                                        "gemma4/two.vision.logits.f64",
                                                        {"gemma4/square.embeddings.f64", "gemma4/big.embeddings.f64"},
                                                        104,
                                                        0,
                                                        true,
                                                        1.5e-4}}) {
    ExpectLogits(c);
  }
}

}  // namespace
}  // namespace tally
