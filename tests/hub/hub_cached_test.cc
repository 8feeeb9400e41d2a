// SPDX-License-Identifier: Apache-2.0
// What a cache holds, and taking it out again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/hub/hub.h"
#include "tests/hub/made_cache.h"
#include "tests/support/temp_folder.h"

namespace tally::hub {
namespace {

namespace fs = std::filesystem;

class HubCached : public testing::Test {
 protected:
  HubCached() : cache_(folder_ / "hub") {
    settings_.cache = cache_.folder();
    cache_.Add("org", "Many-GGUF",
               {{"x-Q4_K_M.gguf", "1234"},
                {"x-Q8_0.gguf", "12345678"},
                {"big/x-BF16-00001-of-00002.gguf", "12"},
                {"big/x-BF16-00002-of-00002.gguf", "345"}});
    cache_.Add("org", "Plain", {{"config.json", "{}"}, {"tokenizer.json", "{}"}, {"model.safetensors", "123"}});
    cache_.Add("org", "Configured", {{"config.json", "{}"}});
    cache_.Add("else", "plain", {{"config.json", "{}"}, {"tokenizer.json", "{}"}, {"model.safetensors", "123"}}, false);
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const Result<std::vector<CachedModel>> models = ListCached(settings_);
    EXPECT_TRUE(models.ok());
    for (const CachedModel& m : *models) names.push_back(m.name.text() + (m.path.empty() ? " -" : ""));
    return names;
  }
  std::string Refused(const Name& name) {
    const Result<Removal> removal = PlanRemoval(settings_, name);
    EXPECT_FALSE(removal.ok()) << name.text();
    return removal.ok() ? "" : removal.status().message();
  }

  TempFolder folder_;
  MadeCache cache_;
  Settings settings_;
};

TEST_F(HubCached, TypesInNames) {
  EXPECT_EQ(TypeInFileName("a/Llama-3.2-1B-Instruct-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(TypeInFileName("blobs/f16c0ffee"), "") << "a digest";
  EXPECT_EQ(TypeInFileName("qwen3-0.6b-q8_0.gguf"), "Q8_0");
  EXPECT_EQ(TypeInFileName("x-UD-IQ2_XXS-00001-of-00003.gguf"), "IQ2_XXS");
  EXPECT_EQ(TypeInFileName("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(TypeInFileName("model.bf16.gguf"), "BF16");
  EXPECT_EQ(TypeInFileName("Q4_0/model.gguf"), "");
  EXPECT_EQ(TypeInFileName("demo.gguf"), "");
}

// Each by the shortest name that opens it.
TEST_F(HubCached, Lists) {
  EXPECT_EQ(Names(), (std::vector<std::string>{"else/plain", "org/Configured -", "org/Many-GGUF:BF16", "org/Many-GGUF:Q4_K_M",
                                               "org/Many-GGUF:Q8_0", "org/Plain"}));
  const Result<std::vector<CachedModel>> models = ListCached(settings_);
  for (const CachedModel& m : *models) {
    if (m.path.empty()) continue;
    const Result<std::string> found = FindCached(settings_, m.name, Want::kWeights);
    ASSERT_TRUE(found.ok()) << m.name.text();
    EXPECT_EQ(*found, m.path);
  }
  EXPECT_EQ((*models)[2].bytes, 5u);
  EXPECT_EQ((*models)[2].type, "BF16");
  EXPECT_EQ((*models)[5].bytes, 7u);
  settings_.cache = folder_ / "nowhere";
  EXPECT_EQ(Names(), std::vector<std::string>());
}

TEST_F(HubCached, ShortNames) {
  const auto found = [&](const char* given) {
    std::vector<std::string> names;
    for (const Name& name : FindShortName(settings_, given)) names.push_back(name.text());
    return names;
  };
  EXPECT_EQ(found("many-gguf:Q8_0"), std::vector<std::string>{"org/Many-GGUF:Q8_0"});
  EXPECT_EQ(found("PLAIN"), (std::vector<std::string>{"else/plain", "org/Plain"}));
  EXPECT_EQ(found("many"), std::vector<std::string>());
  EXPECT_EQ(found("Many-GGUF:../x"), std::vector<std::string>());
}

TEST_F(HubCached, RemovesOneModel) {
  const Result<Removal> removal = PlanRemoval(settings_, {"org", "Many-GGUF", "BF16"});
  ASSERT_TRUE(removal.ok()) << removal.status().message();
  EXPECT_EQ(removal->bytes, 5u);
  EXPECT_EQ(removal->files.size(), 4u);  // two links, two blobs
  EXPECT_TRUE(fs::exists(cache_.Place("org", "Many-GGUF", "big/x-BF16-00002-of-00002.gguf"))) << "not yet";
  ASSERT_TRUE(Remove(*removal).ok());
  EXPECT_EQ(Names(), (std::vector<std::string>{"else/plain", "org/Configured -", "org/Many-GGUF:Q4_K_M", "org/Many-GGUF:Q8_0",
                                               "org/Plain"}));
  // A blob that another revision has under another name stays.
  const fs::path other = cache_.Repository("org", "Many-GGUF") / "snapshots/fedcba9876543210fedcba9876543210fedcba98";
  fs::create_directories(other);
  fs::copy_symlink(cache_.Place("org", "Many-GGUF", "x-Q8_0.gguf"), other / "y-Q8_0.gguf");
  fs::copy_symlink(cache_.Place("org", "Many-GGUF", "x-Q4_K_M.gguf"), other / "x-Q4_K_M.gguf");
  for (const auto& [choice, bytes] : {std::pair{"Q8_0", 0u}, {"Q4_K_M", 4u}}) {
    const Result<Removal> next = PlanRemoval(settings_, {"org", "Many-GGUF", choice});
    ASSERT_TRUE(next.ok()) << next.status().message();
    EXPECT_EQ(next->bytes, bytes) << choice;
    ASSERT_TRUE(Remove(*next).ok());
  }
  EXPECT_TRUE(fs::exists(other / "y-Q8_0.gguf"));
  EXPECT_FALSE(fs::is_symlink(other / "x-Q4_K_M.gguf"));
}

TEST_F(HubCached, RemovesARepository) {
  const Result<Removal> removal = PlanRemoval(settings_, {"org", "Plain", ""});
  ASSERT_TRUE(removal.ok()) << removal.status().message();
  EXPECT_GE(removal->bytes, 7u);
  ASSERT_TRUE(Remove(*removal).ok());
  EXPECT_FALSE(fs::exists(cache_.Repository("org", "Plain")));
  EXPECT_TRUE(fs::exists(cache_.Repository("org", "Many-GGUF")));
}

// Of several models a name alone means none.
TEST_F(HubCached, RefusesANameOfSeveralModels) {
  const std::string refused = Refused({"org", "Many-GGUF", ""});
  EXPECT_NE(refused.find("has 3 models here: org/Many-GGUF:BF16, org/Many-GGUF:Q4_K_M, org/Many-GGUF:Q8_0"), std::string::npos)
      << refused;
  const Result<Removal> all = PlanRemoval(settings_, {"org", "Many-GGUF", ""}, /*all=*/true);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->folder, cache_.Repository("org", "Many-GGUF"));
}

// In one repository some files are another program's, which Tally has read beside its own.
TEST_F(HubCached, KeepsWhatAnotherProgramFetched) {
  const fs::path repository = cache_.Repository("org", "Many-GGUF");
  const std::string blob = fs::read_symlink(cache_.Place("org", "Many-GGUF", "x-Q8_0.gguf")).filename();
  std::string written = ReadAll(repository / ".tally/written");
  written.erase(written.find(blob), blob.size() + 1);
  folder_.Write("hub/models--org--Many-GGUF/.tally/written", written);
  EXPECT_NE(Refused({"org", "Many-GGUF", "Q8_0"}).find("has fetched x-Q8_0.gguf,"), std::string::npos);
  const Result<Removal> ours = PlanRemoval(settings_, {"org", "Many-GGUF", "Q4_K_M"});
  ASSERT_TRUE(ours.ok()) << ours.status().message();
  ASSERT_TRUE(Remove(*ours).ok());
  const Result<Removal> all = PlanRemoval(settings_, {"org", "Many-GGUF", ""}, /*all=*/true);
  ASSERT_FALSE(all.ok());
  EXPECT_NE(all.status().message().find("has fetched x-Q8_0.gguf,"), std::string::npos) << all.status().message();
  EXPECT_EQ(ReadAll(repository / ".tally/written").size(), 2 * (blob.size() + 1)) << "what was removed is forgotten";
  // A Tally that noted nothing.
  fs::remove(cache_.Repository("org", "Plain") / ".tally/written");
  EXPECT_NE(Refused({"org", "Plain", ""}).find("config.json, model.safetensors, tokenizer.json"), std::string::npos);
}

TEST_F(HubCached, RefusesWhatIsNotOurs) {
  EXPECT_NE(Refused({"org", "nowhere", ""}).find("is not in the cache"), std::string::npos);
  EXPECT_NE(Refused({"else", "plain", ""}).find("another program has fetched it"), std::string::npos);
  EXPECT_NE(Refused({"org", "Many-GGUF", "Q6_K"}).find("Q6_K"), std::string::npos);
  // Files that a link leads to, beyond the cache.
  const std::string mine = folder_.Write("mine.gguf", "123");
  const fs::path link = cache_.Place("org", "Many-GGUF", "x-Q8_0.gguf");
  fs::remove(link);
  fs::create_symlink(mine, link);
  EXPECT_FALSE(PlanRemoval(settings_, {"org", "Many-GGUF", "Q8_0"}).ok());
  fs::rename(cache_.Repository("org", "Plain"), folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", cache_.Repository("org", "Plain"));
  EXPECT_NE(Refused({"org", "Plain", ""}).find("leads out of the cache"), std::string::npos);
  EXPECT_TRUE(fs::exists(mine));
}

}  // namespace
}  // namespace tally::hub
