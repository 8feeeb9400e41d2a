// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/inspect.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "engine/studies/synth.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

TEST(Inspect, TotalsAndRecipe) {
  const std::string path = (fs::path(testing::TempDir()) / ("inspect" + std::to_string(getpid()) + ".gguf")).string();
  SynthOptions options;
  options.type = DType::kQ8_0;
  options.layers = 1;
  options.vocab = 64;
  const auto report = Synthesize("gpt2", path, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto x = InspectCheckpoint(path);
  ASSERT_TRUE(x.ok()) << x.status().message();
  EXPECT_EQ(x->elements, report->parameters);
  EXPECT_TRUE(x->runnable.ok());
  EXPECT_EQ(SizesOf(x->recipe).family, "gpt2");
  ASSERT_EQ(x->types.size(), 2u);
  EXPECT_EQ(x->types[0].type, "Q8_0");
  EXPECT_EQ(x->types[0].elements, 64u * 768 + 12u * 768 * 768);
  EXPECT_EQ(x->types[0].bytes + x->types[1].bytes, x->bytes);
  EXPECT_EQ(x->types[0].tensors + x->types[1].tensors, x->inventory.tensors.size());
  const auto none = LoadTokenizer(path);
  EXPECT_EQ(none.status().code(), StatusCode::kBadInput);
  fs::remove(path);
}

TEST(Inspect, Errors) {
  EXPECT_EQ(InspectCheckpoint("/nowhere/model.gguf").status().code(), StatusCode::kBadInput);
  EXPECT_EQ(LoadTokenizer("/nowhere/tokenizer.json").status().code(), StatusCode::kBadInput);
  EXPECT_EQ(LoadTokenizer("/nowhere").status().code(), StatusCode::kBadInput);
}

TEST(Inspect, TokenizersFromEveryPlace) {
  const fs::path shared = fs::path(TALLY_SOURCE_DIR) / ".." / "shared";
  const fs::path places[] = {shared / "tokenizers/llama.cpp-vocabs/ggml-vocab-gpt-2.gguf",
                             shared / "tokenizers/hf/gpt2.tokenizer.json"};
  for (const fs::path& place : places) {
    if (!fs::exists(place)) GTEST_SKIP() << place << " is not here";
    const auto tokenizer = LoadTokenizer(place.string());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const auto ids = (*tokenizer)->Encode("Hello world");
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, (std::vector<int32_t>{15496, 995})) << place;
  }
  const fs::path directory = shared / "weights/tiny-random-gpt2";
  EXPECT_TRUE(!fs::exists(directory) || LoadTokenizer(directory.string()).ok());
}

}  // namespace
}  // namespace tally
