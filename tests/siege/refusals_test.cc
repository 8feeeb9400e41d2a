// SPDX-License-Identifier: Apache-2.0
// Every malformed file through the library: the expected line, no more memory than the files justify, and nothing printed.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>

#include "engine/api/tally.h"
#include "tests/models/spec_tools.h"
#include "tests/models/synthetic_files.h"
#include "tests/siege/siege.h"
#include "tests/support/allocations.h"

namespace tally::siege {
namespace {

// A byte of a file may become a node of a map or of a parsed JSON document, some tens of bytes.
constexpr int64_t kBytesForEach = 100, kBytesForAny = 1 << 20, kSparse = 16 << 20;

// The holes of a large sparse file justify nothing. (Of a small one some file systems say late, or compressed, what it takes.)
int64_t BytesIn(const TempFolder& folder) {
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder.path())) {
    struct stat s {};
    if (file.is_symlink() || stat(file.path().c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
    bytes += s.st_size > kSparse ? std::min<int64_t>(s.st_size, int64_t{s.st_blocks} * 512) : s.st_size;
  }
  return bytes;
}

auto Load(const std::string& path) {
  EngineOptions options;
  options.threads = 1;
  return LoadModel(path, options);
}

// `load` refuses what the case wrote.
template <class Load>
void ExpectRefused(const Case& given, const Load& load) {
  const TempFolder folder;
  const std::string path = given.write(folder);
#if !defined(TALLY_SHADOW_MEMORY)  // what a sanitizer has to say must be seen
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
#endif
  const AllocationPeak peak;
  const Status status = load(path);
  const int64_t held = peak.Bytes(), cap = kBytesForAny + kBytesForEach * BytesIn(folder);
  EXPECT_LE(held, cap);
  EXPECT_LE(peak.Largest(), cap);
#if !defined(TALLY_SHADOW_MEMORY)
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
#endif
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_EQ(status.message(), In(folder, given.line));
}

class Siege : public testing::TestWithParam<Case> {};

TEST_P(Siege, TheExpectedLineAndLittleMemory) {
  ExpectRefused(GetParam(), [](const std::string& path) {
    const auto model = Load(path);
    return model.ok() && OfTokenizer(GetParam()) ? (*model)->tokenizer_status() : model.status();
  });
}

class RanksSiege : public testing::TestWithParam<Case> {};

TEST_P(RanksSiege, TheExpectedLineAndLittleMemory) {
  ExpectRefused(GetParam(), [](const std::string& path) { return TokenizerFromRanks(path, "r50k_base").status(); });
}

INSTANTIATE_TEST_SUITE_P(All, Siege, testing::ValuesIn(AllCases()), [](const auto& c) { return c.param.name; });
INSTANTIATE_TEST_SUITE_P(All, RanksSiege, testing::ValuesIn(RanksCases()), [](const auto& c) { return c.param.name; });

// What the cases begin with: nothing is refused but for what a case changes.
TEST(SiegeStart, SoundFilesLoad) {
  using namespace synthetic;
  for (const Inventory& i : {GgufGpt2(), WithoutTensors(GgufLlama(), "rope_freqs.weight"), GgufGptOss()}) {
    const TempFolder folder;
    const auto model = Load(folder.Write("m.gguf", GgufOf(i).Make()));
    EXPECT_TRUE(model.ok()) << model.status().message();
  }
  for (const Inventory& i : {HfGpt2(), HfLlama(), HfGptOss()}) {
    const TempFolder folder;
    folder.Write("config.json", ConfigOf(i));
    folder.Write("model.safetensors", SafetensorsOf(HeaderOf(i, 0, i.tensors.size())));
    const auto model = Load(folder.path());
    EXPECT_TRUE(model.ok()) << model.status().message();
  }
}

#if defined(TALLY_COUNTS_ALLOCATIONS)
// Files that are as dense as they can be with what takes memory.
TEST(SiegeMemory, DenseFiles) {
  RawGguf keys, strings, tensors;
  for (int i = 0; i < 200'000; ++i) keys.keys.push_back(Key(std::to_string(i), 7, Bytes().U8(1)));
  strings.keys = {Key("k", 9, Bytes().U32(8).U64(1 << 20).Zeros(size_t{8} << 20))};
  for (int i = 0; i < 100'000; ++i) tensors.tensors.push_back({std::to_string(i), {}, 24, 0});
  tensors.data_bytes = 32;
  std::string header = "{\"0\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  for (int i = 1; i < 50'000; ++i) header += ",\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  std::string vocabulary = "{\"0\":0", merges = "[\"0 1\"", values = "[0";
  for (int i = 1; i < 200'000; ++i) {
    vocabulary += ",\"" + std::to_string(i) + "\":" + std::to_string(i);
    merges += ",\"" + std::to_string(i % 9) + " " + std::to_string(i) + "\"";
    values += ",[]";
  }
  std::string ranks;
  for (int i = 0; i < 200'000; ++i) ranks += "AAAA " + std::to_string(i) + "\n";
  const auto check = [](const TempFolder& folder, const std::string& path, const auto& load) {
    const AllocationPeak peak;
    EXPECT_FALSE(load(path).ok());
    const int64_t held = peak.Bytes();
    EXPECT_LE(held, kBytesForAny + kBytesForEach * BytesIn(folder));
    std::printf("%lld bytes held at the most for files of %lld\n", static_cast<long long>(held),
                static_cast<long long>(BytesIn(folder)));
  };
  for (const RawGguf* g : {&keys, &strings, &tensors}) {
    const TempFolder folder;
    check(folder, folder.Write("m.gguf", g->Make()), Load);
  }
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model.safetensors", Safetensors(header + "}", 0));
  check(folder, folder.path(), Load);
  const std::string model = R"({"added_tokens":[],"model":{"type":"BPE","vocab":)";
  for (const std::string& text :
       {model + vocabulary + R"(},"merges":)" + merges + "]}}", model + R"({"a":0},"merges":)" + values + "]}}"}) {
    const TempFolder tokenizer;
    check(tokenizer, tokenizer.Write("tokenizer.json", text), TokenizerFromJson);
  }
  const TempFolder tiktoken;
  check(tiktoken, tiktoken.Write("m.tiktoken", ranks),
        [](const std::string& path) { return TokenizerFromRanks(path, "r50k_base"); });
}

TEST(SiegeStart, TheCountSeesWhatIsAllocated) {
  const int64_t before = Allocations::held;
  const AllocationPeak peak;
  { const std::vector<char> some(3 << 20); }
  EXPECT_GE(peak.Bytes(), 3 << 20);
  EXPECT_EQ(Allocations::held, before);
  EXPECT_EQ(peak.Largest(), 3 << 20);
}
#endif

}  // namespace
}  // namespace tally::siege
