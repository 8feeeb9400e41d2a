// SPDX-License-Identifier: Apache-2.0
// What models/demo/README.md claims of the text that the bundled model was not trained on, by our engine: bits per character of
// the last tenth, as models/demo/evaluate.py defines them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/goldens/demo_model.h"
#include "tests/support/targets.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const std::string kText = std::string(TALLY_SOURCE_DIR) + "/../shared/text/tinyshakespeare.txt";

double BitsPerCharacter(Opened& demo, const std::string& text) {
  const auto encoded = demo.model->tokenizer()->Encode(text, {.add_special = false});
  EXPECT_TRUE(encoded.ok());
  const std::vector<int32_t>& held_out = *encoded;
  const int32_t end = 1023;
  double bits = 0;
  for (size_t at = 0; at < held_out.size(); at += 1024) {
    const size_t n = std::min<size_t>(1024, held_out.size() - at);
    std::vector<int32_t> ids = {end};
    ids.insert(ids.end(), held_out.begin() + static_cast<std::ptrdiff_t>(at),
               held_out.begin() + static_cast<std::ptrdiff_t>(at + n - 1));
    ForEachLogits(*demo.engine, ids, [&](size_t first, Mat<const float> logits) {
      for (int64_t r = 0; r < logits.rows; ++r) {
        const float* row = logits.Row(r);
        const float top = *std::max_element(row, row + logits.cols);
        double sum = 0;
        for (int64_t c = 0; c < logits.cols; ++c) sum += std::exp(static_cast<double>(row[c]) - top);
        bits += (std::log(sum) + top - row[held_out[at + first + static_cast<size_t>(r)]]) / std::log(2.0);
      }
    });
  }
  return bits / static_cast<double>(text.size());  // the text is ASCII
}

nlohmann::json Figures() { return nlohmann::json::parse(ReadAll(kDemo + "figures.json")); }

// The cells of the row of models/demo/README.md that begins so; the label first.
std::vector<std::string> ReadmeRow(const std::string& label) {
  const std::string readme = ReadAll(kDemo + "README.md");
  std::vector<std::string> cells;
  const size_t begin = readme.find("\n| " + label);
  if (begin == readme.npos) return cells;
  std::istringstream row(readme.substr(begin + 2, readme.find('\n', begin + 1) - begin - 2));
  for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
  return cells;
}

std::string Shown(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

TEST(Demo, TheReadmeHasTheFiguresOfTorch) {
  const nlohmann::json figures = Figures(), model = figures.at("bits_per_character"),
                       n_gram = figures.at("kneser_ney_bits_per_character");
  const std::pair<const char*, double> rows[] = {
      {"this model as shipped: ", model.at("mxfp4")},
      {"the same, experts not quantised ", model.at("unquantised_experts")},
      {"the same, all float32 ", model.at("float32")},
      {"interpolated modified Kneser-Ney 5-gram over characters ", n_gram.at("characters")},
      {"the same over this model's tokens ", n_gram.at("tokens")}};
  for (const auto& [label, value] : rows) {
    const std::vector<std::string> cells = ReadmeRow(label);
    ASSERT_GE(cells.size(), 2u) << label;
    EXPECT_EQ(cells[1], Shown(" %.4f ", value)) << label;
  }
  const auto below = [&](const char* unit) {
    return Shown("%.1f %% below", 100 * (1 - model.at("mxfp4").get<double>() / n_gram.at(unit).get<double>()));
  };
  const std::string readme = ReadAll(kDemo + "README.md");
  EXPECT_NE(readme.find("is " + below("characters") + " the n-gram over characters"), readme.npos) << below("characters");
  EXPECT_NE(readme.find(" and " + below("tokens") + " the one over its own tokens"), readme.npos) << below("tokens");
}

TEST(Demo, HeldOutBitsPerCharacterAreTheReadmes) {
  if (!std::filesystem::exists(kText)) GTEST_SKIP() << kText << " is not here";
  const std::string all = ReadAll(kText);
  const nlohmann::json figures = Figures();
  const std::string text = all.substr(all.size() * 9 / 10);
  ASSERT_EQ(text.size(), figures.at("held_out_characters").get<size_t>());

  Opened exact = OpenDemo(kDemo + "demo.gguf", ActivationMode::kF32);
  ASSERT_NE(exact.engine, nullptr);
  const double f32 = BitsPerCharacter(exact, text);
  EXPECT_NEAR(f32, figures.at("bits_per_character").at("mxfp4").get<double>(), 5e-4);
  const std::vector<std::string> shipped = ReadmeRow("this model as shipped: "),
                                 run = ReadmeRow("the same as `tally run` has it: ");
  ASSERT_EQ(shipped.size(), 3u);
  ASSERT_EQ(run.size(), 3u);
  EXPECT_NEAR(f32, std::stod(shipped[2]), 5e-4);
  for (const char* units : {"characters", "tokens"}) {
    EXPECT_LE(f32, 0.9 * figures.at("kneser_ney_bits_per_character").at(units).get<double>()) << units;
  }

  // All of it on the first target, the machine's best; a part of it on all.
  const std::string part = text.substr(0, text.size() / 16);
  std::optional<double> of_part;
  ForEachTarget([&] {
    Opened usual = OpenDemo(kDemo + "demo.gguf", ActivationMode::kAuto);
    ASSERT_NE(usual.engine, nullptr);
    const double bits = BitsPerCharacter(usual, part);
    EXPECT_NEAR(bits, of_part.value_or(bits), 1e-4);
    std::printf("bits per character of the first part: %.5f, %s\n", bits, std::string(HwyTargetName()).c_str());
    if (of_part.has_value()) return;
    of_part = bits;
    const double as_run = BitsPerCharacter(usual, text);
    EXPECT_NEAR(as_run, std::stod(run[2]), 5e-4);
    std::printf("bits per character: %.5f with f32 activations, %.5f as run by default\n", f32, as_run);
  });
}

}  // namespace
}  // namespace tally
