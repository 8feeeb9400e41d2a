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
  ForeignOptionsOf() : app_("tally", ""), run_(app_.Add("run", "")) {
    run_.Option("-n,--tokens", tokens_, "");
    run_.Option("-p,--prompt", text_, "");
    run_.Option("--top-k", text_, "");
    run_.Option("MODEL,-m,--model", text_, "");
    run_.Flag("--json", flag_, "");
  }
  Words Ours(const Words& given) {
    ignored_.clear();
    const Result<Words> ours = TranslateOptions(run_, given, [&](const std::string& line) { ignored_.push_back(line); });
    return ours.ok() ? *ours : Words{ours.status().message()};
  }

  Command app_, run_;
  std::string tokens_, text_;
  bool flag_ = false;
  Words ignored_;
};

TEST_F(ForeignOptionsOf, AreTakenIgnoredOrRefused) {
  EXPECT_EQ(Ours({"x", "--n_predict", "5", "--max-tokens=6", "-hf", "a/b"}),
            (Words{"x", "--tokens", "5", "--tokens=6", "--model", "a/b"}));
  EXPECT_EQ(Ours({"--top_k=5", "--top_k", "-ngl"}), (Words{"--top-k=5", "--top-k", "-ngl"})) << "the second is a value";
  EXPECT_EQ(Ours({"-p", "-ngl", "--json", "-ngl", "9", "--json"}), (Words{"-p", "-ngl", "--json", "--json"}));
  EXPECT_EQ(ignored_, Words{"-ngl is ignored: models run on the CPU"});
  EXPECT_EQ(Ours({"-fa", "on", "-fa", "x", "--numa=isolate", "--n_gpu_layers", "all"}), Words{"x"});
  EXPECT_EQ(ignored_.size(), 4u);
  EXPECT_EQ(Ours({"--", "-ngl", "9"}), (Words{"--", "-ngl", "9"}));
  EXPECT_EQ(Ours({"-ctk", "q8_0"}), Words{"-ctk is not an option here: write --kv TYPE, for K and V together"});
  EXPECT_EQ(Ours({"-np", "4", "--nothing", "-5"}), (Words{"-np", "4", "--nothing", "-5"})) << "run has no --parallel";
  EXPECT_EQ(Ours({"-ngl"}), Words{});
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
