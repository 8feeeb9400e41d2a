// SPDX-License-Identifier: Apache-2.0
// Sound files cut short: at every byte of what describes them, and at random places of what is described. Each cut is one line
// that names the file and says what is missing.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/studies/inspect.h"
#include "tests/models/synthetic_files.h"
#include "tests/siege/siege.h"

namespace tally::siege {
namespace {

using namespace synthetic;

Status ErrorOf(const std::string& path) {
  const Result<Inspection> inspected = InspectCheckpoint(path);
  return inspected.ok() ? inspected->runnable : inspected.status();
}

void ExpectLine(const Status& status, const std::string& beginning, const std::string& part) {
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_TRUE(status.message().starts_with(beginning)) << status.message();
  EXPECT_NE(status.message().find(part), std::string::npos) << "'" << part << "' is not in: " << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

// Every length below `described`, then some up to the whole.
std::vector<size_t> Cuts(size_t described, size_t whole) {
  std::vector<size_t> cuts;
  for (size_t n = 0; n < described; ++n) cuts.push_back(n);
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) cuts.push_back(described + random() % (whole - described));
  cuts.push_back(whole - 1);
  return cuts;
}

TEST(Truncation, Gguf) {
  for (const Inventory& inventory : {GgufLlama(), GgufGptOss()}) {
    const RawGguf raw = GgufOf(inventory);
    const std::string whole = raw.Make();
    const TempFolder folder;
    ASSERT_TRUE(ErrorOf(folder.Write("m.gguf", whole)).ok());
    for (const size_t n : Cuts(whole.size() - raw.data_bytes, whole.size())) {
      const std::string path = folder.Write("m.gguf", whole.substr(0, n));
      const std::string end = "of the file at byte " + std::to_string(n), ends = "the file ends at byte " + std::to_string(n);
      const std::string said = ErrorOf(path).message();
      ExpectLine(ErrorOf(path), path + ": ", n == 0 ? "the file is empty" : said.find(end) != said.npos ? end : ends);
      if (HasFailure()) return;
    }
  }
}

TEST(Truncation, Safetensors) {
  for (const Inventory& inventory : {HfGpt2(), HfGptOss()}) {
    const SafetensorsHeader header = HeaderOf(inventory, 0, inventory.tensors.size());
    const std::string whole = SafetensorsOf(header);
    const TempFolder folder;
    folder.Write("config.json", ConfigOf(inventory));
    folder.Write("model.safetensors", whole);
    ASSERT_TRUE(ErrorOf(folder.path()).ok());
    for (const size_t n : Cuts(8 + header.json.size(), whole.size())) {
      const std::string path = folder.Write("model.safetensors", whole.substr(0, n));
      const std::string expected = n == 0  ? "the file is empty"
                                   : n < 8 ? "expected 8 bytes of header length, the file has " + std::to_string(n)
                                   : n < 8 + header.json.size()
                                       ? "its length is given as " + std::to_string(header.json.size()) +
                                             " bytes, but the file has " + std::to_string(n - 8)
                                       : "but the file has only " + std::to_string(n - 8 - header.json.size());
      ExpectLine(ErrorOf(folder.path()), path + ": ", expected);
      if (HasFailure()) return;
    }
  }
}

// A JSON file of a directory, cut at every byte.
void CutJson(const TempFolder& folder, const std::string& name, const std::function<Status()>& load) {
  const std::string whole = ReadAll(folder / name);
  ASSERT_TRUE(load().ok()) << load().message();
  for (size_t n = 0; n < whole.size() && !testing::Test::HasFailure(); ++n) {
    const std::string path = folder.Write(name, whole.substr(0, n));
    ExpectLine(load(), path + ": ", n == 0 ? "the file is empty" : "parse error at line ");
  }
  folder.Write(name, whole);
  EXPECT_TRUE(load().ok());
}

TEST(Truncation, ConfigGenerationConfigAndIndex) {
  const Inventory inventory = HfGpt2();
  const size_t half = 5;
  const TempFolder folder;
  folder.Write("config.json", ConfigOf(inventory));
  folder.Write("generation_config.json", R"({"eos_token_id": [1, 5]})");
  folder.Write("model.safetensors.index.json", IndexOf(inventory, half));
  folder.Write("a.safetensors", SafetensorsOf(HeaderOf(inventory, 0, half)));
  folder.Write("b.safetensors", SafetensorsOf(HeaderOf(inventory, half, inventory.tensors.size())));
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors.index.json"}) {
    CutJson(folder, name, [&] { return ErrorOf(folder.path()); });
  }
}

TEST(Truncation, TokenizerJsonAndItsConfig) {
  const TempFolder folder;
  folder.Write("tokenizer.json",
               R"({"version":"1.0","added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":{"type":"NFC"},)"
               R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\s+"},"behavior":"Isolated"},"decoder":{"type":"Fuse"},)"
               R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})");
  folder.Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "<s>"}})");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    CutJson(folder, name, [&] { return LoadTokenizer(folder.path()).status(); });
  }
}

}  // namespace
}  // namespace tally::siege
