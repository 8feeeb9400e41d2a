// SPDX-License-Identifier: Apache-2.0
// Options of other programs: what becomes of them, and that docs/commands.md says so.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/app/foreign_options.h"
#include "tests/support/temp_folder.h"

namespace tally::app {
namespace {

using Words = std::vector<std::string>;

class ForeignOptionsOf : public testing::Test {
 protected:
  ForeignOptionsOf() : app_("tally", ""), run_(app_.Add("run", "")), fit_(app_.Add("fit", "")) {
    app_.Add("chat", "").Option("--system", text_, "");
    fit_.Option("--batch", tokens_, "");
    run_.Option("-n,--tokens", tokens_, "");
    run_.Option("-p,--prompt", text_, "");
    run_.Option("--top-k", text_, "");
    run_.Option("MODEL,-m,--model", text_, "");
    run_.Flag("--json", flag_, "");
  }
  Words Ours(const Words& given) {
    ignored_.clear();
    const Result<Words> ours = TranslateOptions(app_, run_, given, [&](const std::string& line) { ignored_.push_back(line); });
    return ours.ok() ? *ours : Words{ours.status().message()};
  }

  Command app_, run_, fit_;
  std::string tokens_, text_;
  bool flag_ = false;
  Words ignored_;
};

TEST_F(ForeignOptionsOf, AreTakenIgnoredOrRefused) {
  EXPECT_EQ(Ours({"x", "--n_predict", "5", "-hf", "a/b"}), (Words{"x", "--tokens", "5", "--model", "a/b"}));
  EXPECT_EQ(Ours({"--max-tokens=6"}), Words{"--tokens=6"});
  EXPECT_EQ(Ours({"--top_k", "-ngl"}), (Words{"--top-k", "-ngl"})) << "a value";
  EXPECT_EQ(Ours({"-p", "-ngl", "--json", "-ngl", "9", "--json"}), (Words{"-p", "-ngl", "--json", "--json"}));
  EXPECT_EQ(ignored_, Words{"-ngl is ignored: models run on the CPU"});
  EXPECT_EQ(Ours({"-fa", "on", "-fa", "x", "--numa=isolate", "--n_gpu_layers", "all"}), Words{"x"});
  EXPECT_EQ(ignored_.size(), 4u);
  EXPECT_EQ(Ours({"--", "-ngl", "9"}), (Words{"--", "-ngl", "9"}));
  EXPECT_EQ(Ours({"-ctk", "q8_0"}), Words{"-ctk is not an option here: write --kv TYPE, for K and V together"});
  EXPECT_EQ(Ours({"--nothing", "-5"}), (Words{"--nothing", "-5"}));
  EXPECT_EQ(Ours({"-ngl"}), Words{});
  EXPECT_EQ(Ours({"-sys", "x"}), Words{"-sys is not an option here: run has no --system; tally chat has"});
  EXPECT_EQ(Ours({"-ngl", "--json", "-ngl", "-1", "-nkvo", "0", "-nkvo", "--json"}), (Words{"--json", "--json"}));
  EXPECT_EQ(Ours({"--batch-size", "16"}), Words{}) << "llama.cpp's and ours are not the same";
  const Result<Words> sequences = TranslateOptions(app_, fit_, Words{"--batch-size", "16"}, [](const std::string&) {});
  EXPECT_EQ(*sequences, (Words{"--batch", "16"}));
}

TEST_F(ForeignOptionsOf, OnceUnderWhateverName) {
  EXPECT_EQ(Ours({"-n", "1", "--tokens=2", "--n_predict", "3"}),
            Words{"--tokens is given 3 times (--n_predict and -n are the same)"});
  EXPECT_EQ(Ours({"-n5", "-n", "6"}), Words{"--tokens is given twice (-n is the same)"});
  EXPECT_EQ(Ours({"--tokens", "1", "--tokens", "2"}), Words{"--tokens is given twice"});
  run_.Option("--parallel", text_, "");
  run_.Option("-c,--ctx", text_, "");
  EXPECT_EQ(Ours({"-c", "4096", "-np", "4"}), (Words{"-c", "4096", "--parallel", "4"}));
  EXPECT_EQ(ignored_.size(), 1u) << "whose context -c is";
  Ours({"-c", "4096", "--parallel", "4"});
  EXPECT_EQ(ignored_.size(), 0u);
}

// No name twice for one command, and every option has its word.
TEST_F(ForeignOptionsOf, TheTable) {
  std::vector<std::pair<std::string_view, const ForeignOption*>> seen;
  for (const ForeignOption& option : ForeignOptions()) {
    EXPECT_FALSE(option.text.empty() || option.names.empty());
    EXPECT_EQ(option.kind == ForeignOption::Kind::kTaken, option.text.starts_with("--")) << option.text;
    for (const std::string_view name : option.names) {
      EXPECT_EQ(name.find('_'), name.npos) << name;
      for (const auto& [other, row] : seen) EXPECT_TRUE(other != name || !row->of.empty()) << name << ": never reached";
      seen.emplace_back(name, &option);
    }
  }
  const std::string docs = ReadAll(std::string(TALLY_SOURCE_DIR) + "/docs/commands.md");
  const std::string table = Render(ForeignOptionsTable(), TableFormat::kMarkdown);
  EXPECT_NE(docs.find(table), std::string::npos) << "docs/commands.md should have:\n" << table;
}

}  // namespace
}  // namespace tally::app
