// SPDX-License-Identifier: Apache-2.0
// Reports in Chromium (check.mjs): nothing is fetched, no error, no violation that axe-core finds, labels that cover nothing, sorting and
// filtering. Screenshots stay in the build folder.
#include "engine/page/page.h"
#include "tests/app/runner.h"
#include "tests/browser/chromium.h"
#include "tests/page/sample_run.h"

namespace tally {
namespace {

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = PrepareBrowser({"check.mjs"}); !missing.empty()) GTEST_SKIP() << missing;
  }

  // What check.mjs says of the pages, which are files; `code`: its exit code.
  std::string Check(const std::vector<std::string>& pages, int code) const {
    std::string command = "cd '" + std::string(kBrowserFolder) + "' && node check.mjs \"$(command -v " + Chromium() + ")\" '" +
                          (code == 0 ? kScreenshots : folder_.path()) + "'";
    for (const std::string& page : pages) command += " '" + page + "'";
    const int ended = Shell(command + " >'" + folder_ / "said" + "' 2>&1");
    std::string said = ReadAll(folder_ / "said");
    EXPECT_EQ(ended, code) << said;
    return said;
  }

  void ExpectReadable(const std::vector<std::string>& pages) const {
    const std::string said = Check(pages, 0);
    for (const std::string& page : pages) {
      const std::string name = std::filesystem::path(page).stem();
      EXPECT_NE(said.find(name + ": opens in"), std::string::npos) << said;
    }
  }

  TempFolder folder_;
};

// The shapes of gpt-oss-20b, 200 steps; a small dense model; both.
TEST_F(Browser, PagesOfMadeUpRuns) {
  const std::vector<ReportData> runs = {page::SampleMoe(), page::SampleDense()};
  ExpectReadable({folder_.Write("moe.html", RenderPage({runs.data(), 1})),
                  folder_.Write("dense.html", RenderPage({runs.data() + 1, 1})),
                  folder_.Write("compared.html", RenderPage(runs))});
}

TEST_F(Browser, PagesOfTheCommand) {
  const std::string demo = folder_ / "demo.html", moe = folder_ / "small-moe.html", two = folder_ / "two-runs.html";
  const std::string model = TALLY_SOURCE_DIR "/tests/goldens/gptoss/gptoss-a-top4of8-realyarn/model.gguf";
  const std::vector<std::vector<std::string>> commands = {
      {"report", "demo", "-n", "16", "-o", demo},
      {"report", model, "--tokens", "1,2,3,4,5,6", "-n", "12", "-o", moe},
      {"run", "demo", "-p", "ROMEO:", "-n", "8", "--ledger", folder_ / "a.jsonl"},
      {"run", "demo", "-p", "ROMEO:", "-n", "24", "--kv", "q8_0", "--ledger", folder_ / "b.jsonl"},
      {"report", folder_ / "a.jsonl", folder_ / "b.jsonl", "-o", two},
  };
  for (const std::vector<std::string>& command : commands) {
    const Ended ended = Tally(command);
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  ExpectReadable({demo, moe, two});
}

// The check itself sees what it is there for.
TEST_F(Browser, TheCheckFindsWhatIsWrong) {
  std::string page = RenderPage({});
  page.replace(page.find("<main>"), 6,
               "<main><figure id=\"bad\"><svg class=\"picture\" width=\"3000\" height=\"20\"><title>t</title>"
               "<text x=\"0\" y=\"12\">one</text><text x=\"4\" y=\"12\" style=\"fill:#999\">two</text></svg>"
               "<table><thead></thead><tbody></tbody></table></figure>"
               "<p style=\"width:3000px\">wide</p><img src=\"https://localhost:1/x.png\">");
  const std::string said = Check({folder_.Write("bad.html", page)}, 1);
  for (const char* finding : {"'one' and 'two' cover each other", "'two' has a contrast of", "px wide", "axe: image-alt",
                              "console: ", "no table to sort"}) {
    EXPECT_NE(said.find(finding), std::string::npos) << finding << "\n" << said;
  }
}

}  // namespace
}  // namespace tally
