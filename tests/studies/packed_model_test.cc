// SPDX-License-Identifier: Apache-2.0
// Packed files of whole models: everything is as in the source, which may be gone by then.
#include "engine/studies/packed_model.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/chat/template_source.h"
#include "engine/machine/parallel.h"
#include "engine/studies/inspect.h"
#include "engine/studies/pack_source.h"
#include "engine/studies/synth.h"
#include "engine/text/tokenizer.h"
#include "engine/weights/fingerprint.h"
#include "engine/weights/weights.h"
#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/app/text_model.h"
#include "tests/support/open_engine.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

const std::string kGoldenModels = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Fingerprint of the weights; 0, and the test failed: they cannot be loaded.
uint64_t Fingerprint(const std::string& path, bool prediction = false) {
  const auto inventory = ReadCheckpoint(path);
  EXPECT_TRUE(inventory.ok()) << inventory.status().message();
  if (!inventory.ok()) return 0;
  const auto spec = ReadModelSpec(*inventory, prediction);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  if (!spec.ok()) return 0;
  const auto plan = PlanWeights(*inventory, *spec, 0);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  Team team(2);
  const auto weights = LoadWeights(*inventory, *plan, team, nullptr);
  EXPECT_TRUE(weights.ok()) << weights.status().message();
  return weights.ok() ? FingerprintOf(*weights, team) : 0;
}

class PackedModels : public testing::Test {
 protected:
  std::string Pack(const std::string& path, const PackOptions& options = {.threads = 2}) {
    const std::string out = folder_ / "m.tally";
    const auto packed = PackModel(path, out, options);
    EXPECT_TRUE(packed.ok()) << path << ": " << packed.status().message();
    EXPECT_EQ(packed.ok() ? packed->bytes : 0, fs::file_size(out));
    return out;
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.insert(entry.path().filename().string());
    return names;
  }
  TempFolder folder_;
};

TEST_F(PackedModels, GgufOfSeveralTypes) {
  for (const auto& [model, type] : {std::pair{"gpt2", DType::kQ8_0},
                                    {"gpt2", DType::kBF16},
                                    {"gpt2", DType::kQ4_K},
                                    {"Granite-3.0-1B-A400M", DType::kQ4_0}}) {
    SynthOptions options;
    options.type = type;
    options.layers = 1;
    options.vocab = 320;
    const std::string source = folder_ / "m.gguf";
    ASSERT_TRUE(Synthesize(model, source, options).ok()) << model;
    const uint64_t plain = Fingerprint(source);
    const std::string packed = Pack(source, {.threads = 2, .window_bytes = uint64_t{1} << 20});
    const std::string bytes = Bytes(packed);
    EXPECT_TRUE(Bytes(Pack(source)) == bytes) << "windows of another size";
    const auto first = ReadPacked(packed);
    // Without a source: the same but for the source's stamp, which the header has.
    options.packed = true;
    ASSERT_TRUE(Synthesize(model, packed, options).ok());
    const auto made = ReadPacked(packed);
    ASSERT_TRUE(first.ok() && made.ok()) << made.status().message();
    EXPECT_TRUE(Bytes(packed).substr(made->packed->data_offset) == bytes.substr(first->packed->data_offset)) << model;
    EXPECT_EQ(first->packed->weights, made->packed->weights);
    EXPECT_EQ(first->packed->sums, made->packed->sums);
    EXPECT_EQ(first->packed->source_checksum, made->packed->source_checksum);
    EXPECT_EQ(first->packed->sources[0].path, made->packed->sources[0].path);
    EXPECT_EQ(first->metadata.values(), made->metadata.values());
    fs::remove(source);
    EXPECT_EQ(Fingerprint(packed), plain) << model;
    EXPECT_EQ(Names(), (std::set<std::string>{"m.tally"}));
  }
}

// Directories of every family, of which many have transposed, interleaved or computed weights.
TEST_F(PackedModels, DirectoriesOfEveryFamily) {
  int packed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kGoldenModels)) {
    const std::string directory = entry.path().string();
    if (!entry.is_directory() || !fs::exists(directory + "/config.json") || !fs::exists(directory + "/model.safetensors"))
      continue;
    SCOPED_TRACE(directory);
    EXPECT_EQ(Fingerprint(Pack(directory)), Fingerprint(directory));
    ++packed;
  }
  EXPECT_GT(packed, 40);
}

TEST_F(PackedModels, RunsAsItsSource) {
  const std::string source = folder_ / "text.gguf";
  ASSERT_TRUE(TextModel::Write(source).ok());
  const std::string packed = Pack(source);
  const EngineOptions options = SmallOptions();
  for (const bool guarded : {false, true}) {
    const Opened a = Open(source, options, {.guard_slices = guarded}), b = Open(packed, options, {.guard_slices = guarded});
    ASSERT_TRUE(a.engine && b.engine);
    EXPECT_EQ(a.model->parameters().total, b.model->parameters().total);
    EXPECT_EQ(a.model->Description(), b.model->Description());
    ASSERT_NE(b.model->tokenizer(), nullptr);
    EXPECT_EQ(*b.model->tokenizer()->Encode("abc"), *a.model->tokenizer()->Encode("abc"));
  }
  const auto inspected = InspectCheckpoint(packed);
  ASSERT_TRUE(inspected.ok());
  ASSERT_NE(inspected->inventory.packed, nullptr);
  EXPECT_EQ(inspected->inventory.packed->sources[0].path, "text.gguf");
  EXPECT_TRUE(inspected->runnable.ok()) << inspected->runnable.message();
  EXPECT_EQ(PackModel(packed, folder_ / "again.tally").status().message(), packed + ": is packed already");
  EXPECT_NE(PackModel(source, source).status().message().find("would be overwritten"), std::string::npos);
}

// Tokenizer, templates and generation_config.json of a directory go along.
TEST_F(PackedModels, TextsOfADirectory) {
  const std::string directory = folder_ / "model", shared = std::string(TALLY_SOURCE_DIR) + "/../shared/";
  fs::copy(kGoldenModels + "gpt2/gpt2-a-f32-release-names", directory, fs::copy_options::recursive);
  const auto write = [&](const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteTextFile(directory + "/" + name, text).ok());
  };
  write(
      "tokenizer.json",
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3},"merges":[["a","b"]]},"added_tokens":[],"decoder":{"type":"Fuse"}})");
  write("tokenizer_config.json", R"({"eos_token":"c","chat_template":"never"})");
  write("chat_template.jinja", "{{ messages[0].content }}");
  write("generation_config.json", R"({"stop_strings":["END"],"temperature":0.25})");
  fs::create_directory(directory + "/additional_chat_templates");
  write("additional_chat_templates/tools.jinja", "{{ tools }}");
  const auto plain = ReadCheckpoint(directory);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const auto tokens = TokenizerFor(*plain);
  const auto templates = ReadChatTemplates(*plain, nullptr);
  ASSERT_TRUE(tokens.ok() && templates.ok()) << tokens.status().message();
  const std::string packed = Pack(directory);
  fs::remove_all(directory);
  const auto inventory = ReadCheckpoint(packed);
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  EXPECT_EQ(inventory->metadata.values(), plain->metadata.values());
  const auto packed_tokens = TokenizerFor(*inventory);
  ASSERT_TRUE(packed_tokens.ok()) << packed_tokens.status().message();
  EXPECT_EQ(*(*packed_tokens)->Encode("abba"), *(*tokens)->Encode("abba"));
  EXPECT_EQ((*packed_tokens)->eos(), (*tokens)->eos());
  const auto packed_templates = ReadChatTemplates(*inventory, nullptr);
  ASSERT_TRUE(packed_templates.ok()) << packed_templates.status().message();
  ASSERT_EQ(packed_templates->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*packed_templates)[i].text, (*templates)[i].text);
    EXPECT_EQ((*packed_templates)[i].name, (*templates)[i].name);
    EXPECT_EQ((*packed_templates)[i].stop, std::vector<std::string>{"END"});
  }
}

// A file with the layer for prediction runs with it and without it.
TEST_F(PackedModels, LayersForPrediction) {
  SynthOptions options;
  options.type = DType::kF32;
  options.layers = 4;
  options.vocab = 320;
  options.prediction = true;
  const std::string source = folder_ / "p.gguf";
  ASSERT_TRUE(Synthesize("Qwen3.5-0.8B", source, options).ok());
  const std::string packed = Pack(source);
  EXPECT_EQ(Fingerprint(packed, true), Fingerprint(source, true));
  EXPECT_EQ(Fingerprint(packed), Fingerprint(source));
}

TEST_F(PackedModels, PartsOfProcesses) {
  const std::string source = folder_ / "text.gguf", out = folder_ / "part.tally";
  ASSERT_TRUE(TextModel::Write(source).ok());
  const Shard second = {.rank = 1, .ranks = 2};
  ASSERT_TRUE(PackShard(source, out, {.threads = 2}, second).ok());
  const auto inventory = ReadCheckpoint(out);
  ASSERT_TRUE(inventory.ok());
  const auto spec = ReadModelSpec(*inventory);
  ASSERT_TRUE(spec.ok());
  Team team(2);
  const auto part = PlanWeights(*inventory, *spec, 0, second), all = PlanWeights(*inventory, *spec, 0);
  EXPECT_TRUE(LoadWeights(*inventory, *part, team, nullptr).ok());
  const Status refused = LoadWeights(*inventory, *all, team, nullptr).status();
  EXPECT_NE(refused.message().find("the part of process 2 of 2 (--split all), and this process needs all of the model"),
            std::string::npos)
      << refused.message();
}

TEST_F(PackedModels, NothingIsLeftWhereItFails) {
  const std::string source = folder_ / "text.gguf", out = folder_ / "m.tally";
  ASSERT_TRUE(TextModel::Write(source).ok());
  const std::set<std::string> before = Names();
  const auto stopped = PackModel(source, out, {.progress = [](uint64_t, uint64_t) { return false; }});
  EXPECT_EQ(stopped.status().code(), StatusCode::kInterrupted);
  EXPECT_EQ(Names(), before);
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {20000, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto full = PackModel(source, out);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(full.status().message().find("m.tally: cannot be given its room"), std::string::npos) << full.status().message();
  EXPECT_EQ(Names(), before);
  // What a killed run left goes; a living writer's file, which holds a lock, stays.
  folder_.Write("m.tally.partial-77-0", "left");
  folder_.Write("n.tally.partial-77-0", "another's");
  Pack(source);
  EXPECT_FALSE(fs::exists(folder_ / "m.tally.partial-77-0"));
  EXPECT_TRUE(fs::exists(folder_ / "n.tally.partial-77-0"));
}

#ifdef __linux__
// A file system without room: it is said before anything is packed, and nothing is left.
TEST_F(PackedModels, AFullFileSystem) {
  const std::string source = folder_ / "text.gguf", full = folder_ / "full";
  ASSERT_TRUE(TextModel::Write(source).ok());
  fs::create_directory(full);
  if (::mount("tmpfs", full.c_str(), "tmpfs", 0, "size=256k") != 0) GTEST_SKIP() << "cannot mount: " << std::strerror(errno);
  const auto packed = PackModel(source, full + "/m.tally", {.threads = 2});
  EXPECT_TRUE(fs::is_empty(full));
  EXPECT_EQ(::umount2(full.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(packed.status().code(), StatusCode::kNoRoom);
  EXPECT_NE(packed.status().message().find("m.tally"), std::string::npos) << packed.status().message();
}
#endif

// kill -9 in the middle: a new file is not there, an old one is as it was, and the next run cleans up.
TEST(PackedModelsDeathTest, KilledInTheMiddle) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr const char* kFolder = "TALLY_TEST_KILLED";
  std::optional<TempFolder> own;  // the parent's: a child runs the test from its beginning, in the same folder
  if (std::getenv(kFolder) == nullptr) ::setenv(kFolder, own.emplace().path().c_str(), 1);
  const std::string folder = std::getenv(kFolder), source = folder + "/text.gguf", out = folder + "/m.tally";
  const auto pack = [&] {
    const auto kill = [](uint64_t done, uint64_t total) { return done == 0 || done == total || std::raise(SIGKILL) != 0; };
    (void)PackModel(source, out, {.threads = 2, .window_bytes = 1, .progress = kill});
  };
  const auto partials = [&] {
    return std::ranges::count_if(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
      return entry.path().filename().string().starts_with("m.tally.partial-");
    });
  };
  if (own) {
    ASSERT_TRUE(TextModel::Write(source).ok());
  }
  EXPECT_EXIT(pack(), testing::KilledBySignal(SIGKILL), "");
  if (own) {
    EXPECT_FALSE(fs::exists(out));
    EXPECT_EQ(partials(), 1);
    ASSERT_TRUE(WriteTextFile(out, "old").ok());
  }
  EXPECT_EXIT(pack(), testing::KilledBySignal(SIGKILL), "");
  if (!own) return;
  ::unsetenv(kFolder);
  EXPECT_EQ(Bytes(out), "old");
  EXPECT_EQ(partials(), 1) << "the first one's is gone";
  const auto packed = PackModel(source, out, {.threads = 2});
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  EXPECT_EQ(partials(), 0);
  EXPECT_EQ(Fingerprint(out), Fingerprint(source));
}

}  // namespace
}  // namespace tally
