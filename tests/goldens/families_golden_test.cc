// SPDX-License-Identifier: Apache-2.0
// Every golden checkpoint of which only logits are kept: against its reference, in each format, each sequence with an engine of its own
// context; and the same bits whatever the threads, the cut of the prompt and the company in the batch.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/goldens/golden_case.h"
#include "tests/goldens/logits.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

const std::string kGoldens = TALLY_SOURCE_DIR "/tests/goldens/";

// FAMILY/CASE, sorted.
std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(kGoldens)) {
    if (entry.path().filename() != "golden.json") continue;
    const std::string name = fs::relative(entry.path().parent_path(), kGoldens).string();
    if (!GoldenCase(name).Has("p0.hidden.0")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string FamilyName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.find('/') + 1);
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

class FamilyTest : public testing::TestWithParam<std::string> {};

// The greatest difference of a logit is 1e-5 of the greatest logit at most.
TEST_P(FamilyTest, LogitsAndGreedyTokensInF32) {
  GoldenCase golden(GetParam());
  for (const std::string& path : golden.Checkpoints()) {
    SCOPED_TRACE(path);
    for (size_t p = 0; p < golden.prompts.size(); ++p) {
      const GoldenPrompt& prompt = golden.prompts[p];
      EngineOptions options = Exact();
      options.context = static_cast<int64_t>(prompt.ids.size());
      Opened opened = Open(path, options);
      ASSERT_NE(opened.engine, nullptr);
      const Mat<const float> want = golden.F32("p" + std::to_string(p) + ".logits");
      const std::vector<float> got = Logits(*opened.engine, prompt.ids, prompt.ids.size());
      ASSERT_EQ(static_cast<int64_t>(got.size()), want.rows * want.cols);
      const double difference = MaxDifference({got.data(), want.rows, want.cols}, want);
      EXPECT_LE(difference, 1e-5 * MaxAbs(want));
      std::printf("%s p%zu: greatest difference of a logit %.2e, greatest logit %.1f\n",
                  path.c_str() + golden.directory.rfind('/') + 1, p, difference, MaxAbs(want));
      for (size_t i = 0; i < prompt.greedy.size(); ++i) {
        const float* row = got.data() + (prompt.prompt.size() + i - 1) * static_cast<size_t>(want.cols);
        EXPECT_EQ(std::max_element(row, row + want.cols) - row, prompt.greedy[i]) << "token " << i;
      }
    }
  }
}

TEST_P(FamilyTest, BitsDoNotDependOnThreadsCutsOrCompany) {
  const GoldenCase golden(GetParam());
  ExpectSameBitsHoweverRun(golden.directory, golden.prompts[0].ids);
}

TEST_P(FamilyTest, TheReferenceAgrees) {
  GoldenCase golden(GetParam());
  const GoldenPrompt& prompt = golden.prompts[0];
  EngineOptions options = Exact();
  options.impl = ImplChoice::kRef;
  options.context = static_cast<int64_t>(prompt.ids.size());
  Opened opened = Open(golden.directory, options);
  ASSERT_NE(opened.engine, nullptr);
  const Mat<const float> want = golden.F32("p0.logits");
  const std::vector<float> got = Logits(*opened.engine, prompt.ids, prompt.ids.size());
  ASSERT_EQ(static_cast<int64_t>(got.size()), want.rows * want.cols);
  EXPECT_LE(MaxDifference({got.data(), want.rows, want.cols}, want), 1e-5 * MaxAbs(want));
}

INSTANTIATE_TEST_SUITE_P(Goldens, FamilyTest, testing::ValuesIn(Cases()), FamilyName);

// GGUF has no architecture or no key for these. A file that is lost would be missed here.
TEST(FamilyGoldens, WhichHaveNoGguf) {
  const std::set<std::string> kNone = {
      "opt/opt-a-f32-relu",
      "opt/opt-b-bf16-gelu-nobias",
      "opt/opt-c-f32-stream-norms-narrow",
      "gptj/gptj-a-f32-rotary4-buffers",
      "gptj/gptj-b-bf16-rotary6",
      "gptneo/gptneo-a-f32-window5-buffers",
      "gptneo/gptneo-b-bf16-window3",
      "falcon/falcon-c-f32-sequential-bias",
      "gptbigcode/gptbigcode-b-f32-multihead",
      "starcoder2/starcoder2-b-f32-window-nobias",
      "internlm2/internlm2-b-bf16-bias-dynamic",
      "mini-gpt/mini-gpt-a-f32",
      "deepseek_v1/deepseek1-b-f32-renorm-freq2-gqa",
      "deepseek_v3/deepseek3-b-f32-plainq-mscale",
      "cohere2/cohere2-b-f32-layertypes-bias",
      "olmo2/olmo2-b-bf16-mha-bias-tied",
      "olmoe/olmoe-b-f32-clip-renorm-gqa",
      "smollm3/smollm3-b-f32-sliding-biases",
      "qwen3_fp8/qwen3-fp8-a-blocks",
      "llama4/llama4-a-f32-chunks-temperature",
      "llama4/llama4-c-f32-noqknorm-lists",
      "lfm2_moe/lfm2moe-b-f32-nobias-norenorm",
  };
  std::set<std::string> none;
  for (const std::string& name : Cases()) {
    if (GoldenCase(name).Checkpoints().size() == 1) none.insert(name);
  }
  EXPECT_EQ(none, kNone);
}

}  // namespace
}  // namespace tally
