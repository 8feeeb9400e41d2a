// What models/demo/README.md claims of the text that the bundled model was not trained on, by our engine: bits per character of
// the last tenth, as models/demo/evaluate.py defines them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/goldens/demo_model.h"

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

TEST(Demo, HeldOutBitsPerCharacterAreTheReadmes) {
  if (!std::filesystem::exists(kText)) GTEST_SKIP() << kText << " is not here";
  std::ifstream file(kText, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::ifstream figures_file(kDemo + "figures.json");
  const nlohmann::json figures = nlohmann::json::parse(figures_file);
  const std::string text = all.substr(all.size() * 9 / 10);
  ASSERT_EQ(text.size(), figures.at("held_out_characters").get<size_t>());

  Opened exact = OpenDemo(kDemo + "demo.gguf", ActivationsChoice::kF32);
  ASSERT_NE(exact.engine, nullptr);
  const double f32 = BitsPerCharacter(exact, text);
  EXPECT_NEAR(f32, figures.at("bits_per_character").at("mxfp4").get<double>(), 5e-4);
  for (const char* units : {"characters", "tokens"}) {
    EXPECT_LE(f32, 0.9 * figures.at("kneser_ney_bits_per_character").at(units).get<double>()) << units;
  }

  Opened usual = OpenDemo(kDemo + "demo.gguf", ActivationsChoice::kAuto);
  ASSERT_NE(usual.engine, nullptr);
  const double as_run = BitsPerCharacter(usual, text);
  EXPECT_NEAR(as_run, f32, 0.001 * f32);
  std::printf("bits per character: %.5f with f32 activations, %.5f as run by default\n", f32, as_run);
}

}  // namespace
}  // namespace tally
