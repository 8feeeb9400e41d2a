// SPDX-License-Identifier: Apache-2.0
// Logits of every family beside those of llama.cpp: a small GGUF file with random weights, the same ids, every position. llama.cpp comes
// through npm's node-llama-cpp (llama_cpp/package.json pins it).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/studies/synth.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"
#include "tests/goldens/logits.h"
#include "tests/support/npm.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const std::string kSources = TALLY_SOURCE_DIR "/tests/peers/llama_cpp";
const std::string kInstalled = TALLY_LLAMA_CPP_DIR;
const std::string kVocabulary = TALLY_SOURCE_DIR "/models/demo/demo.gguf";

// More than a chunk of every chunked form of a recurrence (64), and than the context that scaled ropes were made for (16).
constexpr int kTokens = 100, kWords = 1024;

struct Case {
  const char* name;      // of a model of the catalogue; after a slash what is special
  const char* settings;  // changes to its small configuration, a JSON merge patch
  const char* refused;   // part of what llama.cpp says if it cannot run the file; empty: it can
};

const Case kCases[] = {
    {"OLMoE-1B-7B", R"({})", ""},
    {"OLMo-2-7B", R"({})", ""},
    {"StarCoder", R"({})", ""},
    {"StarCoder2-3B", R"({})", ""},
    {"StarCoder2-7B", R"({})", ""},
    {"BLOOM-560M", R"({})", ""},
    {"BLOOM-7B1", R"({})", ""},
    {"Command-R", R"({})", ""},
    {"Command-R7B", R"({})", ""},
    {"DeepSeekMoE-16B", R"({})", ""},
    {"DeepSeek-V2-Lite", R"({})", ""},
    {"DeepSeek-V2", R"({})", ""},
    {"DeepSeek-V3", R"({})", ""},
    {"GPT-Neo-1.3B", R"({})", ""},
    {"GPT-Neo-2.7B", R"({})", ""},
    {"GPT-J-6B", R"({})", ""},
    {"Pythia-160M", R"({})", ""},
    {"Pythia-1.4B", R"({})", ""},
    {"Pythia-6.9B", R"({})", ""},
    {"Gemma-2B", R"({})", ""},
    {"Gemma-7B", R"({})", ""},
    {"Gemma-2-2B", R"({})", ""},
    {"Gemma-2-9B", R"({})", ""},
    {"Gemma-2-27B", R"({})", ""},
    {"Gemma-3-1B", R"({})", ""},
    {"Gemma-3-4B", R"({})", ""},
    {"Gemma-3-12B", R"({})", ""},
    {"Gemma-3-27B", R"({})", ""},
    {"SmolLM2-135M", R"({})", ""},
    {"SmolLM2-1.7B", R"({})", ""},
    {"SmolLM3-3B", R"({})", ""},
    {"Granite-3.0-1B-A400M", R"({})", ""},
    {"Granite-3.1-8B", R"({})", ""},
    {"Granite-4.0-H-Tiny", R"({})", ""},
    {"LFM2-1.2B", R"({})", ""},
    {"LFM2-8B-A1B", R"({})", ""},
    {"OPT-125M", R"({})", ""},
    {"OPT-1.3B", R"({})", ""},
    {"OPT-6.7B", R"({})", ""},
    {"Llama-2-7B", R"({})", ""},
    {"Llama-3.1-8B", R"({})", ""},
    {"Llama-3.1-70B", R"({})", ""},
    {"Llama-3.2-1B", R"({})", ""},
    {"Llama-4-Scout", R"({})", ""},
    {"Phi-1.5", R"({})", ""},
    {"Phi-2", R"({})", ""},
    {"Phi-3-mini-4k", R"({})", ""},
    {"Phi-4", R"({})", ""},
    {"Phi-4-mini", R"({})", ""},
    {"Mistral-7B-v0.1", R"({})", ""},
    {"Mixtral-8x7B", R"({})", ""},
    {"Mixtral-8x22B", R"({})", ""},
    {"Codestral-Mamba-7B", R"({})", ""},
    {"Kimi-K2", R"({})", ""},
    {"MPT-7B", R"({})", ""},
    {"Nemotron-3-Nano", R"({})", ""},
    {"gpt2", R"({})", ""},
    {"gpt2-medium", R"({})", ""},
    {"gpt2-large", R"({})", ""},
    {"gpt2-xl", R"({})", ""},
    {"gpt-oss-20b", R"({})", ""},
    {"gpt-oss-120b", R"({})", ""},
    {"MiniCPM-2B", R"({})", ""},
    {"Qwen1.5-MoE-A2.7B", R"({})", ""},
    {"Qwen2-0.5B", R"({})", ""},
    {"Qwen2-7B", R"({})", ""},
    {"Qwen2-57B-A14B", R"({})", ""},
    {"Qwen2.5-7B", R"({})", ""},
    {"Qwen2.5-72B", R"({})", ""},
    {"Qwen3-0.6B", R"({})", ""},
    {"Qwen3-1.7B", R"({})", ""},
    {"Qwen3-4B", R"({})", ""},
    {"Qwen3-8B", R"({})", ""},
    {"Qwen3-14B", R"({})", ""},
    {"Qwen3-32B", R"({})", ""},
    {"Qwen3-30B-A3B", R"({})", ""},
    {"Qwen3-235B-A22B", R"({})", ""},
    {"Qwen3-Coder-Next", R"({})", ""},
    {"Qwen3.5-4B", R"({})", ""},
    {"Qwen3.6-35B-A3B", R"({})", ""},
    {"InternLM2.5-7B", R"({})", ""},
    {"Falcon-7B", R"({})", ""},
    {"Falcon-40B", R"({})", ""},
    {"Falcon-H1-0.5B", R"({})", ""},
    {"TinyLlama-1.1B", R"({})", ""},
    {"GLM-4-9B", R"({})", ""},
    {"GLM-4-9B-0414", R"({})", ""},
    {"GLM-4.5", R"({})", ""},
    {"GLM-4.5-Air", R"({})", ""},
    {"mini-gpt", R"({})", ""},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Values at which a slip in an order, a sign or a factor shows: what synth fills with one number or with little noise.
class Values {
 public:
  explicit Values(const std::string& name) : random_(static_cast<uint32_t>(std::hash<std::string>()(name))) {}
  float Uniform(double from, double to) { return static_cast<float>(std::uniform_real_distribution<double>(from, to)(random_)); }
  // Those of a tensor of GGUF; false: it keeps synth's.
  bool Fill(const std::string& name, std::vector<float>& values) {
    const auto is = [&](const char* part) { return name.find(part) != name.npos; };
    for (float& v : values) {
      if (is("ssm_a")) {
        v = -std::exp(Uniform(0, std::log(16)));  // Mamba-2's A
      } else if (is("ssm_dt")) {
        const double dt = std::exp(Uniform(std::log(0.001), std::log(0.1)));
        v = static_cast<float>(std::log(std::expm1(dt)));  // softplus of it is Mamba-2's step
      } else if (is("norm") && name.ends_with(".weight")) {
        v = Uniform(0.5, 1.5);
      } else if (is("ssm_d")) {
        v = Uniform(0.5, 1.5);
      } else if (name.ends_with(".bias")) {
        v = Uniform(-0.3, 0.3);
      } else {
        return false;
      }
    }
    return true;
  }

 private:
  std::mt19937 random_;
};

void FillVectors(const std::string& path, const std::string& seed) {
  const Inventory inventory = ReadGguf(path).value();
  Values values(seed);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  for (const StoredTensor& t : inventory.tensors) {
    ASSERT_EQ(t.dtype, DType::kF32) << t.name;
    std::vector<float> of(t.elements());
    if (!values.Fill(t.name, of)) continue;
    file.seekp(static_cast<std::streamoff>(t.offset));
    file.write(reinterpret_cast<const char*>(of.data()), static_cast<std::streamsize>(t.bytes));
  }
  ASSERT_TRUE(file.good());
}

class LlamaCpp : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { missing_ = new std::string(InstallNpm(kSources, kInstalled, {"logits.mjs"})); }
  static void TearDownTestSuite() {
    std::cout << *table_;
    delete missing_;
  }
  static std::string* missing_;
  static std::string* table_;
};
std::string* LlamaCpp::missing_ = nullptr;
std::string* LlamaCpp::table_ = new std::string;

TEST_P(LlamaCpp, Agrees) {
  if (!missing_->empty()) GTEST_SKIP() << *missing_;
  const std::string name = GetParam().name, model = name.substr(0, name.find('/'));
  OrderedJson config = SmallConfig(model);
  OrderedJson& text = config.contains("text_config") ? config["text_config"] : config;
  text["vocab_size"] = kWords;
  text.merge_patch(OrderedJson::parse(GetParam().settings));

  const TempFolder folder;
  const std::string path = folder / "model.gguf";
  SynthOptions options;
  options.type = DType::kF32;
  options.vocab_from = kVocabulary;
  const auto made = Synthesize(folder.Write("config.json", config.dump()), path, options);
  ASSERT_TRUE(made.ok()) << made.status().message();
  FillVectors(path, name);
  if (HasFatalFailure()) return;

  std::vector<int32_t> ids;
  std::string list;
  for (int32_t i = 0; i < kTokens; ++i) {
    ids.push_back((i * i * 7 + i * 31 + 3) % (kWords - 1));
    list += (i == 0 ? "" : ",") + std::to_string(ids.back());
  }
  EngineOptions exact = Exact();
  exact.context = 128;
  exact.max_batch = exact.max_logit_rows = kTokens;
  const Opened opened = Open(path, exact);
  ASSERT_NE(opened.engine, nullptr);
  const std::vector<float> ours = Logits(*opened.engine, ids, ids.size());

  const std::string command = "node '" + kInstalled + "/logits.mjs' '" + path + "' " + list;
  const int code = Shell(command + " '" + folder / "logits" + "' >'" + folder / "log" + "' 2>&1");
  const std::string said = ReadAll(folder / "log");
  ASSERT_EQ(code, 0) << said;
  const std::string bytes = ReadAll(folder / "logits");
  ASSERT_EQ(bytes.size(), ours.size() * sizeof(float));
  std::vector<float> theirs(ours.size());
  std::memcpy(theirs.data(), bytes.data(), bytes.size());

  double greatest = 0, most = 0;
  size_t where = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    greatest = std::max(greatest, std::fabs(static_cast<double>(theirs[i])));
    const double apart = std::fabs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]));
    if (!(apart <= most)) most = apart, where = i / kWords;
  }
  std::cout << name << " " << most / greatest << " greatest " << greatest << " at " << where << "\n";
  EXPECT_LE(most, 1e-3 * greatest) << "the first at position " << where;
}

INSTANTIATE_TEST_SUITE_P(All, LlamaCpp, testing::ValuesIn(kCases), [](const testing::TestParamInfo<Case>& c) {
  std::string name = c.param.name;
  std::ranges::replace_if(
      name, [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace tally
