// SPDX-License-Identifier: Apache-2.0
// tally list, tally rm, and the short names of models that were pulled.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/lines.h"
#include "tests/app/runner.h"
#include "tests/app/terminal.h"
#include "tests/hub/made_cache.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kDemo = std::string(TALLY_SOURCE_DIR) + "/models/demo/demo.gguf";

class CliList : public testing::Test {
 protected:
  CliList() : cache_(home_ / "hub") {
    options_.environment = {"HF_HUB_CACHE=" + cache_.folder(), "XDG_STATE_HOME=" + (home_ / "state"), "HF_HUB_OFFLINE=1"};
  }
  Json List() { return Json::parse(Text({"list", "--json"}, options_)).at("models"); }
  std::string Run(const std::string& model) {
    return Text({"run", model, "-p", "ROMEO:", "-n", "4", "-q", "--temp", "0"}, options_);
  }

  TempFolder home_;
  hub::MadeCache cache_;
  RunOptions options_;
};

TEST_F(CliList, FromTheCacheAndWhatWasRun) {
  const Ended none = Tally({"list"}, options_);
  EXPECT_EQ(none.code, 0);
  EXPECT_NE(none.err.find("tally pull ORG/NAME"), std::string::npos) << none.err;
  cache_.Add("org", "Tiny-GGUF", {{"x-Q4_K_M.gguf", kDemo}, {"x-Q8_0.gguf", kDemo}});
  const std::string file = home_ / "mine-BF16.gguf";
  fs::copy_file(kDemo, file);
  const std::string expected = Run("demo");
  EXPECT_EQ(Run("tiny-gguf:q8_0"), expected);
  EXPECT_EQ(Run(file), expected);
  const Json models = List();
  ASSERT_EQ(models.size(), 4u) << models;
  const auto named = [&](const std::string& name) {
    for (const Json& m : models) {
      if (m.at("name") == name) return m;
    }
    ADD_FAILURE() << name << models;
    return Json();
  };
  EXPECT_EQ(named(file).at("type"), "BF16");
  EXPECT_EQ(named(file).at("bytes"), fs::file_size(kDemo));
  EXPECT_EQ(named("demo").at("path"), fs::canonical(kDemo).string());
  const Json typed = named("Tiny-GGUF:Q8_0"), plain = named("Tiny-GGUF:Q4_K_M");
  EXPECT_EQ(typed.at("hub_name"), "org/Tiny-GGUF:Q8_0");
  EXPECT_FALSE(typed.at("last_used").is_null());
  EXPECT_EQ(plain.at("type"), "Q4_K_M");
  EXPECT_TRUE(plain.at("last_used").is_null());
  for (const Json& m : models) EXPECT_EQ(Run(m.at("name")), expected) << m;  // what is listed is what one types
  EXPECT_EQ(Text({"ls"}, options_), Text({"list"}, options_));
  for (const std::string& line : LinesOf(Text({"list"}, {.output_terminal = true, .environment = options_.environment}))) {
    EXPECT_LE(line.size(), 80u) << line;
  }
  fs::remove(file);
  EXPECT_EQ(List().size(), 3u) << "what is gone is not listed";
  // A repository of the same name elsewhere: both by their whole names, and the short one says so.
  cache_.Add("other", "tiny-gguf", {{"x-Q8_0.gguf", kDemo}});
  ExpectAdvice({"run", "Tiny-GGUF:Q8_0"}, {"org/Tiny-GGUF:Q8_0", "other/tiny-gguf:Q8_0"}, options_);
  EXPECT_NE(Text({"list"}, options_).find("org/Tiny-GGUF:Q8_0 "), std::string::npos);
}

TEST_F(CliList, Removes) {
  cache_.Add("org", "Tiny-GGUF", {{"x-Q4_K_M.gguf", kDemo}, {"x-Q8_0.gguf", kDemo}});
  cache_.Add("org", "Foreign", {{"config.json", "{}"}}, false);
  ExpectAdvice({"rm", "Tiny-GGUF:Q8_0"}, {"--yes"}, options_);
  ExpectAdvice({"rm", "Tiny-GGUF", "--yes"}, {"org/Tiny-GGUF:Q4_K_M", "org/Tiny-GGUF:Q8_0", "--all"}, options_);
  EXPECT_EQ(Text({"rm", "Tiny-GGUF:Q8_0", "--yes"}, options_), "org/Tiny-GGUF:Q8_0: removed, 3.60 MiB freed\n");
  EXPECT_EQ(List().size(), 2u);
  ExpectAdvice({"rm", kDemo, "--yes"}, {"is no file of the cache"}, options_);
  ExpectAdvice({"rm", "demo", "--yes"}, {"bundled"}, options_);
  ExpectAdvice({"rm", "org/Foreign", "--yes"}, {"another program has fetched it"}, options_);
  ExpectAdvice({"rm", "org/../x", "--yes"}, {"is not in the cache"}, options_);
  for (const char* answer : {"n", ""}) {
    Terminal asked({"rm", "Tiny-GGUF"}, options_.environment);
    asked.Expect("remove org/Tiny-GGUF, all of it, 3.60 MiB? [y/N]");
    asked.Type(std::string(answer) + "\r");
    asked.Expect("nothing was removed");
    EXPECT_EQ(asked.End(), 0);
  }
  Terminal asked({"rm", "tiny-gguf"}, options_.environment);
  asked.Expect("[y/N]");
  asked.Type("y\r");
  asked.Expect("removed, 3.60 MiB freed");
  EXPECT_EQ(asked.End(), 0);
  EXPECT_FALSE(fs::exists(cache_.Repository("org", "Tiny-GGUF")));
}

// Nothing that is remembered may stop a run.
TEST_F(CliList, AStateThatCannotBeKept) {
  options_.environment.emplace_back("XDG_STATE_HOME=/dev/null");
  EXPECT_EQ(Tally({"run", "-p", "A", "-n", "1", "-q"}, options_).err, "");
  fs::create_directories(home_ / "state/tally");
  options_.environment.back() = "XDG_STATE_HOME=" + (home_ / "state");
  home_.Write("state/tally/models_used", "nonsense\n1\t/nowhere\tx\n\t\t\n99999999999999999999\ta\tb\n");
  EXPECT_EQ(List().size(), 0u);
  Run("demo");
  EXPECT_EQ(List().size(), 1u);
}

}  // namespace
}  // namespace tally
